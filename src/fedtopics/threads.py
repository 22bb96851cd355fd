"""How many threads compute, and how they wait for each other.

Threads of a matrix product wait for each other after every operation, by default in a busy loop:
beside other processes a study of small products then takes a hundred times as long. They wait
asleep here, in every command.

The last bits of a product depend on how many threads compute it. In a study their number therefore
follows from what the study multiplies, not from how busy a machine is at the moment or how many
cores it has: everybody computes the same bits, and a run that is resumed goes on with them. The
products of a minibatch are so small that one thread is as fast as any number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def chosen() -> int | None:
    """Return the number of threads that the user has set by OMP_NUM_THREADS; None without it."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def available() -> int:
    """Return how many threads may compute at once, where their number changes no bit.

    As many as the user has set, or else as this process may use cores: the system shares those
    fairly with other processes, as threads here wait asleep.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS, Windows
        cores = os.cpu_count() or 1
    return chosen() or cores


def wait_asleep() -> None:
    """Let threads sleep while they wait for each other; before numpy or torch are loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@contextmanager
def small_products() -> Iterator[None]:
    """Compute matrix products by one thread, or by as many as the user has set."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    number = chosen() or 1
    with threadpool_limits(number, user_api="blas"):  # numpy's
        torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)
