"""Rounds over gRPC: who counts when clients are lost, late, wrong, doubled or restarted."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc import admission, client, roster
from fedtopics.engines.grpc.frames import CHUNK, SERVICE, chunks
from fedtopics.engines.grpc.members import Budget
from fedtopics.engines.local import LocalClients
from fedtopics.engines.values import pack, plain_value
from fedtopics.errors import FederationError, PolicyError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.base import EVERYONE, Draw
from fedtopics.methods.events import StatusChange
from fedtopics.methods.plan import Site
from tests.helpers.federation import assert_same, assert_same_bits, study, subjects
from tests.helpers.grpc_federation import (
    HOST,
    PATIENCE,
    PROPOSAL,
    RULES,
    VERSIONS,
    Background,
    Federated,
    Half,
    Member,
    Notes,
    Raw,
    Relay,
    door,
    federation,
    until,
)
from tests.helpers.sums import add_up

SOON = replace(RULES, deadline=1.0)
CANARY = "quetzalcoatl"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(client, "LONGEST_PAUSE", 0.2)


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose connection breaks is given up at once."""
    monkeypatch.setattr(roster, "GRACE", 0.0)


def adding(x: float) -> Half:
    """A client whose first function gives x, whose second gives x times what is shared."""
    return Half(
        {
            "first": lambda **_: {"x": np.array([x]), "documents": 1},
            "second": lambda shared, **_: {"x": shared * x, "documents": 1},
        }
    )


def one_exchange(f: Federated, number: int = 1) -> tuple[float, dict[str, Any]]:
    """Work a round of one exchange; return its sum and report."""
    total, report = f.clients.round(number, lambda: f.clients.sum("first", round=number)["x"])
    return float(np.sum(total)), report


def two_exchanges(f: Federated, number: int = 1) -> Background:
    """Work a round in which the second exchange depends on the first."""

    def work() -> Any:
        first = f.clients.sum("first", round=number)["x"]
        return f.clients.sum("second", shared=first, round=number)["x"]

    return f.background(lambda: f.clients.round(number, work))


def refusal_of(f: Federated, name: str, **hello: Any) -> str:
    raw = Raw(f.port, name)
    f.ends.append(raw.leave)
    return raw.hello(**hello).refusal.reason


# Lost clients


@pytest.mark.usefixtures("no_grace")
def test_a_round_goes_on_without_who_is_lost_in_its_only_exchange() -> None:
    with federation() as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f))
        a.answer(x=1.0)
        b.call()
        b.leave()
        c.answer(x=100.0)
        total, report = work.result()
        assert total == 101
        assert report["clients"] == ["a", "c"]
        assert report["missing"] == {"b": "its connection was lost"}
        assert report["attempts"] == 1
        assert f.notes.of("repeated") == []


@pytest.mark.usefixtures("no_grace")
def test_a_round_is_repeated_without_who_is_lost_between_two_exchanges() -> None:
    """The first sum, with the lost client in it, belongs to no common state."""
    with federation() as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = two_exchanges(f)
        for raw, x in ((a, 1.0), (b, 10.0), (c, 100.0)):
            assert raw.answer(x=np.array([x])) == {"round": 1}
        b.call()
        b.leave()
        for raw in (a, c):
            assert raw.answer(x=np.array([0.0]))["shared"].tolist() == [111]
        seen = []
        for raw, x in ((a, 1.0), (c, 100.0)):
            call, _ = raw.call()
            seen.append((call.function, call.round, call.attempt))
            raw.reply(call, x=np.array([x]))
        assert seen == [("first", 1, 2)] * 2
        for raw, x in ((a, 1.0), (c, 100.0)):
            shared = raw.answer(x=np.array([x * 101]))["shared"]
            assert shared.tolist() == [101]
        total, report = work.result()
        assert total.tolist() == [101 * 101]
        assert report["clients"] == ["a", "c"]
        assert report["missing"] == {"b": "its connection was lost"}
        assert report["attempts"] == 2
        assert f.notes.of("repeated") == [
            {"event": "repeated", "round": 1, "missing": {"b": "its connection was lost"}}
        ]


