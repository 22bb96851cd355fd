"""A sum by groups of documents is over the clients that were counted for it, whoever is lost."""

from __future__ import annotations

from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.secure.adding import CountAgainError, Sums
from fedtopics.secure.said import ADDED, AGREED, OPENED, PREPARED
from fedtopics.secure.sum import SecureClients
from tests.helpers.masked import NAMES, TEMPLATE, assert_total, left_of, masked
from tests.helpers.masked_adder import WHOLE
from tests.helpers.masked_rounds import Rounds

OTHERS = [name for name in NAMES if name != "e"]


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose connection breaks is given up at once."""
    monkeypatch.setattr(adder, "GRACE", 0.0)


def counted(engine: Any) -> Any:
    """Count groups, then sum them."""
    clients = SecureClients(engine, {})

    def work() -> list[dict[str, Any]]:
        count = clients.sum("whole", TEMPLATE, round=1, groups={"least": 2})
        groups = {"least": 2, "counted": {"n": count["n"]}}
        return [count, clients.sum("again", TEMPLATE, round=1, groups=groups)]

    return clients.round(1, work)


@pytest.mark.parametrize("stage", [PREPARED, ADDED, AGREED])
def test_who_is_lost_behind_the_count_is_counted_no_more(stage: str) -> None:
    """Its documents may be most of a group: the others' few of it are not opened."""
    with masked(NAMES, todo=counted, odd={"e": {"dies": stage, "skips": 1}}) as (f, clients, _):
        (count, total), report = f.lead(counted).result()
        assert_total(count, OTHERS)
        assert_total(total, OTHERS)
        assert report["clients"] == OTHERS
        for name in OTHERS:
            left = left_of(clients, name)
            assert left[:4] == list(WHOLE), "the count of all was opened"
            assert left[-8:] == [*WHOLE, *WHOLE], "that of the others, then their sum"
            assert OPENED not in left[4:-8], "and in between no sum"


def test_who_is_lost_when_counts_are_opened_is_counted_no_more() -> None:
    with masked(NAMES, todo=counted, odd={"e": {"dies": OPENED}}) as (f, _, _):
        (count, total), _ = f.lead(counted).result()
        assert_total(count, OTHERS)
        assert_total(total, OTHERS)


def test_who_is_lost_when_the_sum_is_opened_is_in_both() -> None:
    with masked(NAMES, todo=counted, odd={"e": {"dies": OPENED, "skips": 1}}) as (f, _, _):
        (count, total), report = f.lead(counted).result()
        assert_total(count, NAMES)
        assert_total(total, NAMES)
        assert report["clients"] == OTHERS


def told(rounds: Rounds, name: str) -> list[int]:
    """The fewest documents of a group of all clients', by how its sum was asked for each time.

    0: of one's own.
    """
    least, sums = {"groups": {"least": 10}}, {"groups": {"least": 10, "counted": {}}}

    def work() -> None:
        for payload in (least, sums):
            rounds.clients.sum("whole", TEMPLATE, round=1, **payload)

    rounds.clients.round(1, work)
    asked = [asked for stage, asked, _ in rounds.doors[name].left if stage in (PREPARED, "whole")]
    groups = [each.get("payload", each)["groups"] for each in asked]
    return [each["least"] for each in groups if "counted" in each]


def test_who_is_lost_behind_each_count_does_not_have_it_repeated_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Sums.whole

    def lost(sums: Sums, *given: Any) -> Any:
        if given[-1] is not None:
            raise CountAgainError
        return whole(sums, *given)

    monkeypatch.setattr(Sums, "whole", lost)
    assert told(Rounds(NAMES, {}), "a") == [0]
