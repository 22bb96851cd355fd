"""How many threads compute, and how they wait for each other.

The last bits of a matrix product depend on its number of threads. One thread by default makes the
results equal on all machines and after a resume; for a minibatch it is as fast as more.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock

_in_use = Lock()
FIRST_PROCESS = os.getpid()  # later ones with another number were forked


def chosen_threads() -> int | None:
    """Return the number of threads that the user set with OMP_NUM_THREADS, if any."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdecimal() and int(first) > 0 else None


def available() -> int:
    """Return the number of threads for work whose result does not depend on it."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS and Windows
    return chosen_threads() or (
        len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    )


def compute_with_one_thread() -> None:
    """Let a forked process compute with one thread.

    The threads of OpenMP stay in the parent, and a child that gives them work waits for ever. Each
    library that has OpenMP has its own number of threads.
    """
    if {"sklearn", "torch"} & sys.modules.keys():  # they bring OpenMP
        from threadpoolctl import threadpool_limits

        threadpool_limits(1, user_api="openmp")
    if "torch" in sys.modules:  # its MKL, too
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=compute_with_one_thread)


@contextmanager
def small_products() -> Iterator[None]:
    """Compute matrix products with one thread, or as many as the user has set.

    If another thread is within already, its number holds for both, as it is one for the process:
    two that set and reset it would leave the wrong one behind.
    """
    if not _in_use.acquire(blocking=False):  # a wait could last for ever in a forked process
        yield
        return
    from threadpoolctl import threadpool_limits

    number = (chosen_threads() or 1) if os.getpid() == FIRST_PROCESS else 1
    torch = sys.modules.get("torch")  # loaded if networks are trained
    before = torch.get_num_threads() if torch else number
    with ExitStack() as at_end:
        at_end.callback(_in_use.release)
        at_end.enter_context(threadpool_limits(number, user_api="blas"))  # "blas" is numpy's
        if torch:
            at_end.callback(torch.set_num_threads, before)
            torch.set_num_threads(number)
        yield
