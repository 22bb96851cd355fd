"""What a training cost: time, memory, and what left a client for it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from experiments.report import Rows, Table, versions
from fedtopics.report.run import LedgerFacts
from fedtopics.text.words import RULES

T = TypeVar("T")
HOUR = 3600  # seconds
Groups = Mapping[str, tuple[int, Rows]]  # by name: how many trainings there are to be, and rows


def what_left(run: Path) -> dict[str, float]:
    """Return the bytes and replies that left one client in a run, the mean over its clients."""
    ledgers = [LedgerFacts.read(path).rows for path in run.glob("clients/*/ledger.jsonl")]
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
        return {"cost": cost, "versions": versions(packages), "rules": RULES} | row

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


def table(groups: Groups) -> Table:
    """Return what the trainings of each group took, and what all of them would at that rate."""
    wanted = sum(number for number, _ in groups.values())
    rows = [row for _, rows in groups.values() for row in rows]
    lines = [_line(name, *group) for name, group in groups.items()]
    header = (
        "what it took",
        "trainings",
        "of",
        "measured",
        "core-hours",
        "whole, core-hours",
        "largest, MB",
    )
    whole = "-"
    if all(_hours(rows) for _, rows in groups.values()):
        whole = f"{sum(_whole(*group) for group in groups.values()):.2f}"
    total = (*_line("all", wanted, rows)[:5], whole, _most(rows))
    return Table("Time and memory", header, (*lines, total))


def _line(name: str, wanted: int, rows: Rows) -> tuple[str, ...]:
    hours = _hours(rows)
    whole = f"{_whole(wanted, rows):.2f}" if hours else "-"
    numbers = (len(rows), wanted, len(hours))
    return name, *(f"{n:,}" for n in numbers), f"{sum(hours):.2f}", whole, _most(rows)


def _hours(rows: Rows) -> list[float]:
    """Return the core-hours of those rows that say what they cost."""
    return [row["cost"]["core_seconds"] / HOUR for row in rows if "cost" in row]


def _whole(wanted: int, rows: Rows) -> float:
    return wanted * float(np.mean(_hours(rows)))


def _most(rows: Rows) -> str:
    megabytes = [row["cost"]["megabytes"] or 0 for row in rows if "cost" in row]
    return f"{max(megabytes):,}" if any(megabytes) else "-"
