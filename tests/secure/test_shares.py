"""Enough shares open a secret, fewer say nothing, damaged ones are refused; sealed messages."""

from __future__ import annotations

import itertools

import pytest

from fedtopics.errors import FederationError
from fedtopics.secure.shares import combine, seal, split, threshold, unseal

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
