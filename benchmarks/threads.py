"""What other processes do to `fedtopics demo`: alone, and beside as many busy ones as cores.

Three ways take turns: as the command does it by itself; with a thread a core that wait asleep; and
with a thread a core that wait in a busy loop, which is what torch does by itself.
"""

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
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, grid, measured, table, versions, write
from fedtopics.threads import available

CORES = available()
A_CORE = {"OMP_NUM_THREADS": str(CORES)}
WAYS: dict[str, dict[str, str]] = {
    "as it is": {},
    "a thread a core, asleep": A_CORE,
    "a thread a core, in a loop": A_CORE | {"OMP_WAIT_POLICY": "active"},
}
SET_HERE = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
PATIENCE = 1200  # seconds for a demo


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


def demo(task: dict[str, Any]) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name not in SET_HERE}
    with tempfile.TemporaryDirectory() as folder, busy(task["busy"]):
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "fedtopics", "demo", "--out", str(out)]
        command += ["--rounds", str(task["rounds"])]
        load, begun = os.getloadavg()[0], time.perf_counter()
        before = processor_seconds()
        subprocess.run(
            command, check=True, env=environment | WAYS[task["way"]], timeout=PATIENCE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        whole, processor = time.perf_counter() - begun, processor_seconds() - before
        events = map(json.loads, (out / "events.jsonl").read_text(encoding="utf-8").splitlines())
        seconds = sum(event["seconds"] for event in events if event["event"] == "round")
    return {"training": seconds, "whole": whole, "processor": processor, "load": load}


def cells_of(rows: list[dict[str, Any]], way: str) -> list[str]:
    cells = [way]
    alike = [[r for r in rows if (r["way"], r["busy"]) == (way, number)] for number in (0, CORES)]
    for what in ("training", "whole", "processor"):
        alone, busy = (statistics.median(row[what] for row in these) for these in alike)
        cells += [f"{alone:.1f}", f"{busy:.1f}", f"{busy / alone:.1f}"]
    return cells


def main() -> None:
    given = arguments(__doc__, rounds=100, turns=3)
    rounds, turns = (10, 1) if given.quick else (given.rounds, given.turns)
    tasks = grid(turn=range(1, turns + 1), rounds=[rounds], way=WAYS, busy=(0, CORES))
    rows = measured(given, tasks, demo)
    used = versions("fedtopics", "torch", "numpy")
    loads = [row["load"] for row in rows]
    head = """threads | rounds, alone | rounds, beside | times | all, alone | all, beside | times \
| processor, alone | processor, beside | times"""
    write(given, [
        f"Seconds of `fedtopics demo --rounds {rounds}` (five clients, seed 0) on {CORES} cores, "
        f"alone and beside {CORES} processes that count; medians of {turns} turns; processor: "
        "seconds that it computed, whatever others do. "
        f"{', '.join(f'{name} {number}' for name, number in used.items())}. Load of other work "
        f"before a demo: {min(loads):.1f} to {max(loads):.1f} (of the last minute, the turn "
        f"before in it). Command: `python -m benchmarks threads --rounds {rounds} "
        f"--turns {turns}`.", "", *table(head, (cells_of(rows, way) for way in WAYS)),
    ])  # fmt: skip
