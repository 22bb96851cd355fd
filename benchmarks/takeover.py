"""The common log in a million simulated networks: never two histories, never an entry lost.

Each seed is one schedule of faults (`tests/helpers/schedules.py`); what must never happen is
checked after each step, and in the end the healed network has to commit again. Seeds that fail are
kept in the rows. What was done with the same code is not done again.
"""

from __future__ import annotations

import gc
import hashlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, measured, write
from fedtopics.engines import copies, feeds, log, log_messages, replica, views
from tests.helpers import schedules

CHUNK = 1000  # schedules a row
QUICK = 2000
FAULTS = {
    "crash": "participants killed, somewhere in what they were about to send",
    "adder": "adders killed likewise",
    "part": "partitions",
    "cut": "single connections cut",
    "stop": "participants stopped",
    "mute": "connections that stand and carry nothing, one way",
}


def code() -> str:
    """Return a name of what is tested and what tests it."""
    modules = (copies, feeds, log, log_messages, replica, views, schedules)
    content = b"".join(Path(module.__file__ or "").read_bytes() for module in modules)
    return hashlib.sha256(content).hexdigest()[:16]


def work(first: int) -> dict[str, Any]:
    """Run a chunk of schedules."""
    begun, total, failing = time.process_time(), Counter[str](), []
    slowest = 0.0
    gc.disable()
    for seed in range(first, first + CHUNK):
        if seed % 250 == 0:
            gc.collect()
        schedule = schedules.Schedule(seed)
        try:
            schedule.run()
        except Exception as error:  # a crash of the replica's own is a failure like any other
            failing.append([seed, f"{type(error).__name__}: {error}"[:200]])
        total += schedule.faults
        total["steps"] += schedule.steps
        total["committed"] += len(schedule.truth) - 1
        total["views"] += max(node.log.view for node in schedule.nodes.values())
        total["rough"] += schedule.rough_drawn
        total["lossy"] += schedule.lossy
        total[f"of {len(schedule.voters)}"] += 1
        slowest = max(slowest, schedule.time - schedules.FAULTS_END)
    seconds = time.process_time() - begun
    return {"failing": failing, "seconds": seconds, "slowest": slowest, "total": dict(total)}


def describe(rows: list[dict[str, Any]], command: str) -> str:
    """Return the page of results."""
    total = sum((Counter(row["total"]) for row in rows), Counter[str]())
    count, failing = CHUNK * len(rows), sum(len(row["failing"]) for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    sizes = ", ".join(
        f"{total[f'of {size}']:,} of {size}" for size in range(2, 8) if total[f"of {size}"]
    )
    drawn = "\n".join(f"| {text} | {total[kind]:,} |" for kind, text in FAULTS.items())
    return f"""# Another adder takes over: simulated networks

`{command}`, code `{rows[0]["code"]}`

{count:,} schedules, a seed each from {min(row["first"] for row in rows):,}: **{failing} failed**.
{total["steps"]:,} steps in {seconds:,.0f} s of one core ({1000 * seconds / count:.2f} ms each).
Participants: {sizes}.

| drawn | number |
| --- | --- |
{drawn}
| schedules whose connections lose, repeat and swap messages | {total["rough"]:,} |
| schedules whose participants may lose what they had written | {total["lossy"]:,} |
| entries committed | {total["committed"]:,} |
| views after the first | {total["views"]:,} |

Checked after each step: what participants know to be committed is the same everywhere, by digest;
who commits first does so with a majority that has the entry; who begins to add has all that was
committed before. After the last fault all connections come back, and all participants have to
commit a new entry and vote again; the slowest took {max(row["slowest"] for row in rows):.0f}
seconds of simulated time (a sign of life each second, patience 3).
"""


def main() -> None:
    given = arguments(__doc__, schedules=1_000_000)
    count, version = QUICK if given.quick else given.schedules, code()
    tasks = [{"first": first, "code": version} for first in range(0, count, CHUNK)]
    rows = measured(given, tasks, lambda task: work(task["first"]))
    write(given, describe(rows, f"make bench NAME={given.name}").splitlines())
    if any(row["failing"] for row in rows):
        raise SystemExit(f"Schedules failed: {[row['failing'] for row in rows if row['failing']]}")
