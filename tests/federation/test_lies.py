"""An adder that lies: clients do not answer, say in which round, and nothing leaves any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines.decisions import ADDED, BEGUN
from fedtopics.engines.messages import Reply
from fedtopics.methods.core.aggregation import Named, Rows
from tests.helpers.liars import POLICY, Scene, planned, stops, times


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(planned(), tmp_path)
    yield found
    for client in found.clients:
        found.hub.kill(client.part.name)


# What is said when an attempt begins

OTHER_BEGINNINGS: dict[str, dict[str, Any]] = {
    "another round": {"round": 7},
    "a round again": {"round": 0},
    "a turn too far": {"turn": 3},
    "a turn again": {"turn": 1},
    "an attempt too far": {"attempt": 2},
    "nobody": {"members": []},
    "one client three times": {"members": ["north"] * 3},
    "clients that are none": {"members": ["north", "x", "y"]},
    "members that are no names": {"members": 7},
    "certificates of nobody": {"certificates": {}},
}


@pytest.mark.parametrize("case", OTHER_BEGINNINGS)
def test_an_attempt_begins_otherwise(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.decide("north", BEGUN, liar.begun(2, **OTHER_BEGINNINGS[case]))
    stops(client, liar, 1, left=2)


def test_an_attempt_begins_without_a_field(scene: Scene) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    begun = liar.begun(2)
    del begun["members"]
    liar.decide("north", BEGUN, begun)
    stops(client, liar, 1, left=2)


@pytest.mark.parametrize(
    ("kind", "content"),
    [(BEGUN, b""), (BEGUN, 7), (ADDED, b"\xff" * 80), ("call", None), ("", [1])],
)
def test_decisions_that_are_none(scene: Scene, kind: str, content: Any) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.decide("north", kind, content)
    stops(client, liar, 1, left=2)


def test_decisions_again(scene: Scene) -> None:
    """An entry that was taken is not taken again, at another index."""
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    liar.hear("north", Reply)
    entry = liar.logs["north"].entry(3)
    liar.decide("north", entry.kind, entry.content)
    stops(client, liar, 1, left=3)


# What is said of replies


def test_a_round_for_itself(scene: Scene) -> None:
    """All but one are said to be lost: a sum of one would be next."""
    liar, client = scene.liar("north"), scene.client()
    liar.joined("north")
    liar.begin(1, "north")
    reply = liar.hear("north", Reply)
    added = liar.added("north", {"north": reply}, missing={"south": "lost", "west": "lost"})
    liar.decide("north", ADDED, added | {"total": reply.reply})
    message = stops(client, liar, 0, left=1, said="sums over at least 3 clients, this one is over")
    assert "'north'" in message


def test_who_is_lost_later_is_gone(scene: Scene) -> None:
    """After a round's first exchange nobody is left out of it: sums are of the same clients."""
    liar, client = scene.liar("north"), scene.client(policy=POLICY.model_copy(
        update={"min_clients": 2}))  # fmt: skip
    liar.joined("north")
    liar.begin(1, "north")
    liar.exchange("north")
    reply = liar.hear("north", Reply)
    added = liar.added("north", {"north": reply}, one_by_one=True, missing={"west": "lost"})
    liar.decide("north", ADDED, added)
    stops(client, liar, 0, left=2)


def changed(**fields: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda total: total | fields


TOTALS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NaN": lambda total: total | {"bound": np.nan},
    "NaN in rows": lambda total: total | {"counts": times(total["counts"], np.nan)},
    "fewer documents than its own": changed(documents=1),
    "no documents": changed(documents=0),
    "negative documents": changed(documents=-512),
    "documents that are no number": changed(documents="many"),
    "another shape": changed(counts=Rows(np.array([0]), np.ones((1, 9)), 3)),
    "one field more": changed(topics=np.ones((2, 2))),
    "nothing": lambda total: None,
}


@pytest.mark.parametrize("case", TOTALS)
def test_totals_that_cannot_be(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    liar.decide("north", ADDED, added | {"total": TOTALS[case](added["total"])})
    stops(client, liar, 1, left=3)


@pytest.mark.parametrize("fewer", [False, True])
def test_counts_by_word_below_the_own(scene: Scene, fewer: bool) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.joined("north")
    liar.begin(1, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    words = added["total"]["words"]
    other = words.names[1:] if fewer else words.names
    counts = words.values[1:] if fewer else words.values // 9
    total = added["total"] | {"words": Named(other, counts)}
    liar.decide("north", ADDED, added | {"total": total})
    stops(client, liar, 0, left=1)


ADDITIONS: dict[str, dict[str, Any]] = {
    "another exchange": {"index": 3},
    "no signatures": {"signatures": 3},
    "strangers are missing": {"missing": {"x": "lost"}},
}


@pytest.mark.parametrize("case", ADDITIONS)
def test_other_words_about_a_total(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    liar.decide("north", ADDED, added | ADDITIONS[case])
    stops(client, liar, 1, left=3)


BEYOND: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "more documents than were announced": lambda total: total | {"documents": 121},
    "more of a word than all have counted": lambda total: (
        total
        | {
            "counts": Rows(
                total["counts"].index, total["counts"].values * 100, total["counts"].n_rows
            )
        }
    ),
    "less than nothing of a word": lambda total: (
        total
        | {"counts": Rows(total["counts"].index, -total["counts"].values, total["counts"].n_rows)}
    ),
}


@pytest.mark.parametrize("case", BEYOND)
def test_a_total_beyond_what_was_announced(scene: Scene, case: str) -> None:
    liar, client = scene.liar("north"), scene.client()
    liar.agree("north")
    liar.begin(2, "north")
    added = liar.added("north", {"north": liar.hear("north", Reply)})
    liar.decide("north", ADDED, added | {"total": BEYOND[case](added["total"])})
    stops(client, liar, 1, left=3)