@pytest.mark.usefixtures("no_grace")
def test_who_was_lost_takes_part_in_the_next_round() -> None:
    with federation() as f:
        a, b = f.raw("a"), f.raw("b")
        c = f.raw("c")
        f.begin(*"abc")
        work = two_exchanges(f)
        for raw in (a, b, c):
            raw.answer(x=np.array([1.0]))
        b.call()
        b.leave()
        until(lambda: f.server.members["b"].stream is None)
        b = f.raw("b")
        f.there("b")  # back already, yet not in the round that is worked again
        for raw in (a, c):
            raw.answer(x=np.array([1.0]))
        for raw in (a, c, a, c):
            raw.answer(x=np.array([1.0]))
        assert work.result()[1]["clients"] == ["a", "c"]

        work = f.background(lambda: one_exchange(f, 2))
        for raw in (a, b, c):
            raw.answer(x=2.0)
        total, report = work.result()
        assert (total, report["clients"], report["missing"]) == (6, ["a", "b", "c"], {})


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("norm", ["sync", "server"])
def test_the_others_weights_are_those_of_a_study_without_the_lost(norm: str) -> None:
    """A client dies in round 3: from then on all bits are those of the two others' rounds."""
    corpora = subjects({"a": 50, "b": 40, "c": 30})
    plan = study(norm=norm, max_rounds=6, precision="float64").with_clients(corpora)
    dying = ("forward", 1) if norm == "sync" else ("gradients", 0)

    def doors() -> dict[str, Door]:
        return {
            name: Door(
                name,
                plan.client_half(Site(name, corpus, OPEN_POLICY)),
                OPEN_POLICY,
                Ledger("gfedntm", plan.fingerprint),
            )
            for name, corpus in corpora.items()
        }

    class Dying:
        """The client b, whose process ends in the middle of a round."""

        def __init__(self, whole: Door) -> None:
            self.whole, self.dead = whole, threading.Event()

        def call(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
            if payload.get("round") == 3 and (function, payload.get("stage", 0)) == dying:
                self.dead.set()
                members["b"].kill()
                raise OSError
            return self.whole.call(function, payload)

    with federation() as f:
        members = {}
        answer: dict[str, Any] = dict(doors())
        answer["b"] = Dying(answer["b"])
        for name, answering in answer.items():
            members[name] = Member(f"{HOST}:{f.port}", name, answering)
            f.ends.append(members[name].kill)
        f.begin(*"abc")
        notes = Notes()
        run = RunFolder(None, "s", on_event=notes.append)
        found = f.background(lambda: plan.server_half().train(f.clients, run)).result()
        assert answer["b"].dead.is_set()
        attempts = [event["attempts"] for event in notes.of("round")]
        assert attempts == ([1, 1, 2, 1, 1, 1] if norm == "sync" else [1] * 6)
        present = [event["clients"] for event in notes.of("round")]
        assert present == [["a", "b", "c"]] * 2 + [["a", "c"]] * 4

    class Leaving(LocalClients):
        def round(self, number: int, work: Callable[[], Any], draw: Draw = EVERYONE) -> Any:
            if number == 3:
                self._everyone = list(self._doors)
                del self._doors["b"]
            return super().round(number, work, draw)

        @property
        def names(self) -> list[str]:
            return getattr(self, "_everyone", super().names)

    expected = plan.server_half().train(Leaving(doors()), RunFolder(None, "s"))
    assert_same_bits(found, expected)


def test_after_the_last_round_nobody_waits_for_the_lost() -> None:
    """Only the agreement waits for everyone, as long as `gather` says."""
    with federation(rules=replace(RULES, gather=1000.0)) as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f, 0))
        for raw in (a, b, c):
            raw.answer(x=1.0)
        work.result()
        c.leave()
        until(lambda: f.server.members["c"].stream is None)
        work = f.background(lambda: f.clients.call("shares"))
        for raw in (a, b):
            raw.answer(x=1.0)
        assert work.result() == {"a": {"x": 1.0}, "b": {"x": 1.0}}


# Late clients


def without_c(f: Federated) -> tuple[list[Raw], wire.Call, tuple[float, dict[str, Any]]]:
    """Work round 1, which c lets pass; return the clients, what c was called for, and the round."""
    a, b, c = clients = [f.raw(name) for name in "abc"]
    f.begin(*"abc")
    work = f.background(lambda: one_exchange(f, 1))
    a.answer(x=1.0)
    b.answer(x=10.0)
    call, _ = c.call()
    return clients, call, work.result()


def assert_all_count(f: Federated, clients: list[Raw]) -> None:
    """Work round 2, in which nobody is missed."""
    f.there(*"abc")
    work = f.background(lambda: one_exchange(f, 2))
    for raw in clients:
        raw.answer(x=2.0)
    assert work.result()[0] == 6


def test_a_late_reply_never_counts_and_its_client_comes_back() -> None:
    with federation(rules=SOON) as f:
        (a, b, c), old, (total, report) = without_c(f)
        assert (total, report["missing"]) == (11, {"c": "did not answer within 1 s"})

        until(lambda: f.server.members["c"].late)
        work = f.background(lambda: one_exchange(f, 2))
        a.answer(x=2.0)
        b.answer(x=20.0)
        total, report = work.result()
        assert (total, report["missing"]) == (22, {"c": "still busy with an earlier call"})

        c.reply(old, x=5e9)
        f.there("c")
        work = f.background(lambda: one_exchange(f, 3))
        for raw, x in ((a, 3.0), (b, 30.0), (c, 300.0)):
            raw.answer(x=x)
        total, report = work.result()
        assert (total, report["missing"]) == (333, {})
        assert {"event": "old reply", "client": "c", "reason": ""} in f.notes


