"""Members that show another's key as their own, and replies that who adds has made itself."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.methods.base import Moment
from fedtopics.secure.field import Residues
from fedtopics.secure.fixed import Layout
from fedtopics.secure.masks import remove_self_mask
from fedtopics.secure.opening import own_seed
from fedtopics.secure.said import ADDED, COMMITTED, PREPARED
from tests.helpers.masked import TEMPLATE, Client, half_of, reply_of
from tests.helpers.programs import POLICY, door

THREE = ["a", "b", "c"]
LAYOUT = Layout.of(TEMPLATE, THREE)


@pytest.fixture
def of_three() -> dict[str, Client]:
    return {n: Client(door(n, half_of(n), None, POLICY), n, lambda content: b"") for n in THREE}


def drawn(made: dict[str, Client]) -> Residues:
    """What leaves b, to which a has shown the key of c as its own."""
    keys = {name: made[name].key for name in THREE} | {"a": made["c"].key}
    asked = {
        "context": b"here", "seed": b"", "called": "drawn", "payload": {}, "known": False,
        "members": THREE, "keys": keys, "layout": LAYOUT,
    }  # fmt: skip
    made["b"].call(COMMITTED, asked, Moment(1, 1, 1))
    sent: Residues = made["b"].call(ADDED, {"context": b"here"}, Moment(1, 1, 2))["masked"]["values"]
    return sent


def whole(made: dict[str, Client]) -> Residues:
    """The same without the mask that b itself will tell; the key is that of one sum."""
    keys = {name: made[name].key for name in THREE}
    asked = {
        "context": b"here", "seed": b"", "called": "whole", "payload": {}, "members": THREE,
        "keys": keys, "layout": LAYOUT,
    }  # fmt: skip
    prepared = {n: made[n].call(PREPARED, asked, Moment(1, 1, 1))["said"] for n in THREE}
    prepared["a"] = prepared["a"] | {"key": prepared["c"]["key"]}
    adds = {"context": b"here", "there": THREE, "prepared": prepared, "layout": LAYOUT}
    sent: Residues = made["b"].call(ADDED, adds, Moment(1, 1, 2))["masked"]["values"].copy()
    remove_self_mask(sent, own_seed(made["b"]._seeds.own))
    return sent


@pytest.mark.parametrize("asked", [drawn, whole])
def test_two_members_with_one_key(asked: object, of_three: dict[str, Client]) -> None:
    """Their masks with a third one, of which one is added and one subtracted, stay two."""
    sent = asked(of_three)  # type: ignore[operator]
    assert not np.array_equal(sent, LAYOUT.encode(reply_of("b"))[0])
    assert np.mean(sent == LAYOUT.encode(reply_of("b"))[0]) < 0.5
