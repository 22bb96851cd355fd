"""Who says what is false, found by sums of groups: as whoever adds and all clients see it."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError
from fedtopics.methods.aggregation import Payload
from fedtopics.secure.groups import Search
from fedtopics.secure.said import PREPARED
from tests.helpers.masked import (
    NINE,
    Client,
    assert_total,
    masked,
)
from tests.helpers.masked_rounds import CLEARS, Rounds, always, lies
from tests.helpers.programs import POLICY

SIX = NINE[:6]
MANY = [f"client{number}" for number in range(30)]
# Groups


@pytest.mark.parametrize("n", range(6, 30))
def test_groups_have_three_members_and_no_one_twice(n: int) -> None:
    search = Search(MANY[:n], 1)
    search.voids = 1
    for anew in (True, False):
        groups = search.groups(MANY[:n], anew)
        assert len(groups) >= 2
        assert min(map(len, groups)) >= 3
        assert max(map(len, groups)) - min(map(len, groups)) <= 1
        assert sorted(name for group in groups for name in group) == sorted(MANY[:n])


def test_one_group_until_a_total_is_void_and_of_fewer_than_six() -> None:
    search = Search(MANY, 1)
    assert search.groups(MANY, anew=True) == [MANY]
    search.voids = 1
    assert search.groups(MANY[:5], anew=True) == [sorted(MANY[:5])]


def test_drawn_groups_are_others_each_time_and_fixed_ones_stay() -> None:
    found = []
    for number, voids in [(1, 1), (1, 2), (2, 1)]:
        search = Search(MANY, number)
        search.voids = voids
        found.append((search.groups(MANY, True), search.groups(MANY, False)))
    drawn, fixed = zip(*found, strict=True)
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert fixed[0] == fixed[1] == fixed[2]


def test_a_group_of_too_few_is_joined_to_another_one() -> None:
    """Of who is there; groups are those of all, or several of them together."""
    search = Search(NINE, 1)
    search.voids = 1
    everyone = search.groups(NINE, anew=False)
    for away in NINE:
        there = [name for name in NINE if name != away]
        groups = search.groups(there, anew=False)
        assert [len(group) for group in groups] in ([3, 5], [5, 3])
        whole = [group for group in everyone if away not in group]
        assert any(group in whole for group in groups)


def test_suspects_are_apart() -> None:
    search = Search(MANY[:9], 1)
    search.voids = 1
    first = search.groups(MANY[:9], True)
    assert search.narrow(first[:1]) == []
    assert search.suspects == first[0]
    search.voids = 2
    for group in search.groups(MANY[:9], True):
        assert len({*group} & {*first[0]}) == 1


def test_who_is_the_only_one() -> None:
    search = Search(SIX, 1)
    assert search.narrow([["a", "b", "c"]]) == []
    assert search.narrow([["a", "b", "d"]]) == []
    assert search.suspects == ["a", "b"]
    assert search.narrow([["b", "d", "e"]]) == ["b"]


def test_another_one_begins_to_lie() -> None:
    """None of those who could have lied before was in a sum that is void now."""
    search = Search(NINE, 1)
    assert search.narrow([["a", "b", "c"]]) == []
    assert search.narrow([["d", "e", "f"]]) == []
    assert search.suspects == ["d", "e", "f"]


# One client that lies


@pytest.mark.parametrize("liar", SIX)
@pytest.mark.parametrize("names", [SIX, NINE])
def test_who_always_lies_of_drawn_documents_is_named(names: str, liar: str) -> None:
    study = Rounds(names, {liar: always})
    (total,), report = study.round("drawn")
    assert_total(total, names.replace(liar, ""))
    assert study.named() == {liar}
    assert report["missing"] == {liar: "its sums could not be"}
    assert study.notes.of("suspected")[-1] == {
        "event": "suspected", "clients": [liar], "round": 1, "left_out": True,
    }  # fmt: skip
    assert len(study.notes.of("voided")) <= (4 if names == SIX else 3)


def test_who_lies_in_three_rounds_is_excluded() -> None:
    study = Rounds(SIX, {"b": always})
    for number in range(1, 5):
        study.round("drawn", number=number)
    assert [note["client"] for note in study.notes.of("excluded")] == ["b"]
    assert not any(note.get("round") == 4 for note in study.notes)


@pytest.mark.parametrize("seed", range(20))
def test_who_lies_alone_makes_nobody_else_named(seed: int) -> None:
    """Whichever attempts it lies in: it is in each sum that is void."""
    rng = np.random.default_rng(seed)
    liar = NINE[seed % 9]
    study = Rounds(NINE, {liar: lambda attempt: bool(rng.integers(2))})
    for number in range(1, 6):
        (total,), report = study.round("drawn", number=number)
        assert_total(total, report["clients"])
    assert study.named() <= {liar}
    assert all(liar in note["clients"] for note in study.notes.of("suspected"))


def test_who_lies_until_there_are_groups_costs_an_attempt() -> None:
    study = Rounds(SIX, {"b": lambda attempt: attempt == 1})
    (total,), _ = study.round("drawn")
    assert_total(total, SIX)
    assert len(study.notes.of("voided")) == 1
    assert study.named() == set()


@pytest.mark.parametrize("liar", NINE)
def test_the_group_of_who_lies_of_the_same_documents_is_left_out(liar: str) -> None:
    study = Rounds(NINE, {liar: always})
    totals, report = study.round("whole", "again")
    (suspected,) = study.notes.of("suspected")
    left_out = suspected["clients"]
    assert liar in left_out
    assert len(left_out) == 3
    assert suspected["left_out"]
    assert report["missing"].keys() == {*left_out}
    assert all("one of these says what is false" in why for why in report["missing"].values())
    left = [name for name in NINE if name not in left_out]
    for total in totals:
        assert_total(total, left)
    assert study.named() == set()
    search = Search(NINE, 1)
    groups = {n: "".join(g) for g in search.groups(NINE, False, narrow=True) for n in g}
    for name in NINE:  # opened: the sum of all, and that of its group, of the same documents
        of_it = {"whole 1": NINE, "whole 1 of a group": groups[name]}
        assert study.over(name) == (
            of_it if name in left_out else of_it | {"again 2": "".join(left)}
        )


def test_groups_are_the_same_in_each_round() -> None:
    study = Rounds(NINE, {"e": always})
    for number in range(1, 4):
        study.round("whole", number=number)
    first, *others = [note["clients"] for note in study.notes.of("suspected")]
    assert others == [first, first]


def test_what_was_opened_before_somebody_was_found_stays() -> None:
    study = Rounds(NINE, {"e": lambda attempt: attempt > 1})
    totals, _ = study.round("whole", "drawn")
    assert_total(totals[0], NINE)
    assert_total(totals[1], NINE.replace("e", ""))
    assert study.over("a") == {"whole 1": NINE}


def test_too_few_would_be_left_of_six() -> None:
    """Half of the clients are no majority: an attempt in the clear tells, if all allow it."""
    study = Rounds(SIX, {"b": always})
    with pytest.raises(FederationError, match="clear_attempt = true in a policy"):
        study.round("whole")
    assert not any(note["left_out"] for note in study.notes.of("suspected"))
    study = Rounds(SIX, {"b": always}, CLEARS)
    (total,), report = study.round("whole")
    assert_total(total, "acdef")
    assert study.named() == {"b"}
    assert report["missing"].keys() == {"b"}


def test_a_policy_that_asks_for_more_than_a_group() -> None:
    """Its client is in sums of all, and takes no part where somebody lies."""
    policies = dict.fromkeys(NINE, POLICY) | {
        "a": POLICY.model_copy(update={"min_clients_in_sum": 4})
    }
    study = Rounds(NINE, {"e": always}, policies)
    (total,), report = study.round("drawn")
    assert_total(total, "bcdfghi")
    assert report["missing"]["a"] == "its policy asks for more clients than a group"
    study = Rounds(NINE, {"e": always}, policies)
    with pytest.raises(FederationError, match="was void once"):
        study.round("whole")  # without its group and that of who lies, too few are left
    assert study.over("a") == {"whole 1": NINE}


# Several that lie


@pytest.mark.parametrize("others", ["bh", "ab", "dg", "ehi"])
def test_several_that_always_lie_are_all_named(others: str) -> None:
    study = Rounds(NINE, dict.fromkeys(others, always))
    for number in range(1, 3):
        (total,), report = study.round("drawn", number=number)
        assert_total(total, [name for name in NINE if name not in others])
        assert report["missing"].keys() >= {*others} - study.named() or study.named()
    assert study.named() == {*others}


@pytest.mark.parametrize("seed", range(10))
def test_two_that_take_turns_do_not_end_a_study(seed: int) -> None:
    """They can have another one suspected, or left out of a round: masks hide who lied when."""
    rng = np.random.default_rng(seed)
    coin = lambda attempt: bool(rng.integers(2))  # noqa: E731
    study = Rounds(NINE, {"b": coin, "h": coin})
    for number in range(1, 6):
        (total,), report = study.round("drawn", number=number)
        assert_total(total, report["clients"])


# Between machines


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_all_participants_find_the_same(function: str) -> None:
    with masked(NINE, function, rounds=2, odd={"e": lies()}) as (f, _, members):
        found = [f.lead(f.program).result()]  # type: ignore[attr-defined]
        found += [member.work.result() for member in members.values()]
        for rounds in found:
            for (total,), report in rounds:
                assert_total(total, report["clients"])
                assert "e" in report["missing"]
                assert len(report["clients"]) == (8 if function == "drawn" else 6)
        suspected = f.notes.of("suspected")
        for member in members.values():
            assert member.notes.of("suspected") == suspected
        assert {note["client"] for note in f.notes.of("bad reply")} == (
            {"e"} if function == "drawn" else set()
        )


def test_who_is_lost_when_groups_are_added_up_takes_its_group_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sum of all was opened: without it, its reply would be the difference."""
    monkeypatch.setattr(adder, "GRACE", 0.0)
    lost = next(name for name in NINE if name not in group_of("e"))

    def dies(client: Client, reply: Payload) -> Payload:
        client._maybe_die(sum(stage == PREPARED for stage, *_ in client.made) == 2)
        return reply

    odd = {"e": lies(), lost: {"changes": {PREPARED: dies}}}
    with masked(NINE, "whole", odd=odd) as (f, clients, _):
        error = f.lead(f.program).error()  # type: ignore[attr-defined]
        assert "did not allow" in str(error)  # of six, too few are left without those of e
        for name in NINE:
            opened = clients.doors[name][0]._door.sums
            assert opened[1, "whole 1"] == list(NINE)
            part = "".join(opened.get((1, "whole 1 of a group"), ()))
            assert part == ("" if name in group_of(lost) else group_of(name))


def group_of(name: str) -> str:
    groups = Search(NINE, 1).groups(NINE, False, narrow=True)
    return next("".join(group) for group in groups if name in group)