def test_a_late_failure_is_no_news_and_its_client_comes_back() -> None:
    with federation(rules=SOON) as f:
        (a, b, c), old, _ = without_c(f)
        c.send(failure=wire.Failure(id=old.id, kind="defect"))
        assert_all_count(f, [a, b, c])
        assert f.notes.of("bad reply") == f.notes.of("lost") == []


def test_a_late_client_whose_stream_breaks_comes_back() -> None:
    """On its new stream no old reply will come; nobody waits for one."""
    with federation(rules=SOON) as f:
        (a, b, c), _, _ = without_c(f)
        c.leave()
        until(lambda: f.server.members["c"].stream is None)
        assert_all_count(f, [a, b, f.raw("c", c.process)])


def test_the_deadline_ends_an_exchange_of_a_longer_round() -> None:
    with federation(rules=SOON) as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = two_exchanges(f)
        for raw in (a, b, c):
            raw.answer(x=np.array([1.0]))
        for raw in (a, b):
            raw.answer(x=np.array([0.0]))
        old, _ = c.call()
        for raw in (a, b):
            raw.answer(x=np.array([1.0]))
        for raw in (a, b):
            assert raw.answer(x=np.array([7.0]))["shared"].tolist() == [2]
        total, report = work.result()
        assert total.tolist() == [14]
        assert report["attempts"] == 2
        assert report["missing"] == {"c": "did not answer within 1 s"}
        c.reply(old, x=np.array([1e9]))
        f.there("c")


# Wrong clients

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": ({"x": np.array([np.nan])}, "its field 'x' holds NaN or infinite numbers"),
    "infinity": ({"x": np.array([-np.inf])}, "its field 'x' holds NaN or infinite numbers"),
    "shape": ({"x": np.zeros(2)}, "its field 'x' has the shape (2,) instead of (1,)"),
    "kind": ({"x": CANARY}, "its field 'x' has the shape None instead of (1,)"),
    "one field too many": (
        {"x": np.zeros(1), "y": 1},
        "the reply has ['documents', 'x', 'y'] instead of the fields ['documents', 'x']",
    ),
    "one too few": ({}, "the reply has ['documents'] instead of the fields ['documents', 'x']"),
    "study": ({"x": np.zeros(1), "study": "beef"}, "its reply is of the study 'beef'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_replies_are_left_out_and_their_client_excluded_after_three(case: str) -> None:
    reply, fault = WRONG[case]
    reason = fault if case == "study" else f"sent a bad reply: {fault}"
    with federation() as f:
        f.member("a", adding(1.0))
        f.member("c", adding(100.0))
        b = f.raw("b")
        f.begin(*"abc")

        def work(number: int) -> Any:
            template = {"x": (1,), "documents": ()}
            return f.clients.round(number, lambda: f.clients.sum("first", template, round=number))

        for number in (1, 2, 3):
            working = f.background(lambda n=number: work(n))
            b.answer(**reply, documents=1)
            total, report = working.result()
            assert_same(total, {"x": np.array([101.0]), "documents": 2})
            assert report["clients"] == ["a", "c"]
            assert report["missing"] == {"b": reason}
            assert len(f.notes.of("bad reply")) == number
        why = f"3 bad replies, the last: {reason}"
        assert f.notes.of("excluded") == [
            {"event": "excluded", "client": "b", "round": 3, "reason": why}
        ]
        assert b.end() == f"The server has excluded this client: {why}."
        assert refusal_of(f, "b") == f"This client was excluded: {why}."
        total, report = work(4)
        assert (total["x"], report["clients"]) == (101, ["a", "c"])
        assert report["missing"] == {"b": f"excluded: {why}"}
        assert CANARY not in json.dumps(f.notes)


BOMB = wire.Value(tensor=wire.Tensor(dtype="float64", shape=[8, 2**40], present=b"\0"))


@pytest.mark.parametrize(
    ("structure", "fault"),
    [
        (plain_value([1, 2]).SerializeToString(), "it is no map"),
        (b"", "it is no map"),
        (b"\xff" * 9, "A message has a damaged body."),
        (BOMB.SerializeToString(), "A message has a damaged body."),
    ],
)
def test_replies_that_cannot_be_read(structure: bytes, fault: str) -> None:
    with federation() as f:
        f.member("a", adding(1.0))
        f.member("c", adding(100.0))
        b = f.raw("b")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f))
        call, _ = b.call()
        content = structure + bytes(-len(structure) % 64)
        body = wire.Body(structure=len(structure), small=content)
        b.send(reply=wire.Reply(id=call.id, study="f00d", body=body))
        total, report = work.result()
        assert total == 101
        assert report["missing"] == {"b": f"sent a bad reply: {fault}"}
        f.there("b")


