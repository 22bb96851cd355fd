"""What a participant computes for a masked sum: masks, digest, challenge, products, keys, shares.

The targets are those for masking and checking together at 0.8 million numbers.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from benchmarks.common import arguments, table, write
from fedtopics.secure import field, keys, masks, shares
from fedtopics.secure.check import challenge, digest, products

TARGETS = {(5, 800_000): 40, (50, 800_000): 140}  # milliseconds
CASES = [(n, size) for size in (800_000, 2_000_000) for n in (5, 50)]
CONTEXT = bytes(32)
TURNS = 9


class Row(NamedTuple):
    """Milliseconds of one participant, and of who adds."""

    masks: float  # of all pairs
    own: float  # a mask of its own, where members may be lost
    digest: float  # of its masked reply
    challenge: float  # from the total
    products: float  # of the challenge with its masked reply, and with the total
    adding: float  # of all replies, at who adds
    keys: float  # what all pairs have in common
    split: float  # a secret, where members may be lost
    combine: float  # its shares

    @property
    def together(self) -> float:
        """Masking and checking: what each exchange costs a participant."""
        return self.masks + self.digest + self.challenge + self.products


def milliseconds(task: Callable[[], object]) -> float:
    task()
    ends = [time.process_time()]
    for _ in range(TURNS):
        task()
        ends.append(time.process_time())
    return 1000 * statistics.median(after - before for before, after in pairwise(ends))


def measured(n: int, size: int) -> Row:
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

    return Row(
        masks=milliseconds(lambda: masks.mask(values, own, seeds)),
        own=milliseconds(lambda: masks.add_self_mask(values, seed)),
        digest=milliseconds(lambda: digest(values, CONTEXT)),
        challenge=milliseconds(lambda: challenge(CONTEXT, total, digests)),
        products=milliseconds(lambda: products(seed, values) + products(seed, total)),
        adding=milliseconds(add_all),
        keys=milliseconds(lambda: [pair.secret_with(public, CONTEXT) for _ in others]),
        split=milliseconds(lambda: shares.split(secret, names, enough)),
        combine=milliseconds(lambda: shares.combine(parts, names, enough)),
    )


def cells_of(n: int, size: int) -> list[object]:
    row = measured(n, size)
    numbers = [f"{number:,.1f}" for number in (*row[:5], row.together, *row[5:])]
    return [n, f"{size / 1e6:g}", *numbers[:6], TARGETS.get((n, size), ""), *numbers[6:]]


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
