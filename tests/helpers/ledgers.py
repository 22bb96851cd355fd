"""What ledgers say."""

import json
from pathlib import Path
from typing import Any

FACTS = "round", "function", "position", "documents", "bytes", "sha256"


def left(ledger: Path) -> list[tuple[Any, ...]]:
    """What left a client, and when, by its digest."""
    return [tuple(map(str, map(line.get, FACTS))) for line in lines_that_left(ledger)]


def lines_that_left(ledger: Path) -> list[dict[str, Any]]:
    return [
        line
        for line in map(json.loads, ledger.read_text(encoding="utf-8").splitlines())
        if line["what"] == "sent"
    ]