def test_a_raising_client_is_named_and_excluded_and_quotes_nothing() -> None:
    def fail(**_: Any) -> dict[str, Any]:
        raise ValueError(CANARY)

    with federation() as f:
        for name, x in (("a", 1.0), ("c", 100.0)):
            f.member(name, adding(x))
        b = f.member("b", Half({"first": fail}))
        f.begin(*"abc")
        for number in (1, 2, 3):
            f.there("b")
            total, report = one_exchange(f, number)
            assert total == 101
            assert report["missing"] == {"b": "it raised an unexpected error"}
        error = b.error()
        assert isinstance(error, FederationError)
        assert str(error) == (
            "The server says: The server has excluded this client: 3 bad replies, the last: "
            "it raised an unexpected error."
        )
        assert b.notes.of("defect") == [
            {"event": "defect", "function": "first", "round": n, "error": "ValueError"}
            for n in (1, 2, 3)
        ]
        assert [note["client"] for note in f.notes.of("excluded")] == ["b"]
        assert CANARY not in json.dumps([f.notes, b.notes]) + str(error)


def test_a_reply_over_the_limit_is_refused() -> None:
    with federation(largest=1000) as f:
        f.member("a", adding(1.0))
        f.member("c", adding(100.0))
        b = f.raw("b")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f))
        b.answer(x=np.zeros(2000))
        total, report = work.result()
        assert total == 101
        assert report["missing"]["b"].startswith("its reply has 16,")
        assert report["missing"]["b"].endswith(" bytes, more than 1,000")
        assert "raise largest_message in the study's [federation]" in b.end()


@pytest.mark.parametrize("announced", [2**40, 2**63])
def test_nothing_is_announced_that_does_not_fit(announced: int) -> None:
    """Neither in a reply that is awaited, nor in one that is not, nor before the first call."""
    huge = wire.Body(structure=0, data=announced)
    with federation() as f:
        f.member("a", adding(1.0))
        f.member("c", adding(100.0))
        b = f.raw("b")
        f.begin(*"abc")
        b.send(reply=wire.Reply(id=77, study="f00d", body=huge))
        assert "is over the server's limit of 1,073,741,824" in b.end()

        f.clients.prepare("first")  # stands
        b = Raw(f.port, "b")
        f.ends.append(b.leave)
        b.join()
        call, _ = b.call()
        b.send(reply=wire.Reply(id=call.id, study="f00d", body=huge))
        assert "is over the server's limit of 1,073,741,824" in b.end()
        assert one_exchange(f)[0] == 101


# Quorum


def test_below_the_quorum_a_round_waits_then_gives_up_and_names_who_is_away() -> None:
    with federation(rules=replace(RULES, wait=0.3)) as f:
        f.member("b", adding(1.0))
        f.there("b")
        with pytest.raises(FederationError) as error:
            one_exchange(f, 7)
        assert str(error.value) == (
            "Round 7 has fewer than min_clients = 2 clients (a: not connected; b: ready; "
            "c: not connected). Go on with --resume when they are back, or lower min_clients in "
            "the study's [federation]."
        )
        waiting = f.notes.of("waiting")
        assert waiting[-1]["missing"] == {"a": "not connected", "c": "not connected"}
        assert waiting[-1]["clients"] == ["b"]


def test_a_round_goes_on_when_the_quorum_is_there() -> None:
    with federation() as f:
        f.member("b", adding(10.0))
        f.there("b")
        work = f.background(lambda: one_exchange(f))
        until(lambda: f.notes.of("waiting"))
        f.member("c", adding(100.0))
        total, report = work.result()
        assert (total, report["clients"]) == (110, ["b", "c"])
        assert report["missing"] == {"a": "not connected"}


def test_the_agreement_waits_for_everyone() -> None:
    with federation(rules=replace(RULES, gather=PATIENCE)) as f:
        for name in "ab":
            f.member(name, adding(1.0))
        f.there("a", "b")
        work = f.background(lambda: one_exchange(f, 0))
        until(lambda: f.notes.of("waiting"))
        f.member("c", adding(1.0))
        total, report = work.result()
        assert (total, report["missing"]) == (3, {})


@pytest.mark.usefixtures("no_grace")
def test_a_quorum_lost_within_a_round_is_waited_for() -> None:
    with federation("ab") as f:
        f.member("a", adding(1.0))
        b = f.raw("b")
        f.there("a", "b")
        work = f.background(lambda: one_exchange(f))
        b.call()
        b.leave()
        until(lambda: f.notes.of("repeated"))
        b = f.raw("b")
        call, _ = b.call()
        assert call.attempt == 2
        b.reply(call, x=np.array([10.0]), documents=1)
        total, report = work.result()
        assert (total, report["attempts"], report["missing"]) == (11, 2, {})


