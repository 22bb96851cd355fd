"""Large replies are announced and granted; others are refused when their size is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.engines.grpc import frames, transport
from fedtopics.engines.grpc.limits import KEPT, SMALL, Limits
from fedtopics.engines.messages import Announced, Granted, Message, Reply
from fedtopics.engines.values import pack, size_of
from tests.helpers.background import until
from tests.helpers.programs import Federation, Half, Hand, federation, honest, rounds
from tests.helpers.sockets import Sockets

ALLOWED = 3000  # bytes
BIG = np.arange(200_000.0)
REASON = f"more than {ALLOWED // 3 + SMALL:,}, and was not announced"


@contextmanager
def studied(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Federation, list[int]]]:
    """A study over a port, with few bytes for replies; also the sizes of bodies that are read."""
    monkeypatch.setattr(adder, "IN_FLIGHT", ALLOWED)
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.05)
    read: list[int] = []
    body = frames.Stream.body

    async def reading(self: frames.Stream, announced: Any) -> memoryview:
        found = await body(self, announced)
        read.append(len(found))
        return found

    hub: Any = Sockets()
    with federation(hub=hub) as f:
        monkeypatch.setattr(frames.Stream, "body", reading)
        yield f, read


def reply(hand: Hand, value: Any) -> Reply:
    digest, signature = hand.node.sign(hand.index + 1)
    return Reply(hand.index + 1, digest, signature, {"x": value, "documents": 1})


def says(hand: Hand, message: Message) -> None:
    hand.node.say(message, hand.index + 1)


def test_who_does_not_announce_is_refused_and_excluded_after_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No byte of it is read; the others go on, and it may come back until then."""
    with studied(monkeypatch) as (f, read):
        numbers = (1, 2, 3, 4)
        work = f.lead(rounds(*numbers, before=lambda n: n < 4 and f.waits("b", n)))
        honest(f, rounds(*numbers))
        b = f.hand("b")
        for turn in (1, 2, 3):
            b.begun(turn)
            says(b, reply(b, BIG))
            if turn < 3:
                assert REASON in b.added()["missing"]["b"]
        assert "3 bad replies" in str(b.error())
        assert [total for total, _ in work.result()] == [101] * 4
        bad = f.notes.of("bad reply")
        assert [(each["client"], each["round"]) for each in bad] == [("b", n) for n in (1, 2, 3)]
        assert all(REASON in each["reason"] for each in bad)
        assert [each["client"] for each in f.notes.of("excluded")] == ["b"]
        assert max(read) < SMALL


def test_who_announces_less_than_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    with studied(monkeypatch) as (f, read):
        work = f.lead(rounds(1))
        honest(f, rounds(1))
        b = f.hand("b")
        b.begun(1)
        monkeypatch.setattr(b.node, "_heard", lambda name, what: heard.append(what))
        heard: list[Message] = []
        says(b, Announced(b.index + 1, 2 * ALLOWED))
        until(lambda: any(isinstance(what, Granted) for what in heard))
        says(b, reply(b, BIG))
        ((total, report),) = work.result()
        assert total == 101
        assert f"more than {2 * ALLOWED + SMALL:,}, and was" in report["missing"]["b"]
        assert max(read) < SMALL


@pytest.mark.parametrize("kind", ["waiting", "announced", "failure", "accept", "replicated"])
def test_no_other_message_is_large(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that says it is of another kind, no byte is read either."""
    with studied(monkeypatch) as (f, read):
        work = f.lead(rounds(1))
        honest(f, rounds(1))
        b = f.hand("b")
        b.begun(1)
        monkeypatch.setattr(Reply, "kind", kind)
        with b.node._changed:
            b.node.send("@server", reply(b, BIG))
        until(lambda: f.notes.of("bad reply"))
        monkeypatch.undo()
        assert work.result()[0][0] == 101
        assert max(read, default=0) < SMALL


def test_who_is_cut_off_announces_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over its next connection nothing is granted yet, and whoever adds then may be another."""
    monkeypatch.setattr(adder, "IN_FLIGHT", ALLOWED)
    with federation() as f:
        said: list[str] = []

        def holds(name: str, message: Message) -> bool:
            if name != "b" or not isinstance(message, (Announced, Reply)):
                return False
            said.append(message.kind)
            return said == ["announced", "reply"]

        f.hub.holds = holds
        work = f.lead(rounds(1))
        for name in "abc":
            f.member(name, Half({"first": lambda **_: {"x": BIG, "documents": 1}}), rounds(1))
        until(lambda: f.hub.held)
        f.hub.cut("b")  # with its reply
        assert work.result()[0][0] == 3 * BIG.sum()
        assert said == ["announced", "reply"] * 2


def test_what_is_announced_does_not_depend_on_zero_rows() -> None:
    full, empty = ({"x": x, "documents": 1} for x in (np.ones((300, 300)), np.zeros((300, 300))))
    assert size_of(empty) == size_of(full) == pack(full).size > 10 * pack(empty).size


def test_limits() -> None:
    limits = Limits(10**6, {"offer": 10**9, "reply": 5000})
    assert [limits.of(kind, "1") for kind in ("offer", "reply", "done")] == [
        10**6, 5000 + SMALL, SMALL,
    ]  # fmt: skip
    limits.allow(7000, "")
    limits.allow(6000, "")  # of before, some may still be on their way
    limits.allow(9000, "1")
    assert [limits.of("reply", link) for link in "12"] == [9000 + SMALL, 7000 + SMALL]
    limits.came("waiting", "1")
    assert limits.of("reply", "1") == 9000 + SMALL
    limits.came("reply", "1")
    assert limits.of("reply", "1") == 7000 + SMALL
    for _ in range(KEPT):
        limits.allow(10, "")
    assert limits.of("done", "2") == 10 + SMALL
    assert Limits(10**6, None).of("done", "1") == 10**6
