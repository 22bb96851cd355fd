"""What a training cost: time, memory, and what left a client for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from experiments.report import versions
from fedtopics.federation.ledger import summarise_ledger

T = TypeVar("T")


def what_left(run: Path) -> dict[str, float]:
    """Return the bytes and replies that left one client in a run, the mean over its clients."""
    ledgers = [summarise_ledger(path) for path in run.glob("clients/*/ledger.jsonl")]
    return {
        key: float(np.mean([sum(row[key] for row in ledger) for ledger in ledgers]))
        for key in ("bytes", "replies")
    }


def measured(
    work: Callable[[T], dict[str, Any]], packages: Sequence[str]
) -> Callable[[T], dict[str, Any]]:
    """Return the same work, whose rows say what it cost and which versions of packages did it.

    A row's "cost" has "core_seconds", reading and scoring included, and "megabytes", the most
    memory that the process had meanwhile; what the work itself says of them stands.
    """

    def with_cost(task: T) -> dict[str, Any]:
        begun = time.process_time()
        _forget_peak()
        row = work(task)
        cost = {"core_seconds": round(time.process_time() - begun, 1), "megabytes": _peak()}
        return {"cost": cost, "versions": versions(packages)} | row

    return with_cost


def _forget_peak() -> None:
    """Let the system count the process's most memory from now on, where it can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak() -> int | None:
    """Return the most memory that the process had, in MB; None where nobody can know."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return None