def test_a_client_that_is_always_late_is_not_waited_for_without_end() -> None:
    with federation("ab", rules=replace(RULES, deadline=0.2, wait=0.3)) as f:
        f.member("a", adding(1.0))
        b = f.raw("b")
        f.begin("a", "b")
        work = f.background(lambda: one_exchange(f))
        with pytest.raises(FederationError) as error:
            while work.running:
                old, _ = b.call()
                until(lambda: f.server.members["b"].late or not work.running)
                b.reply(old, x=1.0)
                until(lambda: f.server.members["b"].call or not work.running)
            work.result()
        assert str(error.value).startswith("Round 1 has fewer than min_clients = 2 clients (a: ")
        assert len(f.notes.of("repeated")) >= 2


def test_an_impossible_quorum_is_not_waited_for() -> None:
    with federation("ab") as f:
        for name in "ab":
            f.member(name, adding(1.0))
        f.there("a", "b")
        one_exchange(f)
        f.server.exclude("b", "3 bad replies")
        with pytest.raises(FederationError, match=r"\(a: ready; b: excluded: 3 bad replies\)"):
            one_exchange(f, 2)


# Clients that restart, and that come back


def test_a_restarted_client_hears_the_standing_call_first() -> None:
    def adopting(heard: list[Any]) -> Half:
        def adopt(words: list[str]) -> dict[str, Any]:
            heard.append(words)
            return {"n": 1, "documents": 1}

        def ask(round: int) -> dict[str, Any]:  # noqa: A002
            heard.append(round)
            return {"x": float(len(heard)), "documents": 1}

        return Half({"adopt": adopt, "ask": ask})

    heard: dict[str, list[Any]] = {name: [] for name in ("a", "b", "c", "c again")}
    with federation() as f:
        for name in "ab":
            f.member(name, adopting(heard[name]))
        c = f.member("c", adopting(heard["c"]))
        f.begin(*"abc")
        assert f.clients.prepare("adopt", words=["oak"]) == {"n": 3, "documents": 3}
        assert f.clients.prepare("adopt", words=["oak", "ash"])["n"] == 3
        c.kill()
        until(lambda: f.server.members["c"].stream is None)
        c = f.member("c", adopting(heard["c again"]))
        f.there("c")
        assert f.clients.sum("ask", round=1)["documents"] == 3
        assert heard["c"] == [["oak"], ["oak", "ash"]]
        assert heard["c again"] == [["oak", "ash"], 1]
        assert [note["client"] for note in f.notes.of("ready")].count("c") == 2


def agreement(f: Federated) -> Background:
    """Work round 0: an exchange, then a standing call."""

    def work() -> Any:
        f.clients.call("vocabulary")
        return f.clients.prepare("adopt", words=["oak"])

    return f.background(lambda: f.clients.round(0, work)[0])


def adopts_and_takes_part(f: Federated, late: Raw, others: list[Raw]) -> None:
    call, payload = late.call()
    assert (call.function, payload) == ("adopt", {"words": ["oak"]})
    late.reply(call, n=1)
    f.there("a", "b", "c")
    work = f.background(lambda: one_exchange(f))
    for raw in (late, *others):
        raw.answer(x=1.0)
    assert work.result()[0] == 3


def test_a_client_that_joins_during_the_agreement_hears_what_was_agreed() -> None:
    with federation() as f:
        a, b = f.raw("a"), f.raw("b")
        f.there("a", "b")
        work = agreement(f)
        first, _ = a.call()
        c = f.raw("c")
        f.there("c")
        a.reply(first, n=1)
        b.answer(n=1)
        for raw in (a, b):
            assert raw.answer(n=1) == {"words": ["oak"]}
        assert work.result() == {"n": 2}
        adopts_and_takes_part(f, c, [a, b])


def test_a_client_that_was_late_in_the_agreement_hears_what_was_agreed() -> None:
    with federation(rules=SOON) as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = agreement(f)
        a.answer(n=1)
        b.answer(n=1)
        old, _ = c.call()
        for raw in (a, b):
            assert raw.answer(n=1) == {"words": ["oak"]}
        assert work.result() == {"n": 2}
        c.reply(old, n=1)
        adopts_and_takes_part(f, c, [a, b])


class Slow:
    """A client's function that is held up until the test lets it go on."""

    def __init__(self, x: float) -> None:
        self.calls, self.x = 0, x
        self.called, self.go_on = threading.Event(), threading.Event()
        self.half = Half({"first": self.first})

    def first(self, **_: Any) -> dict[str, Any]:
        self.calls += 1
        self.called.set()
        assert self.go_on.wait(PATIENCE)
        return {"x": np.array([self.x]), "documents": 1}


