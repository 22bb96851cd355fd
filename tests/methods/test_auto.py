"""The method that a rule chooses by what all clients have: printed, and the same at all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtopics.errors import DataError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.auto.method import AutoSettings
from fedtopics.methods.registry import find_method
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import DIMENSION, embedded, subjects, tokens_of

SIZES = {"north": 60, "south": 40, "west": 30}
OPEN = dict.fromkeys(SIZES, OPEN_POLICY)
METHOD = {"n_components": 3, "max_rounds": 4, "coherence": "nothing"}


def auto(**more: Any) -> Study:
    method = {"name": "auto", **METHOD, "embedding": {"dimension": DIMENSION}, **more}
    return Study.make(method=method, vocabulary={"min_document_frequency": 1}, secure=False)


def texts(words: int) -> dict[str, Corpus]:
    """Documents cut to so many words, with embeddings."""
    found = {}
    for name, corpus in embedded(subjects(SIZES)).items():
        cut = [(document * 9)[:words] for document in tokens_of(corpus)]
        found[name] = Corpus.of(cut).with_embeddings(corpus.embeddings)
    return found


@pytest.mark.parametrize(
    ("words", "vectors", "method", "why"),
    [
        (150, 10, "nmf", "documents have 15.0 words on average, 15 or more"),
        (149, 10, "mixture", "documents have 14.9 words on average, fewer than 15, and embeddings"),
        (100, 9, "nmf", "and not all have embeddings, which titles need"),
        (0, 10, "mixture", "documents have 0.0 words"),
    ],
)
def test_the_rule(words: int, vectors: int, method: str, why: str) -> None:
    chosen, reason = AutoSettings().choose(documents=10, words=words, embedded=vectors)
    assert chosen["name"] == method
    assert why in reason
    find_method(method).settings(**chosen)  # they are settings of it


def test_long_documents_get_what_nmf_finds() -> None:
    events: list[dict[str, Any]] = []
    corpora = texts(20)
    model = train(auto(), corpora, policies=OPEN, on_event=lambda event: events.append(dict(event)))
    named = Study.make(method={"name": "nmf", **METHOD}, vocabulary={"min_document_frequency": 1})
    expected = train(named, corpora, policies=OPEN)
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "nmf"
    chosen = next(event for event in events if event["event"] == "chosen")
    assert chosen["method"] == "nmf"
    assert chosen["reason"] == "documents have 20.0 words on average, 15 or more"


def test_titles_get_what_the_mixture_finds() -> None:
    method = METHOD | {"name": "mixture", "embedding": {"dimension": DIMENSION}}
    named = Study.make(method=method, vocabulary={"min_document_frequency": 1})
    model, expected = (train(plan, texts(6), policies=OPEN) for plan in (auto(), named))
    np.testing.assert_array_equal(model.beta, expected.beta)
    assert model.info["method"] == "mixture"


def test_the_offer_says_what_each_method_would_send() -> None:
    study = auto()
    calls = {call.function: call for call in study.registration.exchanges(study.method)}
    assert {"extent", "vocabulary", "factor_sums", "topic_sums"} <= calls.keys()
    assert all(call.leaves for call in calls.values())
    assert calls["factor_sums"].often == "each round, with nmf"
    assert "with mixture" in calls["topic_sums"].often


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda vectors: np.full_like(vectors, np.nan), "NaN"),
        (lambda vectors: vectors[:, :5], "dimension"),
    ],
)
def test_embeddings_of_a_client_with_long_documents_are_checked_too(spoilt: Any, said: str) -> None:
    """Others' titles can make the average a short one, and theirs part of the mixture."""
    corpora = texts(6)
    long = texts(30)["west"]
    corpora["west"] = long.with_embeddings(spoilt(long.embeddings))
    with pytest.raises(DataError, match=said):
        train(auto(), corpora, policies=OPEN)
