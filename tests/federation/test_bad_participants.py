"""One participant whose replies are bad: the others end with a good model, and know who it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from benchmarks.attacks import blind, by_method, one_reply, solving, summed, unmixing
from benchmarks.attacks.tapped import Tap, bag_of, documents_of, federate, vocabulary_of
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.aggregation import Named, Rows
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from tests.helpers.background import Notes
from tests.helpers.bent import Bend, Reply, bend_replies, nothing
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
    _, events, said = with_one_bent(monkeypatch, nothing, clients_per_round=1)
    assert said == []
    rounds = events.of("round")
    assert [note["round"] for note in rounds] == [*range(1, 9)]
    assert {client for note in rounds for client in note["clients"]} <= {"east", "north", "south"}


# Attacks of docs/threat-model.md, small: those that find nothing, and those that still do.
# Who attacks has the study with its seed, the program, and all replies of a client or the totals.


NETWORK = {"name": "gfedntm", "norm": "local", "hidden": [20, 20], "n_components": 10}
Played = tuple[Study, dict[str, Corpus], dict[str, Tap]]


@cache
def played(size: int, rounds: int, batch: int, network: bool = False, clients: int = 3) -> Played:
    """A study of clients with so many documents each, so many of which are in a minibatch."""
    corpora = documents_of(None, clients, size)
    study = solving.study_of(rounds, batch, clients, **(NETWORK if network else {}))
    keys = {name: hashlib.sha256(name.encode()).digest() for name in corpora}
    return study, corpora, federate(study, corpora, key=keys.__getitem__)[1]


def test_rounds_and_the_seed_do_not_tell_documents() -> None:
    """Minibatches were drawn from the study's seed: 120 of 120 documents, to the last count."""
    found = solving.attack_lda(*played(120, 200, 16))
    assert found.solved == 0
    assert found.recall <= found.guessing


def test_totals_and_the_seed_do_not_tell_documents() -> None:
    """The same from the totals alone, of all clients' documents."""
    found = solving.attack_lda_total(*played(24, 200, 10))
    assert found.solved == 0
    assert found.recall <= found.guessing


def test_words_of_minibatches_do_not_tell_those_of_documents() -> None:
    """A document's words are in all of its minibatches: recall was .85 of the words."""
    found = solving.attack_gfedntm(*played(120, 200, 16, network=True))
    assert found.solved == 0
    assert found.recall <= found.guessing + 0.02, "frequent words are in the most minibatches"


@pytest.mark.parametrize("network", [True, False])
def test_no_word_leaves_that_its_client_did_not_name(network: bool) -> None:
    """Rows of the first layer named words of one document that other clients' words agreed on."""
    rare, left, single = solving.rare_words(*played(120, 10, 52, network=network))
    assert rare > 20
    assert (left, single) == (0, 0)


@pytest.mark.parametrize("network", [True, False])
def test_one_reply_tells_documents_of_its_minibatch(network: bool) -> None:
    """This remains until replies are masked: who adds, sees the words of documents."""
    study, corpora, taps = played(120, 5, 10, network=network)
    told = one_reply.attack(study, corpora, taps)
    assert told.some > 0.5 * told.documents


def test_many_rounds_of_few_documents_tell_them_blindly() -> None:
    """This remains: no minibatch is known, but there are many more rounds than documents."""
    _, corpora, taps = played(40, 400, 10, clients=2)
    name = next(iter(corpora))
    counts = solving.minibatch_counts(taps[name])
    actual = bag_of(corpora[name], vocabulary_of(taps[name].calls))
    assert blind.attack(counts, actual, 10 / 40)[1] > 20
    few = counts[:36]  # rounds than documents
    assert blind.attack(few, actual, 10 / 40)[1] == 0


@pytest.mark.parametrize(("units", "least", "most"), [(30, 29, 30), (12, 0, 5)])
def test_a_sum_over_fewer_documents_than_hidden_units_tells_them(
    units: int, least: int, most: int
) -> None:
    """Masks hide whose documents they are, not the documents: 10 of each of three clients."""
    network = {
        "name": "gfedntm", "hidden": [units, units], "n_components": 5, "max_rounds": 1,
        "batch_size": 30,
    }  # fmt: skip
    told = by_method.of_gradients(summed.play(network, 3, 3, 60, None))
    assert least <= told.wholly <= most
    assert told.words == 1
    assert told.member > 0.9


def test_documents_are_the_corners_of_what_sums_span() -> None:
    """Whole numbers, as many documents as dimensions; what is beside words is a row of its own."""
    rng = np.random.default_rng(0)
    documents = (rng.random((20, 150)) < 0.1) * rng.integers(1, 4, (20, 150)) * 1.0
    projected = documents.T @ rng.normal(size=(20, 40))
    space = unmixing.space_of(projected, 1e-9, 20)
    found = unmixing.parts(space, 20, 10, by_method.counts)
    assert by_method.exactly(np.array(found), documents) == 20
    directions, own = rng.normal(size=projected.shape), rng.random(150)
    mended = unmixing.without_diagonal(projected - own[:, None] * directions, directions, 20)
    np.testing.assert_allclose(mended, projected, atol=1e-6)


def test_who_is_a_member_is_asked_by_counts() -> None:
    counts, usual = np.array([3.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0])
    in_it, not_in_it = np.array([[3.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    scores = unmixing.likelihood(counts, True, usual, np.array([in_it, not_in_it]))
    assert scores[0] > 0 > scores[1]
    assert unmixing.area(scores[:1], scores[1:]) == 1
    assert unmixing.area(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.5
