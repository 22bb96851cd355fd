"""One participant whose replies are bad: the others end with a good model, and know who it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.aggregation import Named, Rows
from fedtopics.model.topic_model import TopicModel
from tests.helpers.background import Notes
from tests.helpers.bent import Bend, Reply, bend_replies
from tests.helpers.federation import subjects

SIZES = {"east": 60, "north": 50, "south": 50, "west": 60}


class Outcome(NamedTuple):
    """How a study ends in which west is bent, and what is said of west."""

    model: TopicModel
    events: Notes
    said: list[dict[str, Any]]


def with_one_bent(monkeypatch: pytest.MonkeyPatch, bend: Bend, **method: Any) -> Outcome:
    settings = {"name": "lda", "n_components": 4, "max_rounds": 8, "batch_size": 100} | method
    limits, rule = {"min_document_frequency": 1, "max_words": 200}, {"robust": "clip"}
    plan = Study.make(method=settings, vocabulary=limits, secure=False, federation=rule)
    bend_replies(monkeypatch, "west", bend)
    events, policies = Notes(), dict.fromkeys(SIZES, OPEN_POLICY)
    model = train(plan, subjects(SIZES), policies=policies, on_event=events.append, at_once=False)
    said = [note for note in events if note["event"] in ("bad reply", "excluded")]
    assert all(note["client"] == "west" for note in said)
    assert {"east", "north", "south"} <= set(model.documents)
    return Outcome(model, events, said)


def every(function: str, **fields: Any) -> Bend:
    """Replace fields of the replies of a function; "" is every one that counts documents."""

    def bend(called: str, reply: Reply) -> Reply:
        if called != function and function:
            return reply
        changed = {n: f(reply[n]) if callable(f) else f for n, f in fields.items() if n in reply}
        return reply | changed

    return bend


def with_word(word: str) -> Callable[[Named], Named]:
    def add(named: Named) -> Named:
        names = sorted([*named.names, word])
        values = np.insert(named.values, names.index(word), [60, 99, 1, 0], axis=0)
        return Named(names, values)

    return add


CANNOT = "holds numbers that cannot be, by what was agreed"
BAD: dict[str, tuple[Bend, str]] = {
    "less than no documents": (every("expected_counts", documents=-512), f"'documents' {CANNOT}"),
    "an escape": (
        every("vocabulary", words=with_word("oak\x1b[2J")),
        "'words' holds words that are none, or not in order",
    ),
    "theta at the end": (
        every("shares", theta=lambda theta: theta - 1000.0), f"'theta' {CANNOT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_who_sends_what_cannot_be_is_named_and_the_rest_goes_on(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bend, fault = BAD[case]
    model, _, said = with_one_bent(monkeypatch, bend)
    assert said
    assert all(fault in note["reason"] for note in said)
    if said[-1]["round"] > 0 and len(said) > 1:  # in each round
        assert [note["event"] for note in said] == ["bad reply"] * 3 + ["excluded"]
        assert "west" not in model.documents
    topics = model.topics(10)
    for name in ("east", "north", "south"):  # each honest client's subject has a topic
        own = [sum(word.startswith(name) for word in topic) for topic in topics]
        assert max(own) >= 6, (name, topics)


def test_junk_pushes_out_no_word_that_an_honest_client_has_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def junk(function: str, reply: Reply) -> Reply:
        if function != "vocabulary":
            return reply
        names = [f"junk{number:04}" for number in range(1000)]
        values = np.tile([60, 5000, 1, 0], (1000, 1))
        return reply | {"words": Named(names, values)}

    model, _, _ = with_one_bent(monkeypatch, junk)
    words = set(model.vocabulary.words)
    assert len(words) == 200
    for name, corpus in subjects(SIZES).items():
        if name != "west":
            counts: dict[str, int] = {}
            for document in corpus.documents.to_pylist():
                for word in document:
                    counts[word] = counts.get(word, 0) + 1
            often = sorted(counts, key=lambda word: -counts[word])[:40]  # less than its 50 places
            assert set(often) <= words


def times(factor: float) -> Bend:
    """Multiply gradients."""

    def bend(function: str, reply: Reply) -> Reply:
        if function != "gradients":
            return reply
        weights = {
            name: replace(array, values=multiplied(array.values, factor))
            if isinstance(array, Rows)
            else multiplied(array, factor)
            for name, array in reply["weights"].items()
        }
        return reply | {"weights": weights}

    return bend


def multiplied(array: Any, factor: float) -> Any:
    return np.clip(array.astype(np.float64) * factor, -1e30, 1e30).astype(array.dtype)


def test_gradients_from_beyond_hardly_move_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1e30, Adam's second moment would be infinite."""
    method = {"name": "gfedntm", "network": "prodlda", "norm": "server", "max_rounds": 60}
    method |= {"hidden": [16, 16], "learning_rate": 0.01, "batch_size": 100}
    model, events, said = with_one_bent(monkeypatch, times(1e40), **method)
    assert said == []
    clipped = events.of("clipped")
    assert {note["client"] for note in clipped} == {"west"}
    assert max(note["times"] for note in clipped) > 30
    losses = [note["loss"] for note in events.of("round")]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < 0.95 * np.mean(losses[:3])
    for name, share in model.shares.items():
        assert np.isfinite(share).all(), name


def test_where_the_only_client_of_a_round_has_no_document_another_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(function: str, reply: Reply) -> Reply:
        if function != "expected_counts":
            return reply
        counts = reply["counts"]
        none = Rows(counts.index[:0], counts.values[:0], counts.n_rows)
        return {"counts": none, "bound": 0.0, "documents": 0}

    _, events, said = with_one_bent(monkeypatch, nothing, clients_per_round=1)
    assert said == []
    rounds = events.of("round")
    assert [note["round"] for note in rounds] == [*range(1, 9)]
    assert {client for note in rounds for client in note["clients"]} <= {"east", "north", "south"}
