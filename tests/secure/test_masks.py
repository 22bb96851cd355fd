"""Masks are gone in the sum of all; until then who adds sees the sum and nothing else."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

from fedtopics.secure.field import PRIME, Residues, add, add_stream
from fedtopics.secure.masks import mask

NAMES = ["B", "a", "é", "z", "日本"]  # in the order of their code points
SIZE = 257


def seed(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def seeds_of(own: str, names: list[str], turn: int = 0) -> dict[str, bytes]:
    return {name: seed(turn, *sorted([own, name])) for name in names if name != own}


def replies(names: list[str] = NAMES) -> dict[str, Residues]:
    rng = np.random.default_rng(len(names))
    return {name: rng.integers(0, PRIME, SIZE, np.uint64) for name in names}


def masked(values: dict[str, Residues], turn: int = 0) -> dict[str, Residues]:
    result = {}
    for name, reply in values.items():
        result[name] = reply.copy()
        mask(result[name], name, seeds_of(name, list(values), turn))
    return result


def total(values: dict[str, Residues]) -> Residues:
    result = np.zeros_like(next(iter(values.values())))
    for reply in values.values():
        add(result, reply)
    return result


@pytest.mark.parametrize("n", [2, 3, 5])
def test_masks_of_all_cancel_in_any_order(n: int) -> None:
    values = replies(NAMES[:n])
    expected = [
        sum(int(reply[place]) for reply in values.values()) % PRIME for place in range(SIZE)
    ]
    hidden = masked(values)
    for name in values:
        assert np.mean(hidden[name] == values[name]) < 0.01
    for order in itertools.permutations(hidden):
        assert total({name: hidden[name] for name in order}).tolist() == expected


def test_any_missing_member_leaves_noise_and_its_name_puts_it_right() -> None:
    values = replies()
    for lost in NAMES:
        left = {name: reply for name, reply in masked(values).items() if name != lost}
        expected = total({name: values[name] for name in left})
        found = total(left)
        assert not np.any(found == expected)
        mask(found, lost, seeds_of(lost, NAMES))
        assert np.array_equal(found, expected)


# Who adds and all but two members together: what is left of B's and é's masked replies is the
# stream of the one seed that they do not know.


def stripped(values: dict[str, Residues], turn: int) -> tuple[Residues, Residues]:
    """What colluders know of two honest replies, when all masks that they know are gone."""
    hidden = masked(values, turn)
    for name in ("B", "é"):
        for other in values.keys() - {"B", "é"}:
            add_stream(hidden[name], seeds_of(name, NAMES, turn)[other], -1 if other > name else 1)
    return hidden["B"], hidden["é"]


def pair_of(first: Residues, second: Residues) -> dict[str, Residues]:
    return replies() | {"B": first, "é": second}


def test_for_each_input_of_one_sum_a_mask_gives_the_same_view() -> None:
    """What is seen is (x + m, y - m): of x', y' of the same sum, it is what m + x - x' gives."""
    x, y = replies()["B"], replies()["é"]
    m = np.zeros(SIZE, np.uint64)
    add_stream(m, seeds_of("B", NAMES)["é"], 1)
    seen = stripped(pair_of(x, y), turn=0)
    for place in range(SIZE):
        assert int(seen[0][place]) == (int(x[place]) + int(m[place])) % PRIME
        assert int(seen[1][place]) == (int(y[place]) - int(m[place])) % PRIME


def evenness(values: Residues) -> float:
    """Chi-squared of the upper byte: 255 +- 23 of residues that are all as likely."""
    counts = np.bincount((values >> np.uint64(53)).astype(np.int64), minlength=256)
    expected = len(values) / 256
    return float(((counts - expected) ** 2 / expected).sum())


def test_two_inputs_of_one_sum_look_the_same() -> None:
    """Over many seeds, views of both are as even as chance; without the last mask they are not."""
    none, half, most = (np.full(SIZE, value, np.uint64) for value in (0, PRIME // 2, PRIME - 1))
    ones = np.ones(SIZE, np.uint64)
    for first, second in ((none, none), (half, half + ones), (ones, most)):  # each sums to zero
        views = [stripped(pair_of(first, second), turn) for turn in range(100)]
        for seen in (np.concatenate([view[k] for view in views]) for k in (0, 1)):
            assert 255 - 6 * 23 < evenness(seen) < 255 + 6 * 23
        opened = []
        for turn, (seen, _) in enumerate(views):
            add_stream(seen, seeds_of("B", NAMES, turn)["é"], -1)
            opened.append(seen)
        assert set(np.concatenate(opened).tolist()) == {int(first[0])}, "who has the seed sees it"
