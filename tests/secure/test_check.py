"""A total that is not the sum of what members are held to does not pass; what that leaves."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.secure.check import challenge, digest, products
from fedtopics.secure.field import PRIME, Residues, add

CONTEXT = b"study, run, exchange 7"
SIZE = 1000
NAMES = ["north", "south", "west"]


def product(seed: bytes, values: Residues) -> int:
    """The first one: by the second, tries are of no use."""
    return products(seed, values)[0][0]


@pytest.fixture
def masked() -> dict[str, Residues]:
    rng = np.random.default_rng(3)
    return {name: rng.integers(0, PRIME, SIZE, np.uint64) for name in NAMES}


@pytest.fixture
def total(masked: dict[str, Residues]) -> Residues:
    result = np.zeros(SIZE, np.uint64)
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
@pytest.mark.parametrize("place", [0, 500, SIZE - 1])
def test_one_false_number(
    masked: dict[str, Residues], total: Residues, place: int, change: int
) -> None:
    total[place] = (int(total[place]) + change) % PRIME
    assert not passes(masked, total)


def test_false_totals(masked: dict[str, Residues], total: Residues) -> None:
    swapped, opposite, everywhere, without, twice = (total.copy() for _ in range(5))
    swapped[[3, 4]] = swapped[[4, 3]]
    add(opposite[:1], np.array([1], np.uint64))
    add(opposite[1:2], np.array([PRIME - 1], np.uint64))  # what a plain sum of numbers would miss
    add(everywhere, np.ones(SIZE, np.uint64))
    add(without, np.array([-int(v) % PRIME for v in masked["west"]], np.uint64))
    add(twice, masked["west"])
    zeros = np.zeros(SIZE, np.uint64)
    for false in (swapped, opposite, everywhere, without, twice, zeros):
        assert not passes(masked, false)


def test_a_false_product(masked: dict[str, Residues], total: Residues) -> None:
    seed = challenge(CONTEXT, total, digests(masked))
    products = [product(seed, values) for values in masked.values()]
    assert (sum(products) + 1) % PRIME != product(seed, total)


def test_what_a_challenge_follows_from(masked: dict[str, Residues], total: Residues) -> None:
    known = digests(masked)
    seed = challenge(CONTEXT, total, known)
    assert challenge(CONTEXT, total, dict(reversed(known.items()))) == seed
    other = total.copy()
    other[SIZE - 1] ^= np.uint64(1)
    found = {
        seed,
        challenge(CONTEXT + b"!", total, known),
        challenge(CONTEXT, other, known),
        challenge(CONTEXT, total[:-1], known),
        challenge(CONTEXT, total, known | {"west": bytes(32)}),
        challenge(CONTEXT, total, known | {"east": bytes(32)}),
        challenge(CONTEXT, total, {"north": known["south"], "south": known["north"]}),
        challenge(CONTEXT, total, {}),
    }
    assert len(found) == 8


def test_what_a_digest_follows_from(masked: dict[str, Residues]) -> None:
    values = masked["north"]
    other = values.copy()
    other[0] ^= np.uint64(1)
    found = {
        digest(values, CONTEXT),
        digest(values, CONTEXT + b"!"),
        digest(other, CONTEXT),
        digest(values[:-1], CONTEXT),
        digest(np.zeros(0, np.uint64), CONTEXT),
    }
    assert len(found) == 5


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
