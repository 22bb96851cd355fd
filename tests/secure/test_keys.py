"""Who has which secret, and what people compare."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedtopics.errors import FederationError
from fedtopics.secure.field import (
    BLOCK,
    PRIME,
    _add,
    _dot,
    _subtract,
    add_stream,
    check_residues,
    dot_stream,
)
from fedtopics.secure.keys import KeyPair, framed, roster_digest
from fedtopics.secure.shares import combine, seal, split, threshold, unseal

NORTH, SOUTH, WEST = (KeyPair(bytes([number]) * 32) for number in (1, 2, 3))
P = 2**255 - 19
LOW_ORDER = [
    *(number.to_bytes(32, "little") for number in (0, 1, P - 1, P, P + 1)),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.mark.parametrize("point", LOW_ORDER, ids=lambda point: point.hex()[:8])
def test_points_whose_secret_everybody_knows(point: bytes) -> None:
    with pytest.raises(FederationError, match="no key of X25519"):
        NORTH.secret_with(point, b"")


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_another_length(length: int) -> None:
    with pytest.raises(FederationError, match="no key of X25519"):
        NORTH.secret_with(b"\x09" * length, b"")


def test_a_key_is_not_shown() -> None:
    secret = bytes(range(100, 132))
    pair = KeyPair(secret)
    shown = f"{pair!r} {pair} {vars(pair)}"
    assert secret.hex() not in shown and repr(secret) not in shown


def test_framed_parts_are_told_apart() -> None:
    """No other parts give the same bytes, however they are cut."""
    text = b"\0\0\0\0\0\0\0\1ab"
    cuts = {
        framed(*(text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])))
        for k in range(4)
        for places in itertools.combinations_with_replacement(range(len(text) + 1), k)
    }
    assert len(cuts) == sum(
        1 for k in range(4) for _ in itertools.combinations_with_replacement(range(11), k)
    )


def test_rosters() -> None:
    roster = {"north": NORTH.public, "south": SOUTH.public}
    said = roster_digest(roster)
    assert [len(group) for group in said.split(" ")] == [5] * 8
    assert roster_digest(dict(reversed(roster.items()))) == said
    others = [
        {"north": SOUTH.public, "south": NORTH.public},
        {"north": NORTH.public},
        roster | {"west": WEST.public},
        {"nort": b"h" + NORTH.public, "south": SOUTH.public},
        {},
    ]
    assert len({said, *map(roster_digest, others)}) == 6


# Enough shares open a secret, fewer say nothing, damaged ones are refused; sealed messages


NAMES = ["west", "north", "ost", "süd", "Mitte"]
SECRET = bytes(range(16))
KEY, CONTEXT = bytes(range(32)), b"study, run, exchange"


def some(shares: dict[str, bytes], names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: shares[name] for name in names}


@pytest.mark.parametrize(("n", "least"), [(3, 2), (4, 3), (5, 3), (6, 4), (100, 51)])
def test_threshold(n: int, least: int) -> None:
    """Two groups that could each open a secret have a member in common."""
    assert threshold(n) == least and 2 * least > n


def test_one_member_and_two_lists_of_who_was_lost_open_both_secrets() -> None:
    """The limit of the threshold, as the page has it: honest members gave one share each."""
    key, own = split(SECRET, NAMES, threshold(5)), split(SECRET[::-1], NAMES, threshold(5))
    first, second, liar = ("west", "north"), ("ost", "süd"), ("Mitte",)
    assert combine(some(key, first + liar), NAMES, 3) == SECRET
    assert combine(some(own, second + liar), NAMES, 3) == SECRET[::-1]
    with pytest.raises(FederationError, match="2 of 5 participants"):
        combine(some(own, second), NAMES, 3)


@pytest.mark.parametrize("k", [0, 1, 2])
def test_too_few(k: int) -> None:
    shares = split(SECRET, NAMES, 3)
    for names in itertools.combinations(NAMES, k):
        with pytest.raises(FederationError, match=f"{k} of 5 participants gave .* and 3 are"):
            combine(some(shares, names), NAMES, 3)
    strangers = {"nobody": shares["west"], "no one": shares["ost"]}
    with pytest.raises(FederationError, match="2 of 5 participants"):
        combine(some(shares, ("west", "ost")) | strangers, NAMES, 3)


def test_a_changed_byte_of_a_share() -> None:
    shares = split(SECRET, NAMES[:3], 3)
    for name, place in itertools.product(shares, range(48)):
        damaged = bytearray(shares[name])
        damaged[place] ^= 1
        with pytest.raises(FederationError, match="do not fit together"):
            combine(shares | {name: bytes(damaged)}, NAMES[:3], 3)


@pytest.mark.parametrize("length", [0, 15, 16, 47, 49])
def test_a_share_of_another_length(length: int) -> None:
    shares = split(SECRET, NAMES[:3], 2)
    short = {name: (share + b"\0")[:length] for name, share in shares.items()}
    with pytest.raises(FederationError, match="do not fit together"):
        combine(short, NAMES[:3], 2)


def test_shares_of_two_splits_and_of_two_secrets() -> None:
    """After a restart a secret is split anew: what is left of the first goes with nothing."""
    first, again = split(SECRET, NAMES, 3), split(SECRET, NAMES, 3)
    other = split(bytes(16), NAMES, 3)
    for mixed in (again, other):
        with pytest.raises(FederationError, match="do not fit together"):
            combine(first | some(mixed, (min(NAMES),)), NAMES, 3)
    with pytest.raises(FederationError, match="do not fit together"):
        swapped = first | {"west": first["ost"], "ost": first["west"]}
        combine(some(swapped, ("west", "ost", "süd")), NAMES, 3)


def test_every_flipped_byte_is_refused() -> None:
    sealed = seal(b"a share of somebody", KEY, CONTEXT)
    for place, bit in itertools.product(range(len(sealed)), (1, 128)):
        damaged = bytearray(sealed)
        damaged[place] ^= bit
        with pytest.raises(FederationError, match="cannot be opened"):
            unseal(bytes(damaged), KEY, CONTEXT)


def test_other_keys_contexts_and_lengths() -> None:
    sealed = seal(b"a share", KEY, CONTEXT)
    for key, context in ((bytes(32), CONTEXT), (KEY, b""), (KEY, CONTEXT + b"!")):
        with pytest.raises(FederationError, match="cannot be opened"):
            unseal(sealed, key, context)
    for length in range(len(sealed)):
        with pytest.raises(FederationError, match="cannot be opened"):
            unseal(sealed[:length], KEY, CONTEXT)
    with pytest.raises(FederationError, match="cannot be opened"):
        unseal(sealed + b"\0", KEY, CONTEXT)


# Arithmetic modulo 2^61 - 1 is that of Python's integers, also at the ends of its range


SEED = bytes(range(32))
MOST = 2**64 - 1
EXTREMES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**60, PRIME - 1]
WORDS = [*EXTREMES, PRIME, PRIME + 1, 2**63, 7 * 2**61, MOST - 7, MOST]  # of a keystream: any


def stream(size: int) -> list[int]:
    """The stream as one addition to zeros gives it; test_vectors.py has it by hand."""
    zeros = np.zeros(size, np.uint64)
    add_stream(zeros, SEED, 1)
    return [int(value) for value in zeros]


@pytest.mark.parametrize("size", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_streams_against_integers(size: int) -> None:
    values = np.random.default_rng(size).integers(0, PRIME, size, np.uint64)
    added, subtracted = values.copy(), values.copy()
    add_stream(added, SEED, 1)
    add_stream(subtracted, SEED, -1)
    pairs = [(int(a), b) for a, b in zip(values, stream(size), strict=True)]
    assert added.tolist() == [(a + b) % PRIME for a, b in pairs]
    assert subtracted.tolist() == [(a - b) % PRIME for a, b in pairs]
    assert dot_stream(SEED, values) == [sum(a * b for a, b in pairs) % PRIME]


def test_extremes() -> None:
    pairs = [(a, word) for a in EXTREMES for word in WORDS]
    totals = np.array([a for a, _ in pairs], np.uint64)
    words = np.array([word for _, word in pairs], np.uint64)
    for kernel, sign in ((_add, 1), (_subtract, -1)):
        changed = totals.copy()
        kernel(changed, words)
        assert changed.tolist() == [(a + sign * word) % PRIME for a, word in pairs]


def test_a_product_does_not_overflow() -> None:
    """Largest halves everywhere: of the factors, and of what is added up."""
    for a in EXTREMES:
        for word in WORDS:
            factors = np.full(BLOCK, a, np.uint64), np.full(BLOCK, word, np.uint64)
            sums = low, high, inner_low, inner_high = [int(found) for found in _dot(*factors)]
            found = low + (high << 32) + ((inner_low + (inner_high << 32)) << 31)
            assert found % PRIME == BLOCK * a * word % PRIME
            assert max(sums) <= BLOCK * (2**32 - 1), "and 2^32 of them fit into 64 bits"


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, PRIME], np.uint64),
        np.array([0, MOST], np.uint64),
        np.zeros(3, np.uint64),
        np.zeros((2, 1), np.uint64),
        np.zeros(2, np.int64),
        [0, 0],
        None,
    ],
)
def test_what_are_no_residues(values: object) -> None:
    with pytest.raises(FederationError, match="not 2 numbers modulo"):
        check_residues(values, 2)


def test_residues() -> None:
    values = np.array([0, PRIME - 1], np.uint64)
    assert check_residues(values, 2) is values
