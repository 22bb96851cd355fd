"""Who counts in a round when clients are lost, late or too few; no sockets, see `Hub`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError
from tests.helpers.background import until
from tests.helpers.programs import (
    RULES,
    Federation,
    Half,
    Hand,
    Program,
    adding,
    federation,
    honest,
    rounds,
    x,
)

SOON = replace(RULES, deadline=3.0)
NOT_ALL = replace(RULES, gather=0.0)


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose connection breaks is given up at once."""
    monkeypatch.setattr(adder, "GRACE", 0.0)


def two_exchanges(clients: Any) -> Any:
    """A round in which the second exchange depends on the first."""

    def work() -> float:
        first = clients.sum("first", round=1)["x"]
        return float(clients.sum("second", shared=first, round=1)["x"][0])

    return clients.round(1, work)


def comes_back(f: Federation, name: str) -> None:
    """Cut somebody off until a round is worked again without it."""
    before = len(f.notes.of("repeated"))
    f.lost(name)
    until(lambda: len(f.notes.of("repeated")) > before)
    f.hub.away.clear()


# Lost clients


@pytest.mark.usefixtures("no_grace")
def test_a_round_goes_on_without_who_is_lost_in_its_only_exchange() -> None:
    with federation() as f:
        program = rounds(1)
        work = f.lead(program)
        honest(f, program)
        b = f.hand("b")
        assert b.begun(1)["members"] == ["a", "b", "c"]
        f.lost("b")
        ((total, report),) = work.result()
        assert total == 101
        assert report["clients"] == ["a", "c"]
        assert report["missing"] == {"b": "its connection was lost"}
        assert report["attempts"] == 1
        assert f.notes.of("repeated") == []


@pytest.mark.usefixtures("no_grace")
def test_a_round_is_repeated_without_who_is_lost_between_two_exchanges() -> None:
    """The first sum, with the lost client in it, belongs to no common state."""
    with federation() as f:
        work = f.lead(two_exchanges)
        halves = honest(f, two_exchanges)
        b = f.hand("b")
        b.begun(1)
        assert b.answer(**x(10.0))["total"]["x"].tolist() == [111]
        f.lost("b")
        total, report = work.result()
        assert total == 101 * 101
        assert report["clients"] == ["a", "c"]
        assert report["missing"] == {"b": "its connection was lost"}
        assert report["attempts"] == 2
        assert f.notes.of("repeated") == [
            {"event": "repeated", "round": 1, "missing": {"b": "its connection was lost"}}
        ]
        for half in halves.values():
            assert half.calls == ["first", "second"] * 2
            assert half.attempts == [1, 1, 2, 2]  # so that minibatches are drawn anew


@pytest.mark.usefixtures("no_grace")
def test_who_was_lost_takes_part_in_the_next_round() -> None:
    def program(clients: Any) -> Any:
        first = two_exchanges(clients)
        if clients is f.exchange:
            f.waits("b", 2)
        return first, *rounds(2)(clients)

    with federation() as f:
        work = f.lead(program)
        honest(f, program)
        b = f.hand("b")
        b.begun(1)
        b.answer(**x(10.0))
        comes_back(f, "b")  # yet not in the round that is worked again
        assert b.added()["again"]
        assert b.next("begun")["members"] == ["a", "c"]
        b.added()
        b.added()
        assert b.begun(2)["members"] == ["a", "b", "c"]
        b.answer(**x(10.0))
        (_, report), (total, later) = work.result()
        assert report["clients"] == ["a", "c"]
        assert (total, later["clients"], later["missing"]) == (111, ["a", "b", "c"], {})


def test_who_comes_back_in_time_is_not_lost() -> None:
    """Its reply, which was on its way, is sent again, and counts once."""
    with federation() as f:
        work = f.lead(rounds(1))
        halves = honest(f, rounds(1))
        f.hub.deaf.add("a")
        b = f.hand("b")
        until(lambda: f.hub._ports["a"].ends)
        f.hub.cut("a")  # it may hear and speak from now on
        b.begun(1)
        f.hub.deaf.add("b")
        b.say(**x(10.0))
        for _ in range(3):
            f.hub.cut("b")
        ((total, report),) = work.result()
        assert (total, report["missing"], report["attempts"]) == (111, {}, 1)
        assert halves["a"].calls == ["first"]