@pytest.fixture
def relayed() -> Iterator[tuple[Federated, Relay]]:
    """Clients b and c, and a road for a."""
    with federation() as f:
        for name, x in (("b", 10.0), ("c", 100.0)):
            f.member(name, adding(x))
        relay = Relay(f.port)
        f.ends.append(relay.close)
        yield f, relay


def test_a_call_goes_on_while_its_stream_is_broken(
    relayed: tuple[Federated, Relay], tmp_path: Path
) -> None:
    f, relay = relayed
    slow = Slow(1.0)
    a = f.member("a", slow.half, relay.port, tmp_path / "ledger.jsonl")
    f.begin(*"abc")
    work = f.background(lambda: one_exchange(f))
    assert slow.called.wait(PATIENCE)
    for times in (2, 3):
        relay.cut()
        until(lambda n=times: len(a.notes.of("joined")) == n)
    slow.go_on.set()
    total, report = work.result()
    assert (total, report["missing"], report["attempts"]) == (111, {}, 1)
    assert slow.calls == 1
    assert len((tmp_path / "ledger.jsonl").read_text().splitlines()) == 1


def test_an_answer_that_was_lost_is_sent_again(
    relayed: tuple[Federated, Relay], tmp_path: Path
) -> None:
    f, relay = relayed
    slow, ledger = Slow(1.0), tmp_path / "ledger.jsonl"
    a = f.member("a", slow.half, relay.port, ledger)
    f.begin(*"abc")
    work = f.background(lambda: one_exchange(f))
    assert slow.called.wait(PATIENCE)
    relay.deafen()
    slow.go_on.set()
    until(ledger.read_text)  # it is on its way, and never arrives
    assert work.running
    relay.cut()
    total, report = work.result()
    assert (total, report["missing"], report["attempts"]) == (111, {}, 1)
    assert slow.calls == 1
    assert len(ledger.read_text().splitlines()) == 1
    assert len(a.notes.of("joined")) == 2


class Script:
    """A server by hand: one function a connection that a client opens."""

    def __init__(self, *scenes: Callable[[Callable[[], wire.Frame]], Iterator[wire.Frame]]) -> None:
        self._scenes = iter(scenes)
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handler = grpc.stream_stream_rpc_method_handler(self._play)
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Join": handler}),)
        )
        self.port = self._server.add_insecure_port(f"{HOST}:0")
        self._server.start()

    def _play(self, said: Iterator[bytes], _: Any) -> Iterator[bytes]:
        scene = next(self._scenes)
        for frame in scene(lambda: wire.Frame.FromString(next(said))):
            yield frame.SerializeToString()

    def close(self) -> None:
        self._server.stop(None).wait()


def offer(run: bytes = b"1") -> wire.Frame:
    product, methods = VERSIONS
    return wire.Frame(
        offer=wire.Offer(
            product=product,
            wire=1,
            method="tiny",
            method_version=methods["tiny"],
            study=plain_value(PROPOSAL.study),
            fingerprint="f00d",
            run=run,
            chunk=CHUNK,
        )
    )


def test_a_repeated_call_is_answered_with_the_same_bytes() -> None:
    answers: list[list[bytes]] = []
    hellos: list[wire.Hello] = []
    drawn = np.random.default_rng(0)
    half = Half({"draw": lambda: {"x": drawn.normal(size=400_000), "documents": 1}})

    def scene(run: bytes, *ids: int) -> Any:
        def play(said: Callable[[], wire.Frame]) -> Iterator[wire.Frame]:
            hellos.append(said().hello)
            yield offer(run)
            assert said().accept.fingerprint == "f00d"
            for number in ids:
                packed = pack({})
                yield wire.Frame(call=wire.Call(id=number, function="draw", body=packed.header))
                for chunk in chunks(packed, CHUNK):
                    yield wire.Frame.FromString(chunk)
                reply = said()
                parts = [said() for _ in range(2)]
                answers.append([part.chunk for part in parts])
                assert (reply.reply.id, reply.reply.study) == (number, "f00d")
                assert reply.reply.body.data == 400_000 * 8
            if run == b"2":
                model = pack({"config.json": np.frombuffer(b"{}", np.uint8)})
                yield wire.Frame(result=wire.Result(body=model.header))
                for chunk in chunks(model, CHUNK):
                    yield wire.Frame.FromString(chunk)
                assert said().HasField("received")

        return play

    script = Script(scene(b"1", 1), scene(b"1", 1, 2), scene(b"1", 2), scene(b"2", 2))
    member = Member(f"{HOST}:{script.port}", "a", door("a", half))
    assert member.error() is None
    script.close()
    # Calls 1, 1 again, 2, 2 again; and 2 of another server's run.
    assert answers[0] == answers[1]
    assert answers[2] == answers[3]
    assert answers[0] != answers[2] != answers[4]
    assert half.calls == ["draw"] * 3
    assert len({hello.process for hello in hellos}) == 1
    assert member.files["config.json"].tobytes() == b"{}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"product": "9.9.9"}, "The client has version .* of fedtopics, the server 9.9.9"),
        ({"method": "other"}, "The client has version none of the method 'other', the server 1"),
        ({"method_version": 3}, "The client has version 1 of the method 'tiny', the server 3"),
        ({"study": wire.Value(text="x")}, "The server's offer holds no study"),
        ({"study": wire.Value(tensor=wire.Tensor(dtype="O"))}, "damaged value"),
    ],
)
def test_a_client_objects_to_what_a_server_offers(change: dict[str, Any], message: str) -> None:
    def play(said: Callable[[], wire.Frame]) -> Iterator[wire.Frame]:
        said()
        answer = offer()
        for name, value in change.items():
            if name == "study":
                answer.offer.study.CopyFrom(value)
            else:
                setattr(answer.offer, name, value)
        yield answer
        with pytest.raises(StopIteration):
            said()

    script = Script(play)
    half = Half({"draw": lambda: {"documents": 1}})
    error = Member(f"{HOST}:{script.port}", "a", door("a", half)).error()
    script.close()
    assert isinstance(error, FederationError)
    with pytest.raises(FederationError, match=message):
        raise error
    assert half.calls == []


