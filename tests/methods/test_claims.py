"""How many documents a client says that it has: what others make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.aggregation import Rows
from fedtopics.methods.base import EVERYONE, Draw
from fedtopics.methods.claims import claims
from fedtopics.model.topic_model import TopicModel
from tests.helpers.bent import Reply, bend_replies
from tests.helpers.federation import assert_same_bits, subjects

SIZES = {"east": 60, "north": 50, "south": 50, "west": 60}
FIRST = ("vocabulary", "counted")
Events = list[dict[str, Any]]


def lda(**method: Any) -> Study:
    small = {"name": "lda", "n_components": 4, "max_rounds": 6, "batch_size": 100} | method
    return Study.make(method=small, vocabulary={"min_document_frequency": 1, "max_words": 200})


def trained(
    names: str = "", out: Path | None = None, resume: bool = False, **method: Any
) -> tuple[TopicModel, Events]:
    events: Events = []
    corpora = {n: corpus for n, corpus in subjects(SIZES).items() if n in names or not names}
    policies = {name: Policy() for name in corpora}
    model = train(
        lda(**method), corpora, policies=policies, out=out, resume=resume, on_event=events.append
    )
    return model, events


def of(events: Events, kind: str) -> Events:
    return [event for event in events if event["event"] == kind]


def claiming(documents: int) -> Any:
    def bend(function: str, reply: Reply) -> Reply:
        return reply | {"documents": documents} if function in FIRST else reply

    return bend


def test_of_how_many_times_the_usual_number_is_told() -> None:
    sizes = {"a": 100, "b": 80, "c": 900, "d": 50}
    assert claims(sizes) == claims({}) == claims({"a": 1, "b": 10**9}) == []
    (notable,) = claims(sizes | {"west": 1001})
    assert (notable.client, notable.documents, notable.times) == ("west", 1001, 10.01)
    assert not notable.left_out
    (absurd,) = claims(sizes | {"west": 100_001})
    assert absurd.left_out
    (among_none,) = claims({"a": 0, "b": 0, "c": 0, "d": 1001})
    assert (among_none.times, among_none.left_out) == (1001, True)


@pytest.mark.parametrize("client", ["east", "west"])
def test_who_claims_a_thousand_times_as_many_is_left_out_and_the_rest_is_as_without_it(
    client: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = " ".join(sorted(SIZES.keys() - {client}))
    honest, before = trained(others)
    bend_replies(monkeypatch, client, claiming(10**9))
    model, events = trained(out=tmp_path / "run", max_rounds=6)
    (claim,) = of(events, "claimed")
    assert (claim["client"], claim["documents"], claim["left_out"]) == (client, 10**9, True)
    assert model.documents.keys() == SIZES.keys() - {client}
    assert_same_bits(model, honest)
    documents = [event["documents"] for event in of(events, "round")]
    assert documents == [event["documents"] for event in of(before, "round")]
    assert min(documents) > 95  # of 100: nobody's minibatch is smaller


def test_a_run_that_is_resumed_leaves_out_whom_it_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bend_replies(monkeypatch, "west", claiming(10**9))
    whole, _ = trained()

    class Enough(Exception):  # noqa: N818
        pass

    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 3:
            raise Enough

    study = lda().model_copy(update={"checkpoint_every": 1})
    corpora = subjects(SIZES)
    policies = {name: Policy() for name in corpora}
    with pytest.raises(Enough):
        train(study, corpora, policies=policies, out=tmp_path / "run", on_event=stop)
    events: Events = []
    resumed = train(
        study, corpora, policies=policies, out=tmp_path / "run", resume=True, on_event=events.append
    )
    assert of(events, "claimed") == []
    assert resumed.documents.keys() == {"east", "north", "south"}
    assert_same_bits(resumed, whole)


def test_who_claims_hundreds_of_times_as_many_is_told_of_and_minibatches_are_as_policies_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bend_replies(monkeypatch, "west", claiming(50_000))
    model, events = trained()
    (claim,) = of(events, "claimed")
    assert (claim["client"], claim["times"], claim["left_out"]) == ("west", 50_000 / 55, False)
    assert model.documents.keys() == SIZES.keys()
    assert {event["documents"] for event in of(events, "round")} == {4 * Policy().min_documents}


# Who is drawn, and has nothing


def nothing(function: str, reply: Reply) -> Reply:
    if function != "expected_counts":
        return reply
    counts = reply["counts"]
    none = Rows(counts.index[:0], counts.values[:0], counts.n_rows)
    return {"counts": none, "bound": 0.0, "documents": 0}


@pytest.mark.parametrize("size", [1, 2])
def test_where_who_is_drawn_has_no_document_the_next_ones_are_drawn(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("north", "west"):
        bend_replies(monkeypatch, name, nothing)
    model, events = trained(clients_per_round=size, max_rounds=12)
    rounds = of(events, "round")
    assert [event["round"] for event in rounds] == [*range(1, 13)]
    assert all(set(event["clients"]) & {"east", "south"} for event in rounds)
    assert all(len(event["clients"]) == size for event in rounds)
    assert np.isfinite(model.beta).all()


def test_where_nobody_has_a_document_all_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SIZES:
        bend_replies(monkeypatch, name, nothing)
    expected = "None of east, north, south, west has a document that counts in round 1"
    with pytest.raises(StudyError, match=expected):
        trained(clients_per_round=1)


def test_a_draw_that_skips_draws_all_in_the_end() -> None:
    names = list("abcdefg")
    draw = Draw(3, seed=4)
    drawn = [Draw(3, 4, skipped).members(9, names, names) for skipped in (0, 3, 6)]
    assert drawn[0] == draw.members(9, names, names)
    assert set(drawn[0]).isdisjoint(drawn[1])
    assert {*drawn[0], *drawn[1], *drawn[2]} == {*names}
    for members in drawn:  # as a participant checks it
        assert Draw(3, 4, 6).members(9, names, members) == members
    without = Draw(3, 4, without=frozenset("ab")).members(9, names, names)
    assert without == draw.members(9, names, list("cdefg"))
    assert Draw(None, 0, without=frozenset("ab")).members(1, names, names) == list("cdefg")
    assert EVERYONE.members(1, names, names) == names