@pytest.mark.usefixtures("no_grace")
def test_after_the_first_round_nobody_waits_for_the_lost() -> None:
    """Only the agreement waits for everyone, as long as `gather` says."""
    with federation() as f:
        work = f.lead(rounds(0, 1, before=lambda n: n and f.lost("b")))
        honest(f, rounds(0, 1))
        b = f.hand("b")
        b.begun(1)
        b.answer(**x(10.0))
        (first, _), (second, report) = work.result()
        assert (first, second) == (111, 101)
        assert report["missing"] == {"b": "not connected"}


# Late clients


def late(f: Federation, program: Program, failing: bool = False) -> tuple[Hand, Any]:
    """Work round 1, which b lets pass; return it and the rounds."""
    work = f.lead(program)
    honest(f, program)
    b = f.hand("b")
    b.begun(1)
    decided = b.added()
    assert decided["missing"] == {"b": "did not answer within 3 s"}
    return b, work


@pytest.mark.parametrize("failing", [False, True])
def test_a_late_reply_never_counts_and_its_client_comes_back(failing: bool) -> None:
    with federation(rules=SOON) as f:
        b, work = late(f, rounds(1, 2, 3, before=lambda n: n == 3 and f.waits("b", 3)))
        # The others have begun and ended round 2 without it.
        assert b.next("begun")["missing"] == {"b": "still busy with an earlier round"}
        b.index -= 1
        b.fail() if failing else b.late(2, **x(5e9))
        b.index += 1
        assert b.added()["total"]["x"].tolist() == [101]
        assert b.begun(3)["members"] == ["a", "b", "c"]
        b.answer(**x(10.0))
        assert [total for total, _ in work.result()] == [101, 101, 111]
        assert f.notes.of("bad reply") == []


def test_who_is_one_turn_behind_is_waited_for() -> None:
    with federation(rules=SOON) as f:
        b, work = late(f, rounds(1, 2))
        time.sleep(0.04)  # the others are in the next turn already
        assert b.begun(2)["members"] == ["a", "b", "c"]
        b.answer(**x(10.0))
        assert work.result()[1][0] == 111


# Quorum


def test_below_the_quorum_a_round_waits_then_gives_up_and_names_who_is_away() -> None:
    with federation(rules=replace(NOT_ALL, wait=0.3)) as f:
        b = f.hand("b")
        work = f.lead(rounds(7, before=lambda n: f.waits("b", 1)))
        b.node.say(adder.Waits(1), 1)
        with pytest.raises(FederationError) as error:
            work.result()
        assert str(error.value) == (
            "Round 7 has fewer than min_clients = 2 clients (a: not connected; b: ready; "
            "c: not connected). Go on with --resume when they are back, or lower min_clients in "
            "the study's [federation]."
        )
        waiting = f.notes.of("waiting")
        assert waiting[-1]["missing"] == {"a": "not connected", "c": "not connected"}
        assert waiting[-1]["clients"] == ["b"]


def test_the_agreement_waits_for_everyone() -> None:
    with federation() as f:
        work = f.lead(rounds(0))
        honest(f, rounds(0))
        until(lambda: any(note["clients"] == ["a", "c"] for note in f.notes.of("waiting")))
        assert work.running
        f.member("b", adding(10.0), rounds(0))
        ((total, report),) = work.result()
        assert (total, report["missing"]) == (111, {})


@pytest.mark.usefixtures("no_grace")
def test_who_is_lost_at_every_attempt_is_as_good_as_away() -> None:
    """Of two clients one always fails in the middle: the round does not go on for ever."""
    with federation("ab", rules=replace(RULES, wait=0.3)) as f:

        def vanish(**_: Any) -> dict[str, Any]:
            comes_back(f, "b")
            return x(0.0)

        work = f.lead(two_exchanges)
        f.member("a", adding(1.0), two_exchanges)
        half = adding(10.0)
        f.member("b", Half({**half.functions, "second": vanish}), two_exchanges)
        with pytest.raises(FederationError, match="Round 1 has fewer than min_clients = 2"):
            work.result()
        assert len(f.notes.of("repeated")) > 1


def test_a_round_of_fewer_clients_than_asked_for_is_worked_again() -> None:
    with federation("ab") as f:
        work = f.lead(rounds(1))
        f.member("a", adding(1.0), rounds(1))
        b = f.hand("b")
        b.begun(1)
        b.fail()
        assert b.added()["again"]
        assert b.begun(1)["attempt"] == 2
        b.answer(**x(10.0))
        assert work.result()[0][0] == 11
