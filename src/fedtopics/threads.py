"""How many threads compute, and how they wait for each other.

Threads of a matrix product wait for each other after every operation, by default in a busy loop:
beside other processes that takes a hundred times as long. Here they wait asleep, in every command.

The last bits of a product depend on the number of its threads. So it follows from what a study
multiplies, not from how busy a machine is or how many cores it has: everybody computes the same
bits, and a resumed run goes on with them. One thread multiplies a minibatch as fast as any number.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def chosen() -> int | None:
    """Return the number of threads that the user has set by OMP_NUM_THREADS; None without it."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def available() -> int:
    """Return how many threads may compute at once, where their number changes no bit.

    As many as the user has set, or as this process may use cores, which the system shares fairly.
    """
    some = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    return chosen() or (len(os.sched_getaffinity(0)) if some else os.cpu_count() or 1)


def wait_asleep() -> None:
    """Let threads sleep while they wait for each other; before numpy or torch are loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextmanager
def small_products() -> Iterator[None]:
    """Compute matrix products by one thread, or by as many as the user has set."""
    from threadpoolctl import threadpool_limits

    number = chosen() or 1
    torch = sys.modules.get("torch")  # what trains a network has loaded it by now
    before = torch.get_num_threads() if torch else number
    with threadpool_limits(number, user_api="blas"):  # numpy's
        if torch:
            torch.set_num_threads(number)
        try:
            yield
        finally:
            if torch:
                torch.set_num_threads(before)
