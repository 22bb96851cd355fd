"""What a participant computes for a masked sum: masks, digest, challenge, products, keys, shares.

The targets are those for masking and checking together at 0.8 million numbers.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from benchmarks.common import arguments, table, write
from fedtopics.secure import field, keys, masks, shares
from fedtopics.secure.check import challenge, digest, products

TARGETS = {(5, 800_000): 40, (50, 800_000): 140}  # milliseconds
CASES = [(n, size) for size in (800_000, 2_000_000) for n in (5, 50)]
CONTEXT = bytes(32)
TURNS = 9


def milliseconds(task: Callable[[], object]) -> float:
    task()
    ends = [time.process_time()]
    for _ in range(TURNS):
        task()
        ends.append(time.process_time())
    return 1000 * statistics.median(after - before for before, after in pairwise(ends))


def cells_of(n: int, size: int) -> list[object]:
    """Time each step of one exchange of n participants: milliseconds of one, and of who adds."""
    rng = np.random.default_rng(0)
    names = [f"client {number:02}" for number in range(n)]
    own, others = names[n // 2], [name for name in names if name != names[n // 2]]
    values = rng.integers(0, field.PRIME, size, np.uint64)
    total = rng.integers(0, field.PRIME, size, np.uint64)
    pair, public = keys.KeyPair(os.urandom(32)), keys.KeyPair(os.urandom(32)).public
    seeds = {name: os.urandom(32) for name in others}
    digests = {name: os.urandom(32) for name in names}
    seed, secret, enough = os.urandom(32), os.urandom(shares.SECRET), shares.threshold(n)
    parts = shares.split(secret, names, enough)

    def add_all() -> None:
        for _ in names:
            field.add(total, values)

    masking = milliseconds(lambda: masks.mask(values, own, seeds))  # of all pairs
    self_mask = milliseconds(lambda: masks.add_self_mask(values, seed))
    checking = [
        milliseconds(lambda: digest(values, CONTEXT)),  # of its masked reply
        milliseconds(lambda: challenge(CONTEXT, total, digests)),
        # Of the challenge with its masked reply, and with the total.
        milliseconds(lambda: products(seed, values) + products(seed, total)),
    ]
    rest = [
        milliseconds(add_all),
        milliseconds(lambda: [pair.secret_with(public, CONTEXT) for _ in others]),
        milliseconds(lambda: shares.split(secret, names, enough)),
        milliseconds(lambda: shares.combine(parts, names, enough)),
    ]
    each = [f"{x:,.1f}" for x in (masking, self_mask, *checking, masking + sum(checking))]
    target = TARGETS.get((n, size), "")
    return [n, f"{size / 1e6:g}", *each, target, *(f"{number:,.1f}" for number in rest)]


HEAD = """# Masked sums: processor time

`make bench NAME=secure`: milliseconds of one participant's processor, one thread, medians of
{turns} turns. *Together*: masking and checking, which are masks, digest, challenge and products. *Adding* is that of all
replies, at who adds; *keys* are those of all pairs; a mask of one's own, *split* and *combine*, of one secret, are
for exchanges in which members may be lost.
"""  # noqa: E501 - a line of the page
COLUMNS = """participants | million numbers | masks | own mask | digest | challenge | products \
| together | target | adding | keys | split | combine"""


def main() -> None:
    given = arguments(__doc__)
    cases = [(5, 10_000)] if given.quick else CASES
    lines = [cells_of(*case) for case in cases]
    write(given, [HEAD.format(turns=TURNS), *table(COLUMNS, lines, left=0)])
