"""What ledgers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FACTS = "round", "function", "moment", "documents", "bytes", "sha256"


def left(ledger: Path) -> list[tuple[Any, ...]]:
    """What left a client, and when, by its digest."""
    lines = [json.loads(line) for line in ledger.read_text(encoding="utf-8").splitlines()]
    return [tuple(map(str, map(line.get, FACTS))) for line in lines if line["what"] == "left"]
