"""Clients that are lost in a masked sum, or restarted: what the sum is, and what was opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtopics.methods.core.aggregation import Payload
from fedtopics.secure.said import ADDED, AGREED, CHECKED, COMMITTED, OPENED, PREPARED, RECOVERED
from tests.helpers.background import KilledError, until
from tests.helpers.masked import (
    NAMES,
    Client,
    Clients,
    assert_total,
    half_of,
    masked,
    opened,
)
from tests.helpers.masked_adder import DRAWN, WHOLE, Adder

COUNTED = OPENED, RECOVERED  # who is lost then is in the sum


def lost_cases() -> Iterator[tuple[str, dict[str, str]]]:
    for function, stages in ("drawn", DRAWN), ("whole", WHOLE):
        for stage in stages:
            yield function, {"b": stage, "d": stage}
        yield function, {"b": ADDED}
    yield "drawn", {"b": COMMITTED, "d": ADDED}
    yield "drawn", {"e": ADDED, "a": CHECKED}
    for one, other in (PREPARED, ADDED), (PREPARED, OPENED), (ADDED, AGREED), (ADDED, OPENED):
        yield "whole", {"b": one, "d": other}
    yield "whole", {"a": AGREED, "e": OPENED}
    yield "whole", {"b": OPENED, "d": RECOVERED}


def named(case: object) -> str:
    return (
        case
        if isinstance(case, str)
        else "-".join(
            f"{name}.{stage.removeprefix('secure.')}"
            for name, stage in dict(case).items()  # type: ignore[call-overload]
        )
    )


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize(("function", "deaths"), list(lost_cases()), ids=named)
def test_who_is_lost(function: str, deaths: dict[str, str]) -> None:
    """Twice a round of a sum; in the second nobody is lost any more."""
    odd = {name: {"dies": stage} for name, stage in deaths.items()}
    with masked(NAMES, function, rounds=2, odd=odd) as (f, clients, members):
        work = f.lead(f.program)
        (first, _), (second, report) = work.result()
        left = [name for name in NAMES if name not in deaths]
        late = [name for name, stage in deaths.items() if stage in COUNTED]
        counted = sorted(left + late)
        assert_total(first[0], counted)
        assert_total(second[0], left)
        assert report["clients"] == left
        for name in deaths:
            assert isinstance(members[name].work.error(), KilledError)
        for name in left:
            assert_total(members[name].work.result()[0][0][0], counted)
        check_opened(clients, set(deaths) - set(late))


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("second", ["whole", "again"])
@pytest.mark.parametrize("stage", WHOLE)
def test_who_is_lost_in_a_round_of_two_sums(stage: str, second: str) -> None:
    """What was opened with it stays; what comes after is over the others."""
    with masked(NAMES, "whole", second, odd={"e": {"dies": stage}}) as (f, clients, members):
        ((one, other), report) = f.lead(f.program).result()[0]
        others = [name for name in NAMES if name != "e"]
        assert_total(one, NAMES if stage == OPENED else others)
        assert_total(other, others)
        assert report["clients"] == others
        for name in others:
            members[name].work.result()
        check_opened(clients, set() if stage == OPENED else {"e"})


def check_opened(clients: Clients, lost: set[str]) -> None:
    """Of nobody both seeds are told in one sum, and of the living none of pairs."""
    for (_, name), kinds in opened(clients.everything).items():
        assert len(kinds) == 1
        assert kinds == {"own"} or name in lost


# Restarts


STAGES = [("drawn", stage) for stage in DRAWN] + [("whole", s) for s in (*WHOLE, RECOVERED)]


@pytest.mark.parametrize("how", ["dies", "falls"])
@pytest.mark.parametrize(("function", "stage"), STAGES)
def test_another_process(
    clients: Clients, tmp_path: Path, function: str, stage: str, how: str
) -> None:
    """It goes on where the one before was: the same masks, in the same context."""
    odd = {"b": {how: stage}, "d": {"changes": {OPENED: with_another_seed}}}
    hand = Adder(clients)
    for name in NAMES:
        clients.start(name, function, folder=tmp_path, **odd.get(name, {}))
    hand.start(*NAMES)
    for each in DRAWN if function == "drawn" else (*WHOLE, RECOVERED):
        if each == stage:
            until(lambda: hand.take() or not clients.members["b"].work.running)
            assert isinstance(clients.members["b"].work.error(), KilledError)
            clients.start("b", function, folder=tmp_path)
        hand.step(NAMES)
    for name in NAMES:
        assert_total(clients.members[name].work.result()[0][0][0], NAMES)
    first, second = clients.doors["b"]
    before = {(stage, asked["context"]): reply for stage, asked, reply in first.made}
    after = {(stage, asked["context"]): reply for stage, asked, reply in second.made}
    assert before.keys() & after.keys() == (
        {(stage, first.made[-1][1]["context"])} if how == "falls" else set()
    )
    for key in before.keys() & after.keys():
        assert fixed(before[key]) == fixed(after[key])
    check_opened(clients, set())


@pytest.mark.parametrize(
    ("function", "stage"), [("drawn", ADDED), ("whole", PREPARED), ("whole", OPENED)]
)
def test_back_in_the_next_round(tmp_path: Path, function: str, stage: str) -> None:
    """An adder counts who was restarted as lost; the round after has it."""
    odd = {"b": {"falls": stage}, "d": {"changes": {OPENED: with_another_seed}}}
    with masked(NAMES, function, rounds=2, odd=odd, folder=tmp_path) as (f, clients, members):
        work = f.lead(f.program)
        assert isinstance(members["b"].work.error(), KilledError)
        f.member("b", half_of("b"), f.program, tmp_path / "b/ledger.jsonl", wrap=clients.wrap("b"))
        (first, report), (second, _) = work.result()
        assert report["missing"] == {"b": "it was restarted"}
        assert_total(first[0], NAMES if stage in COUNTED else "acde")
        assert_total(second[0], NAMES)
        check_opened(clients, {"b"})


def with_another_seed(client: Client, reply: Payload) -> Payload:
    """Answer with a seed that is not the own one, so that shares of it are needed."""
    return {"said": client.signed(OPENED, {**reply["said"], "own": bytes(16)})}


def fixed(reply: Payload) -> dict[str, bytes]:
    """What of an answer is the same each time: signatures and what is sealed are not."""
    parts = {**reply.get("masked", {}), **reply.get("said", {})}
    prepared = "key" in parts
    return {
        name: bytes(part)
        for name, part in parts.items()
        if name not in ("signature", "said") and not (prepared and name == "shares")
    }
