"""What a training cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedtopics.federation.ledger import summarise_ledger


def what_left(run: Path) -> dict[str, float]:
    """Return the bytes and replies that left one client in a run, the mean over its clients."""
    ledgers = [summarise_ledger(path) for path in run.glob("clients/*/ledger.jsonl")]
    return {
        key: float(np.mean([sum(row[key] for row in ledger) for ledger in ledgers]))
        for key in ("bytes", "replies")
    }
