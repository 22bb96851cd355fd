"""Who has which secret, and what people compare."""

from __future__ import annotations

import itertools

import pytest

from fedtopics.errors import FederationError
from fedtopics.secure.keys import KeyPair, framed, roster_digest

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
