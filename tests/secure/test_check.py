"""A total that is not the sum of what members are held to does not pass; what that leaves."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.secure.check import challenge, digest, products
from fedtopics.secure.field import PRIME, Residues, add

CONTEXT = b"study, run, exchange 7"
CHECKED_SIZE = 1000
NAMES = ["north", "south", "west"]


def product(seed: bytes, values: Residues) -> int:
    """The first one: by the second, tries are of no use."""
    return products(seed, values)[0][0]


@pytest.fixture
def masked() -> dict[str, Residues]:
    rng = np.random.default_rng(3)
    return {name: rng.integers(0, PRIME, CHECKED_SIZE, np.uint64) for name in NAMES}


@pytest.fixture
def total(masked: dict[str, Residues]) -> Residues:
    result = np.zeros(CHECKED_SIZE, np.uint64)
    for values in masked.values():
        add(result, values)
    return result


def digests(masked: dict[str, Residues]) -> dict[str, bytes]:
    return {name: digest(values, CONTEXT) for name, values in masked.items()}


def passes(masked: dict[str, Residues], total: Residues) -> bool:
    seed = challenge(CONTEXT, total, digests(masked))
    return sum(product(seed, values) for values in masked.values()) % PRIME == product(seed, total)


def test_the_sum_passes(masked: dict[str, Residues], total: Residues) -> None:
    assert passes(masked, total)
    assert passes(dict(reversed(masked.items())), total)


@pytest.mark.parametrize("change", [1, PRIME - 1, 1 << 32, 1 << 60])
@pytest.mark.parametrize("place", [0, 500, CHECKED_SIZE - 1])
def test_one_false_number(
    masked: dict[str, Residues], total: Residues, place: int, change: int
) -> None:
    total[place] = (int(total[place]) + change) % PRIME
    assert not passes(masked, total)


def test_a_member_that_adds_can_make_up_its_own_part(
    masked: dict[str, Residues], total: Residues
) -> None:
    """The limit of the check, as the page has it: its product is false, and its reply shows it."""
    false = total.copy()
    false[0] = (int(false[0]) + 12345) % PRIME
    seed = challenge(CONTEXT, false, digests(masked))
    honest = product(seed, masked["south"]) + product(seed, masked["west"])
    made_up = (product(seed, false) - honest) % PRIME  # of north, who adds
    assert (honest + made_up) % PRIME == product(seed, false)
    assert made_up != product(seed, masked["north"]), "seen by who is shown the reply of its digest"
