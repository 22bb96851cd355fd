"""What masks cost for 0.8 million numbers, with 5 and 50 members: mask, add and open, in ms.

One process does the work of one member and of the relay; each number is the median of several.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import arguments, measured, table, versions, write
from fedtopics.protocol import keys, masks

NUMBERS, MEMBERS, TIMES = 800_000, (5, 50), 9
SEED = 0


def median_ms(work: Callable[[], Any], times: int) -> float:
    """Return the median milliseconds of some work."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(found)


def measure(members: int, numbers: int, times: int) -> dict[str, float]:
    """Mask, add and open vectors of all members; the total has to be exact."""
    rng = np.random.default_rng(SEED)
    names = [f"m{number:02}" for number in range(members)]
    private = {name: rng.bytes(32) for name in names}
    public = {name: keys.public_key(key) for name, key in private.items()}
    group, bound = rng.bytes(32), rng.bytes(32)

    def masked(name: str, whole: Any) -> bytes:
        return masks.mask(group, private[name], name, public, bound, whole)

    total, expected, body = np.zeros(numbers + 1, "<u8"), np.zeros(numbers, np.int64), b""
    for name in names:
        whole = rng.integers(-(1 << 40), 1 << 40, numbers)
        body = masked(name, whole)
        total, expected = masks.add(total, body), expected + whole
    content, spare = total.tobytes(), total.copy()
    if not np.array_equal(masks.unmask(group, bound, content), expected):
        raise SystemExit("The total is not the sum of the vectors.")
    return {
        "mask": median_ms(lambda: masked(names[0], expected), times),
        "add": median_ms(lambda: masks.add(spare, body), times),
        "open": median_ms(lambda: masks.unmask(group, bound, content), times),
    }


def main() -> None:
    given = arguments(__doc__)
    numbers, times = (80_000, 2) if given.quick else (NUMBERS, TIMES)
    tasks = [{"members": members, "numbers": numbers} for members in MEMBERS]
    rows = measured(given, tasks, lambda task: measure(**task, times=times))
    lines = [[row["members"], *(f"{row[part]:.1f}" for part in ("mask", "add", "open"))]
             for row in rows]  # fmt: skip
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "numpy", "cryptography").items())
    write(given, [
        f"Milliseconds for {numbers:,} numbers, medians of {times}, one thread, seed {SEED}; a "
        "member masks its vector, the relay adds one vector to its total, a member opens the total "
        f"and checks its tag. {used}. Command: `make bench NAME=secure`.", "",
        *table("members | mask, ms | add, ms | open, ms", lines, left=0),
    ])  # fmt: skip
