"""Clients that lie or say nothing in masked sums of an honest adder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Payload
from fedtopics.secure.field import PRIME
from fedtopics.secure.keys import KeyPair
from fedtopics.secure.said import (
    ADDED,
    AGREED,
    CHECKED,
    COMMITTED,
    OPENED,
    PREPARED,
    RECOVERED,
)
from tests.helpers.background import KilledError
from tests.helpers.masked import ALL, NAMES, Client, assert_total, masked, sends_noise
from tests.helpers.masked_rounds import Rounds

pytestmark = pytest.mark.usefixtures("no_grace")

OTHER = KeyPair(bytes(31) + b"1").public
Odd = Mapping[str, Mapping[str, Any]]


def says(stage: str, **parts: Callable[[bytes], bytes]) -> dict[str, Any]:
    """A client whose signed answer to a stage has other parts."""

    def change(client: Client, reply: Payload) -> Payload:
        said = reply["said"]
        return {"said": client.signed(stage, said | {n: of(said[n]) for n, of in parts.items()})}

    return {"changes": {stage: change}}


def zeros(part: bytes) -> bytes:
    return bytes(len(part))


def flipped(part: bytes) -> bytes:
    """Other values of shares, with the digest that they should have."""
    return bytes([part[0] ^ 1]) + part[1:]


def sends_another(client: Client, reply: Payload) -> Payload:
    values = reply["masked"]["values"].copy()
    values[0] = (values[0] + np.uint64(1)) % np.uint64(PRIME)
    return {"masked": reply["masked"] | {"values": values}}


def falls_silent(client: Client, reply: Payload) -> Payload:
    client.hub.deaf.add(client.name)
    return reply


def sums(function: str, odd: Odd, rules: Any = ALL) -> tuple[Any, Any, Any]:
    """The sum of a round, what is said of who is not in it, and what happened."""
    with masked(NAMES, function, odd=odd, rules=rules) as (f, _, _):
        ((totals, report),) = f.lead(f.program).result()
        return totals[0], report["missing"], f.notes


# Without consequence for others


LEFT_OUT = {
    "digest": ("drawn", says(COMMITTED, digest=lambda part: part[:31]), "is no answer"),
    "reply": ("drawn", {"changes": {ADDED: sends_another}}, "not what the client committed to"),
    "product": ("drawn", says(CHECKED, product=zeros), "its product is not that of what it sent"),
    "key": ("whole", says(PREPARED, key=zeros), "its key is no key of X25519"),
    "sealed": ("whole", says(PREPARED, shares=lambda part: part[1:]), "is no answer"),
    "signed reply": ("whole", {"changes": {ADDED: sends_another}}, "what the client has signed"),
    "signed product": ("whole", says(AGREED, product=zeros), "its product is not that"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LEFT_OUT)
def test_who_is_left_out(lie: str) -> None:
    """What it says is a bad reply, and the sum is that of the others."""
    function, odd, why = LEFT_OUT[lie]
    total, missing, notes = sums(function, {"b": odd})
    assert_total(total, "acde")
    assert missing.keys() == {"b"}
    assert why in missing["b"]
    assert why in notes.of("bad reply")[0]["reason"]


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "one"])
def test_a_key_that_is_none(key: bytes) -> None:
    """All who had to use it would stop: who shows it is refused."""
    total, missing, notes = sums("drawn", {"b": {"key": key}}, replace(ALL, gather=2.0))
    assert_total(total, "acde")
    assert missing.keys() == {"b"}
    assert "key for its masks that is no key of X25519" in str(notes)


def test_another_own_seed() -> None:
    """Others have shares of the right one."""
    total, missing, _ = sums("whole", {"b": says(OPENED, own=zeros)})
    assert_total(total, NAMES)
    assert missing == {}


@pytest.mark.parametrize("false", [zeros, flipped])
@pytest.mark.parametrize("who", NAMES[:-1])
def test_a_false_share_of_who_is_lost(who: str, false: Callable[[bytes], bytes]) -> None:
    odd = {"e": {"dies": ADDED}, who: says(OPENED, shares=false)}
    total, _, _ = sums("whole", odd)
    assert_total(total, "abcd")


@pytest.mark.parametrize("false", [zeros, flipped])
def test_two_false_shares_of_five(false: Callable[[bytes], bytes]) -> None:
    """Wherever they are: here no three clients beside each other say the truth."""
    odd = {n: says(RECOVERED, shares=false) for n in "ac"} | {"b": says(OPENED, own=zeros)}
    total, _, _ = sums("whole", odd)
    assert_total(total, NAMES)


@pytest.mark.parametrize(
    ("function", "stage"),
    [("drawn", ADDED), ("drawn", CHECKED), ("whole", ADDED), ("whole", OPENED)],
)
def test_who_says_nothing(function: str, stage: str) -> None:
    odd = {"b": {"changes": {stage: falls_silent}}}
    total, missing, _ = sums(function, odd, replace(ALL, deadline=3.0))
    assert_total(total, NAMES if stage == OPENED else "acde")
    assert missing == {"b": "did not answer within 3 s"}


# What nobody can be blamed for


def ends(function: str, odd: Odd) -> tuple[str, Any]:
    with masked(NAMES, function, odd=odd) as (f, _, members):
        error = f.lead(f.program).error()
        assert isinstance(error, FederationError)
        for name in NAMES:
            assert isinstance(members[name].work.error(), (FederationError, KilledError))
        return str(error), f.notes


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_noise(function: str) -> None:
    """A total that cannot be is worked again; then the study ends with what is known."""
    stage = COMMITTED if function == "drawn" else ADDED
    said, notes = ends(function, {"b": {"changes": {stage: sends_noise}}})
    assert f"the sum of '{function}' was void 3 times (its field " in said
    assert "A client sends what is false, and masks hide which; look into" in said
    assert len(notes.of("voided")) == 3


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_noise_once(function: str) -> None:
    """The round is worked again with all clients."""
    rounds = Rounds(NAMES, {"b": lambda attempt: attempt == 1})
    (total,), report = rounds.round(function)
    assert_total(total, NAMES)
    assert "missing" not in report
    assert len(rounds.notes.of("voided")) == 1
    assert rounds.over("a") == ({} if function == "drawn" else {"whole 1": NAMES})


def test_an_own_mask_that_nobody_can_open() -> None:
    odd = says(OPENED, own=zeros)
    odd["changes"] |= says(PREPARED, shares=zeros)["changes"]
    said, _ = ends("whole", {"b": odd})
    assert "the sum of 'whole' was void 3 times (the masks of 'b' cannot be opened" in said


def test_too_many_false_shares() -> None:
    """If who is lost stays away, its masks are in no second sum."""
    odd = {n: says(OPENED, shares=zeros) for n in "ab"} | {"e": {"dies": ADDED}}
    total, missing, _ = sums("whole", odd)
    assert_total(total, "abcd")
    assert missing.keys() == {"e"}


@pytest.mark.parametrize("lie", [{"key": lambda _: OTHER}, {"shares": zeros}])
def test_masks_of_who_is_lost_that_nobody_can_take_away(
    lie: Mapping[str, Callable[[bytes], bytes]],
) -> None:
    """The sum is void, and asked again over the same clients."""
    total, missing, _ = sums("whole", {"b": says(PREPARED, **lie) | {"dies": ADDED}})
    assert_total(total, "acde")
    assert missing.keys() == {"b"}