# Who may join


def test_a_second_client_of_a_name_is_refused_while_the_first_lives() -> None:
    with federation() as f:
        a = f.member("a", adding(1.0))
        f.there("a")
        reason = refusal_of(f, "a")
        assert reason == (
            "A client named 'a' is connected already, from another process; stop it first, or "
            "give each client an identity of its own."
        )
        assert f.server.members["a"].available
        a.kill()
        until(lambda: f.server.members["a"].stream is None)
        assert f.raw("a").process == f.server.members["a"].process


def test_a_second_client_takes_the_place_of_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "SAME_NAME", 0.3)
    with federation("ac", rules=replace(RULES, min_clients=1)) as f:
        f.member("c", adding(100.0))
        dead = f.raw("a")
        f.there("a", "c")
        work = f.background(lambda: one_exchange(f))
        dead.call()  # and it answers neither this nor heartbeats from now on
        second = f.raw("a")
        total, report = work.result()
        assert (total, report["missing"]) == (100, {"a": "it was restarted"})
        f.there("a")
        assert f.server.members["a"].process == second.process != dead.process


def test_strangers_are_refused() -> None:
    with federation() as f:
        assert refusal_of(f, "nobody") == (
            "The study has no client named 'nobody'; name the client in the study under "
            "[clients], or give it a certificate with a name that is there."
        )
        product = VERSIONS[0]
        for hello, reason in (
            (
                {"wire": 2},
                f"version 2 of the wire format, the server 1; install fedtopics {product}",
            ),
            ({"product": "9.1.0"}, f"version 9.1.0 of fedtopics, the server {product}; install"),
            ({"methods": {}}, "version none of the method 'tiny', the server 1; install"),
            ({"methods": {"tiny": 9}}, "version 9 of the method 'tiny', the server 1; install"),
        ):
            assert f"The client has {reason}" in refusal_of(f, "a", **hello)
        raw = Raw(f.port, "a")
        f.ends.append(raw.leave)
        raw.hello()
        raw.send(accept=wire.Accept(fingerprint="beef"))
        assert raw.end() == (
            "The client joins the study beef, this server runs f00d; restart the client."
        )
        raw = Raw(f.port, "a")
        f.ends.append(raw.leave)
        raw.send(received=wire.Received())
        assert "The study has no client named ''" in raw.end()
        assert all(member.stream is None for member in f.server.members.values())
        refused = []
        while not f.server.inbox.empty():
            refused.append(f.server.inbox.get())
        assert all(isinstance(note, StatusChange) and note.status == "refused" for note in refused)
        assert [note.client for note in refused].count("a") == 5


def test_looking_joins_nothing() -> None:
    with federation() as f:
        found = client.look(f"{HOST}:{f.port}", None, "a", VERSIONS)
        assert (found.method, found.fingerprint, found.study) == ("tiny", "f00d", PROPOSAL.study)
        assert f.server.members["a"].stream is None
        with pytest.raises(FederationError, match="The server says: The study has no client named"):
            client.look(f"{HOST}:{f.port}", None, "z", VERSIONS)
    with pytest.raises(FederationError, match="does not answer; find out why with: fedtopics doc"):
        client.look(f"{HOST}:{f.port}", None, "a", VERSIONS)


