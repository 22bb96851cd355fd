"""What other processes do to `fedtopics demo`: alone, and beside as many busy ones as cores.

Three ways take turns: as the command does it by itself; with a thread a core that wait asleep; and
with a thread a core that wait in a busy loop, which is what torch does by itself. Busy processes
count, a thread each. What is in ``results/threads.jsonl`` is not run again.

    python benchmarks/threads.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from fedtopics.files import RowFile
from fedtopics.threads import available
from quick import results_of

CORES = available()
A_CORE = {"OMP_NUM_THREADS": str(CORES)}
WAYS: dict[str, dict[str, str]] = {
    "as it is": {},
    "a thread a core, asleep": A_CORE,
    "a thread a core, in a loop": A_CORE | {"OMP_WAIT_POLICY": "active"},
}
SET_HERE = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
PATIENCE = 1200  # seconds for a demo


class Task(NamedTuple):
    """One demo."""

    way: str
    busy: int
    rounds: int
    turn: int


@contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep so many processes counting, each of a session of its own, as other users' are."""
    count = [sys.executable, "-c", "while 1: pass"]
    processes = [subprocess.Popen(count, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def processor_seconds() -> float:
    """Return what ended child processes have computed: those that count have not ended yet."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(task: Task) -> dict[str, Any]:
    """Run a demo; return the seconds of its rounds and of the whole command."""
    environment = {name: value for name, value in os.environ.items() if name not in SET_HERE}
    with tempfile.TemporaryDirectory() as folder, busy(task.busy):
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "fedtopics", "demo", "--out", str(out)]
        command += ["--rounds", str(task.rounds)]
        load, begun = os.getloadavg()[0], time.perf_counter()
        before = processor_seconds()
        subprocess.run(
            command, check=True, env=environment | WAYS[task.way], timeout=PATIENCE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        whole, processor = time.perf_counter() - begun, processor_seconds() - before
        events = map(json.loads, (out / "events.jsonl").read_text(encoding="utf-8").splitlines())
        seconds = sum(event["seconds"] for event in events if event["event"] == "round")
    return {"training": seconds, "whole": whole, "processor": processor, "load": load}


def table(rows: list[dict[str, Any]], rounds: int) -> list[str]:
    """Return the lines of the table: medians of turns, and ratios to those alone."""
    lines = [
        f"Seconds of `fedtopics demo --rounds {rounds}` (five clients, seed 0) on {CORES} cores, "
        f"alone and beside {CORES} processes that count; medians of {max(r['turn'] for r in rows)} "
        "turns; processor: seconds that it computed, whatever others do. "
        f"fedtopics {version('fedtopics')}, torch {version('torch')}, numpy "
        f"{version('numpy')}, Python {sys.version.split()[0]}. Load of other work before a demo: "
        f"{min(r['load'] for r in rows):.1f} to {max(r['load'] for r in rows):.1f} (of the last "
        "minute, the turn before in it). Command: `python benchmarks/threads.py"
        f"{' --quick' if rounds == 10 else ''}`.",
        "",
        "| threads | rounds, alone | rounds, beside | times | all, alone | all, beside | times "
        "| processor, alone | processor, beside | times |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for way in WAYS:
        cells = []
        for what in ("training", "whole", "processor"):
            alone, beside = (
                statistics.median(r[what] for r in rows if r["way"] == way and r["busy"] == number)
                for number in (0, CORES)
            )
            cells.append(f"{alone:.1f} | {beside:.1f} | {beside / alone:.1f}")
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one turn of ten rounds")
    quick = parser.parse_args().quick
    rounds, turns = (10, 1) if quick else (100, 3)
    todo = [
        Task(way, number, rounds, turn)
        for turn in range(1, turns + 1)
        for way in WAYS
        for number in (0, CORES)
    ]
    results = results_of("threads", quick)
    kept = RowFile(results / "threads.jsonl")
    kept.fill(
        todo, Task._asdict, measured, lambda t: f"{t.way}, beside {t.busy}, turn {t.turn}",
        lambda event: print(event["done"], "of", event["models"], event["name"], flush=True),
    )  # fmt: skip
    lines = table([row for task in todo if (row := kept.find(task._asdict()))], rounds)
    (results / "threads.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
