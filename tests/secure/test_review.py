"""Members that show another's key as their own, and replies that who adds has made itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedtopics.methods.core.interfaces import Moment
from fedtopics.secure.field import Residues
from fedtopics.secure.fixed import Layout
from fedtopics.secure.masks import remove_self_mask
from fedtopics.secure.opening import own_seed
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, PREPARED
from fedtopics.secure.sum import SecureClients
from tests.helpers.masked import (
    NAMES,
    TEMPLATE,
    Client,
    Clients,
    assert_total,
    half_of,
    reply_of,
)
from tests.helpers.masked_adder import Adder, added, begun, stops
from tests.helpers.programs import POLICY, Member, door

THREE = ["a", "b", "c"]
LAYOUT = Layout.of(TEMPLATE, THREE)


@pytest.fixture
def of_three() -> dict[str, Client]:
    return {n: Client(door(n, half_of(n), None, POLICY), n, lambda content: b"") for n in THREE}


ASKED = {"context": b"here", "documents": 60}


def drawn(made: dict[str, Client]) -> Residues:
    """What leaves b, to which a has shown the key of c as its own."""
    keys = {name: made[name].key for name in THREE} | {"a": made["c"].key}
    asked = {
        "context": b"here", "seed": b"", "called": "drawn", "payload": {}, "known": False,
        "keys": keys, "layout": LAYOUT,
    }  # fmt: skip
    made["b"].call(COMMITTED, asked, Moment(1, 1, 1))
    sent: Residues = made["b"].call(ADDED, ASKED, Moment(1, 1, 2))["masked"]["values"]
    return sent


def whole(made: dict[str, Client]) -> Residues:
    """The same without the mask that b itself will tell; the key is that of one sum."""
    keys = {name: made[name].key for name in THREE}
    asked = {
        "context": b"here", "seed": b"", "called": "whole", "payload": {}, "keys": keys,
        "layout": LAYOUT, "number": 1,
    }  # fmt: skip
    prepared = {n: made[n].call(PREPARED, asked, Moment(1, 1, 1))["said"] for n in THREE}
    prepared["a"] = prepared["a"] | {"key": prepared["c"]["key"]}
    adds = {"context": b"here", "there": THREE, "prepared": prepared, "layout": LAYOUT}
    adds["documents"] = 60
    sent: Residues = made["b"].call(ADDED, adds, Moment(1, 1, 2))["masked"]["values"].copy()
    remove_self_mask(sent, own_seed(made["b"]._seeds.own))
    return sent


@pytest.mark.parametrize("asked", [drawn, whole])
def test_two_members_with_one_key(asked: object, of_three: dict[str, Client]) -> None:
    """Their masks with a third one, of which one is added and one subtracted, stay two."""
    sent = asked(of_three)  # type: ignore[operator]
    assert not np.array_equal(sent, LAYOUT.encode(reply_of("b"))[0])
    assert np.mean(sent == LAYOUT.encode(reply_of("b"))[0]) < 0.5


# Replies that all see


def without_b(told: Any) -> None:
    del told["replies"]["b"]


def with_another(told: Any) -> None:
    told["replies"]["f"] = told["replies"]["b"]


def no_replies(told: Any) -> None:
    told["replies"] = 5


@pytest.mark.parametrize("lie", [without_b, with_another, no_replies])
@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_other_replies_than_those_of_the_members(
    clients: Clients, function: str, step: int, lie: Callable[[Any], None]
) -> None:
    liar = begun(clients, function)
    for _ in range(step):
        liar.step(NAMES)
    liar.step(NAMES, added(lie))
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "other replies than those of its members", stages[: step + 1])


def test_another_reply_than_the_own(clients: Clients) -> None:
    """What sizes are announced decides which masks are drawn."""
    liar = Adder(clients)
    for name in NAMES:
        port, signed = clients.hub.port_of(name), clients.identities[name]
        answering = clients.wrap(name)(door(name, half_of(name), None, POLICY))
        todo = lambda engine: SecureClients(engine, {}).call("whole", TEMPLATE)  # noqa: E731
        clients.members[name] = Member(name, NAMES, port, answering, todo, signed)
    liar.start(*NAMES, round=0)

    def larger(told: Any) -> None:
        told["replies"]["b"]["documents"] += 1

    liar.step(NAMES, added(larger))
    stops(clients, liar, "there is another reply than its own", ["whole"], "b")


def test_two_rounds_that_differ_by_a_client(clients: Clients) -> None:
    """Who adds says that one is away in the second: if all are asked the same, that is its reply.

    Nothing can be seen in it; clients whose policies ask for all of them in a sum would not answer.
    """
    liar = begun(clients, "whole", rounds=2)
    for _ in range(4):
        liar.step(NAMES)
    liar.start("a", "b", "c", "d", turn=2)
    for _ in range(4):
        liar.step("abcd")
    (first, _), (second, _) = clients.members["a"].work.result()
    assert_total(first[0], NAMES)
    assert_total(second[0], "abcd")
    np.testing.assert_array_equal(first[0]["x"] - second[0]["x"], reply_of("e")["x"])