def test_a_client_that_declines_is_noted() -> None:
    class Declining(Member):
        def consider(self, proposal: Any) -> Any:
            raise PolicyError(f"Not with {CANARY}.")

    with federation() as f:
        error = Declining(f"{HOST}:{f.port}", "a", door("a", Half({}))).error()
        assert str(error) == f"Not with {CANARY}."
        note = f.server.inbox.get(timeout=PATIENCE)
        assert note == StatusChange(
            "declined", "a", "its policy or its settings keep it from joining"
        )
        assert f.server.members["a"].stream is None


@pytest.mark.parametrize(
    "frame", [wire.Frame(hello=wire.Hello()), wire.Frame(chunk=b"x"), wire.Frame(), None]
)
def test_messages_that_have_no_place(frame: wire.Frame | None) -> None:
    with federation() as f:
        a = f.raw("a")
        f.there("a")
        if frame is None:
            a.send_raw(b"\xff\xff\xff")
        else:
            a.send_raw(frame.SerializeToString())
        expected = "has no place here" if frame is not None else "is damaged"
        assert expected in a.end()
        until(lambda: f.server.members["a"].stream is None)
        assert f.raw("a").process
        f.there("a")


# Memory


def test_the_budget_lets_in_what_fits_and_who_is_next() -> None:
    async def scenario() -> None:
        budget = Budget(100)
        await budget.give(0, "a")
        await budget.take("c", 60)
        waiting = {n: asyncio.create_task(budget.take(n, 60)) for n in ("d", "b")}
        small = asyncio.create_task(budget.take("e", 40))
        await asyncio.wait([small], timeout=PATIENCE)
        assert small.done()
        assert not any(task.done() for task in waiting.values())
        await asyncio.wait_for(budget.take("a", 10**9), PATIENCE)  # the next one, however large
        assert not any(task.done() for task in waiting.values())
        await budget.give(10**9, "b")
        await asyncio.wait_for(waiting["b"], PATIENCE)
        assert not waiting["d"].done()
        await budget.give(60, "d")
        await asyncio.wait_for(waiting["d"], PATIENCE)
        await budget.give(60 + 60 + 40, "")
        await asyncio.wait_for(budget.take("z", 100), PATIENCE)

    asyncio.run(scenario())


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "IN_FLIGHT", 1000)


BIG = np.arange(20_000.0)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_replies_wait_for_room_in_any_order_of_arrival(order: str) -> None:
    with federation() as f:
        raws = {name: f.raw(name) for name in "abc"}
        f.begin(*"abc")
        for number in (1, 2):
            work = f.background(lambda: f.clients.sum("first", round=1))
            for name in order:
                raws[name].answer(x=BIG * ord(name), documents=number)
            assert_same(
                work.result(),
                add_up({n: {"x": BIG * ord(n), "documents": number} for n in "abc"}),
            )


@pytest.mark.usefixtures("small_memory", "no_grace")
def test_who_waits_for_room_gets_in_when_the_next_one_is_lost() -> None:
    with federation() as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f))
        for raw in (c, b):
            raw.answer(x=BIG)
        a.call()
        a.leave()
        total, report = work.result()
        assert total == 2 * BIG.sum()
        assert report["clients"] == ["b", "c"]


@pytest.mark.usefixtures("small_memory")
def test_who_waits_for_room_at_the_deadline_counts() -> None:
    """They have answered in time; only who has not is left out."""
    with federation(rules=SOON) as f:
        a, b, c = (f.raw(name) for name in "abc")
        f.begin(*"abc")
        work = f.background(lambda: one_exchange(f))
        for raw in (c, b):
            raw.answer(x=BIG)
        old, _ = a.call()
        total, report = work.result()
        assert total == 2 * BIG.sum()
        assert report["missing"] == {"a": "did not answer within 1 s"}
        assert report["attempts"] == 1
        a.reply(old, x=BIG)
        f.begin(*"abc")


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("exchange", ["sum", "call"])
def test_room_comes_back_however_a_reply_ends(exchange: str) -> None:
    with federation("abcd", rules=replace(SOON, min_clients=1)) as f:
        a, b, c, d = (f.raw(name) for name in "abcd")
        f.begin(*"abcd")
        ask = getattr(f.clients, exchange)
        work = f.background(lambda: f.clients.round(1, lambda: ask("first", round=1)))
        a.answer(x=BIG)
        b.answer(x=BIG * np.nan)
        c.answer(study="beef", x=BIG)
        old, _ = d.call()
        packed = pack({"x": BIG})
        d.send(reply=wire.Reply(id=old.id, study="f00d", body=packed.header))
        assert work.result()[1]["clients"] == ["a"]
        for chunk in chunks(packed, CHUNK):  # too late
            d.send_raw(chunk)
        f.begin(*"abcd")
        until(lambda: f.server._roster.budget._free == 1000)
