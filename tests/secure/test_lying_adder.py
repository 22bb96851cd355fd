"""Who adds masked sums and lies, to real clients that sign: what left them after the lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.decisions import ADDED as DECIDED
from fedtopics.engines.decisions import BEGUN
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import Reply
from fedtopics.engines.values import dumps, loads
from fedtopics.secure.field import PRIME
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED, PRODUCT
from tests.helpers.background import until
from tests.helpers.masked import NAMES, Clients, opened
from tests.helpers.masked_adder import Adder, added, begun, stops

# Totals


def by_one(place: Any) -> Callable[[Any], None]:
    def change(told: Any) -> None:
        values = told["total"]["masked"]["values"]
        values[place] = (values[place] + np.uint64(1)) % np.uint64(PRIME)

    return change


def with_another(told: Any) -> None:
    values = told["total"]["masked"]["values"]
    values[[0, 1]] = values[[1, 0]]


FALSE = {
    "the first number": by_one(0), "the last number": by_one(-1), "all": by_one(slice(None)),
    "two numbers": with_another,
}  # fmt: skip


@pytest.mark.parametrize("false", FALSE)
@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_a_false_total(clients: Clients, function: str, false: str) -> None:
    """All say their product, and stop: nothing is opened, and no round goes on."""
    liar = begun(clients, function)
    liar.step(NAMES)
    liar.step(NAMES, added(FALSE[false]))
    liar.step(NAMES)
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "a total is not the sum of what the clients sent", stages)


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_another_total_for_one(clients: Clients, function: str) -> None:
    liar = begun(clients, function)
    liar.step(NAMES)
    liar.step(NAMES, added(by_one(0), "b"))
    liar.step(NAMES)
    stages = [COMMITTED, ADDED, CHECKED] if function == "drawn" else [PREPARED, ADDED, AGREED]
    stops(clients, liar, "has signed other totals than those that came here", stages)


def test_a_false_total_with_products_that_would_fit(clients: Clients) -> None:
    """Who adds knows what all would answer; it cannot say it for them."""
    liar = begun(clients, "drawn")
    liar.step(NAMES)
    liar.step(NAMES, added(by_one(0)))

    def another(told: Any) -> None:
        told["replies"]["b"]["said"]["product"] = bytes(PRODUCT)

    liar.step(NAMES, added(another))
    stops(clients, liar, "its signature does not fit", [COMMITTED, ADDED, CHECKED])


# Who is in a sum


ONE = "the total of 'secure.add': it is no answer"  # a sum of one is none


@pytest.mark.parametrize(("counted", "said"), [("a", ONE), ("ab", "needs 3 clients")])
def test_a_sum_of_few(clients: Clients, counted: str, said: str) -> None:
    """All but a few are said to be lost when all have answered: the few tell nothing."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    liar.step(NAMES, add_up=counted)
    stops(clients, liar, said, [PREPARED, ADDED], counted)


def test_each_alone_in_a_sum(clients: Clients) -> None:
    """Each is told that it is alone in the sum: it would tell its own mask, and of all others
    a share of theirs of pairs."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, name))
    stops(clients, liar, ONE, [PREPARED, ADDED])


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_other_members_for_one_half(clients: Clients, function: str) -> None:
    """Some are told that all are there, the others that one is away: no reply leaves."""
    liar = Adder(clients)
    for name in NAMES:
        clients.start(name, function)
    liar.joined(*NAMES)
    liar.start("a", "b", "c", "d")
    liar.decide("e", BEGUN, liar.begun(1, round=1))
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, NAMES if name == "e" else "abcd"))
    stage = COMMITTED if function == "drawn" else PREPARED
    stops(clients, liar, "has signed other totals", [stage], "e")


def test_other_lists_of_who_was_lost(clients: Clients) -> None:
    """Some are told that one is in the sum, the others that it is not: nobody opens anything."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    replies = {name: liar.hear(name, Reply) for name in NAMES}
    for name in NAMES:
        liar.decide(name, DECIDED, liar.true(replies, NAMES if name in "ab" else "bcde"))
    liar.step(NAMES)
    stops(clients, liar, "has signed other totals", [PREPARED, ADDED, AGREED])


# Sums of the same documents


def test_who_is_lost_only_now(clients: Clients) -> None:
    """All masked replies are there, and one is said to be lost: it is left out, and stays hidden.
    When the sum was opened the round is to be worked again, with all: nothing is opened of that."""
    liar = begun(clients, "whole")
    liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")
    liar.step("abcd", added(again))
    liar.start(*NAMES, attempt=2)
    for _ in range(3):
        liar.step(NAMES)
    once = [PREPARED, ADDED, AGREED, OPENED, PREPARED, ADDED, AGREED]
    stops(clients, liar, "the difference would tell what one of them sent", once, "abcd")
    told = opened(clients.everything)
    contexts = [asked["context"] for stage, asked, _ in clients.doors["a"][0].left]
    assert told == {
        **{(contexts[0], name): {"own"} for name in "abcd"},
        (contexts[0], "e"): {"pairs"},
        (contexts[-1], "e"): {"own"},  # of e alone, which the masks of pairs hide
    }


@pytest.mark.parametrize("forgets", [False, True])
def test_who_is_lost_only_before_a_restart(clients: Clients, tmp_path: Path, forgets: bool) -> None:
    """The same with another process of each client, which has what was opened from its ledger;
    also if it is told that the first attempt ended before."""
    liar = begun(clients, "whole", folder=tmp_path)
    liar.step(NAMES)
    liar.step(NAMES, add_up="abcd")
    liar.step("abcd")
    liar.step("abcd", added(again))
    for name in NAMES:
        clients.hub.kill(name)
    until(lambda: not any(member.work.running for member in clients.members.values()))
    for name in NAMES:
        if forgets:
            agreed = loads(liar.logs[name].entry(4).content)
            again(agreed)
            liar.logs[name].truncate(3)
            liar.logs[name].append([Entry(DECIDED, dumps(agreed))])
        clients.start(name, "whole", folder=tmp_path)
    liar.start(*NAMES, attempt=2)
    for _ in range(3):
        liar.step(NAMES)
    stages = [PREPARED, ADDED, AGREED, OPENED, PREPARED, ADDED, AGREED]
    stops(clients, liar, "the difference would tell what one of them sent", stages, "abcd")


def again(told: Any) -> None:
    del told["replies"]
    told["again"] = True
