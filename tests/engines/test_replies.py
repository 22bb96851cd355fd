"""Replies that are wrong, damaged, or large: they are left out or wait, and break nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics.cli import display
from fedtopics.engines import adder
from fedtopics.engines.messages import Announced, Message, Reply
from fedtopics.protocol.values import dumps
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named
from fedtopics.methods.core.replies import COUNT
from tests.helpers.federation import assert_same
from tests.helpers.programs import (
    RULES,
    Federation,
    Half,
    Hand,
    adding,
    federation,
    honest,
    rounds,
)
from tests.helpers.sums import add_up

CANARY = "quetzalcoatl"
TEMPLATE = {"x": (1,), "documents": COUNT}
SOON = replace(RULES, deadline=3.0)

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"x": np.array([np.nan])}, "its field 'x' holds NaN or infinite numbers"),
    "infinity": ({"x": np.array([-np.inf])}, "its field 'x' holds NaN or infinite numbers"),
    "shape": ({"x": np.zeros(2)}, "its field 'x' has the shape (2,) instead of (1,)"),
    "kind": ({"x": CANARY}, "its field 'x' has the shape None instead of (1,)"),
    "one field too many": (
        {"x": np.zeros(1), "y": 1},
        "the reply does not have the fields ['documents', 'x']",
    ),
    "one too few": ({}, "the reply does not have the fields ['documents', 'x']"),
    "other totals": ({"x": np.zeros(1), "digest": b"beef"}, "it has other totals than the others"),
}


def says(hand: Hand, digest: bytes = b"", **reply: Any) -> None:
    index = hand.index + 1
    known, signature = hand.node.sign(index)
    message = Reply(index, digest or known, signature, {"documents": 1} | reply)
    hand.node.say(message, index)


def three_times(
    f: Federation, say: Callable[[Hand], Any], reason: str, template: Any = TEMPLATE
) -> Hand:
    """Let b say something in three rounds, for which it is sent away."""
    work = f.lead(rounds(1, 2, 3, 4, before=lambda n: n < 4 and f.waits("b", n), template=template))
    honest(f, rounds(1, 2, 3, 4, template=template))
    b = f.hand("b")
    for turn in (1, 2, 3):
        b.begun(turn)
        say(b)
        if turn < 3:
            assert b.added()["missing"] == {"b": reason}
    why = f"3 bad replies, the last: {reason}"
    assert str(b.error()) == f"The server says: The server has excluded this client: {why}."
    found = work.result()
    assert [total for total, _ in found] == [101] * 4
    assert [report["clients"] for _, report in found] == [["a", "c"]] * 4
    assert [report["missing"] for _, report in found] == [{"b": reason}] * 3 + [
        {"b": f"excluded: {why}"}
    ]
    assert [note["reason"] for note in f.notes.of("bad reply")] == [reason] * 3
    assert f.notes.of("excluded") == [
        {"event": "excluded", "client": "b", "round": 3, "reason": why}
    ]
    assert CANARY not in json.dumps(f.notes)
    return b


@pytest.mark.parametrize("case", WRONG)
def test_wrong_replies_are_left_out_and_their_client_excluded_after_three(case: str) -> None:
    reply, fault = WRONG[case]
    with federation() as f:
        three_times(f, lambda b: says(b, **reply), f"sent a bad reply: {fault}")
        again = f.member("b", adding(1.0), rounds(1)).work.error()
        assert "says: This client was excluded: 3 bad replies, the last" in str(again)


def test_who_goes_far_counts_for_less_and_is_named() -> None:
    halves = {name: adding(1.0) for name in "abc"} | {"d": adding(-100.0)}
    with federation("abcd", replace(RULES, robust="clip")) as f:
        work = f.lead(rounds(1, 2))
        members = [f.member(name, half, rounds(1, 2)) for name, half in halves.items()]
        assert [total for total, _ in work.result()] == pytest.approx([3 - 0.9] * 2)
        for member in members:
            assert [total for total, _ in member.work.result()] == pytest.approx([3 - 0.9] * 2)
        (told,) = f.notes.of("clipped")
        assert told == {"event": "clipped", "client": "d", "round": 1, "times": 100.0}
        assert display.sentence(told) == (
            "round 1: d moved the model 100 times as far a document as the others, and counts for "
            "less"
        )


def test_a_raising_client_is_named_and_excluded_and_quotes_nothing() -> None:
    def fail(**_: Any) -> dict[str, Any]:
        raise ValueError(CANARY)

    numbers = (1, 2, 3, 4)
    with federation() as f:
        work = f.lead(rounds(*numbers, before=lambda n: n < 4 and f.waits("b", n)))
        honest(f, rounds(*numbers))
        b = f.member("b", Half({"first": fail}), rounds(*numbers))
        error = b.work.error()
        assert isinstance(error, FederationError)
        assert str(error) == (
            "The server says: The server has excluded this client: 3 bad replies, the last: "
            "it raised an unexpected error."
        )
        found = work.result()
        assert [report["missing"] for _, report in found[:3]] == [
            {"b": "it raised an unexpected error"}
        ] * 3
        assert [(note["round"], note["error"]) for note in b.notes.of("defect")] == [
            (n, "ValueError") for n in (1, 2, 3)
        ]
        assert [note["client"] for note in f.notes.of("excluded")] == ["b"]
        assert CANARY not in json.dumps([f.notes, b.notes]) + str(error)


ODD: dict[str, tuple[Any, dict[str, Any]]] = {
    "whole numbers": (TEMPLATE, {"x": np.zeros(1, np.int64)}),
    "too large to be added up": (TEMPLATE, {"x": np.zeros(1), "documents": 2**63 - 1}),
    "a number for a count": (TEMPLATE, {"x": np.zeros(1), "documents": 1e300}),
    "words for numbers": (
        {"x": (1,), "documents": COUNT},
        {"x": Named(["oak"], np.ones((1, 1), np.int64))},
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_no_reply_ends_the_run(case: str) -> None:
    """It is found before it is added up."""
    template, reply = ODD[case]
    with federation() as f:
        work = f.lead(rounds(1, template=template))
        honest(f, rounds(1, template=template))
        b = f.hand("b")
        b.begun(1)
        says(b, **reply)
        ((total, report),) = work.result()
        assert total == 101
        assert report["clients"] == ["a", "c"]


@pytest.mark.parametrize(
    "raw",
    [dumps([1, 2]), b"", b"\xff" * 9, dumps({"kind": "reply", "index": 2, "reply": {}}),
     dumps(Reply(2, b"", b"", {"x": np.zeros(9)}))[:-64]],
)  # fmt: skip
def test_replies_that_cannot_be_read(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its link ends, as if it were lost; it may come back."""
    monkeypatch.setattr(adder, "GRACE", 0.0)
    with federation() as f:

        def before(number: int) -> None:
            if number == 2:
                f.hub.away.clear()
                f.waits("b", 2)

        work = f.lead(rounds(1, 2, before=before))
        honest(f, rounds(1, 2))
        b = f.hand("b")
        b.begun(1)
        f.hub.away.add("b")
        (link,) = f.hub._ports["b"].ends
        f.hub._ports["b"].send_raw(link, raw)
        assert b.added()["missing"] == {"b": "its connection was lost"}
        b.begun(2)
        says(b, x=np.array([10.0]))
        (first, _), (second, _) = work.result()
        assert (first, second) == (101, 111)


# Memory

BIG = np.arange(20_000.0)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "IN_FLIGHT", 1000)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_large_replies_wait_for_room_in_any_order_of_arrival(order: str) -> None:
    """One after the other comes in, in the order of the names; the rest waits where it is."""
    with federation() as f:
        seen: list[tuple[str, Message]] = []
        f.hub.holds = lambda name, message: bool(seen.append((name, message)))  # type: ignore[func-returns-value]
        work = f.lead(lambda clients: clients.sum("first", round=1))
        halves = {n: Half({"first": lambda n=n, **_: {"x": BIG * ord(n), "documents": 1}})
                  for n in order}  # fmt: skip
        for name in order:
            f.member(name, halves[name], lambda clients: clients.sum("first", round=1))
        expected = add_up({n: {"x": BIG * ord(n), "documents": 1} for n in "abc"})
        assert_same(work.result(), expected)
        announced = [name for name, message in seen if isinstance(message, Announced)]
        assert sorted(announced) == ["a", "b", "c"]
        assert [name for name, message in seen if isinstance(message, Reply)] == ["a", "b", "c"]


@pytest.mark.usefixtures("small_memory")
def test_who_waits_for_room_gets_in_when_the_next_one_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)
    with federation() as f:
        work = f.lead(rounds(1))
        a = f.hand("a")
        for name in "bc":
            f.member(name, Half({"first": lambda **_: {"x": BIG, "documents": 1}}), rounds(1))
        a.begun(1)
        f.lost("a")
        ((total, report),) = work.result()
        assert total == 2 * BIG.sum()
        assert report["clients"] == ["b", "c"]


@pytest.mark.usefixtures("small_memory")
def test_who_waits_for_room_at_the_deadline_counts() -> None:
    """They have answered in time; only who has not is left out."""
    with federation(rules=SOON) as f:
        work = f.lead(rounds(1))
        for name in "bc":
            f.member(name, Half({"first": lambda **_: {"x": BIG, "documents": 1}}), rounds(1))
        f.hand("a").begun(1)
        ((total, report),) = work.result()
        assert total == 2 * BIG.sum()
        assert report["missing"] == {"a": "did not answer within 3 s"}
        assert report["attempts"] == 1
