"""The mixture of embeddings and words: pooled EM wherever documents are; networks begin with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.inference.clusters import centred
from fedtopics.methods.mixture import method as mixture_method
from fedtopics.methods.mixture.method import Expectation
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    accuracy,
    blobs,
    corpus_of,
    half,
    labels_of,
    planned,
    spread,
    texts_of,
    trained,
)

CORPUS = blobs(400, 8, spread=2.0)  # that overlap
EIGHT: dict[str, Any] = {"n_components": 8, "max_rounds": 15, "starts": 2, "start_rounds": 10}


# Exactness


@pytest.mark.parametrize(("n_clients", "alpha"), [(2, None), (10, None), (10, 0.1)])
def test_topics_do_not_depend_on_where_documents_are(n_clients: int, alpha: float | None) -> None:
    plan = planned("mixture", **EIGHT)
    at_one = trained(plan, {"all": CORPUS})
    model = trained(plan, spread(CORPUS, n_clients, alpha))
    assert len(model.documents) == n_clients
    np.testing.assert_allclose(model.beta, at_one.beta, rtol=1e-8)
    np.testing.assert_allclose(model.transform(CORPUS), at_one.transform(CORPUS), atol=1e-6)


def pooled(points: Any, bag: Any, sums: Any, method: Any, rounds: int) -> tuple[Any, Any]:
    """The algorithm in a few lines: theta, and the topics' words, summed."""
    directions, words, weights = sums["directions"], sums["words"], sums["weights"]
    for _ in range(rounds + 1):
        beta = words + 0.01 / len(words)
        usual = beta.sum(0) / beta.sum()
        beta = beta + method.smoothing * bag.shape[1] * usual
        beta /= beta.sum(1, keepdims=True)
        mean = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        theta = np.exp(method.kappa * points @ mean.T) * (weights + 1)
        theta *= np.exp(method.word_weight * bag @ np.log(beta).T)
        theta /= theta.sum(1, keepdims=True)
        before = words
        directions, words, weights = theta.T @ points, theta.T @ bag, theta.sum(0)
    return theta, before


def test_it_is_expectation_maximisation_on_pooled_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first_sums, begun = mixture_method.first_sums, []

    def noting(*given: Any) -> Any:
        begun.append(first_sums(*given))
        return begun[0]

    monkeypatch.setattr(mixture_method, "first_sums", noting)
    plan = planned("mixture", **EIGHT | {"max_rounds": 4, "tolerance": 0})
    events: list[dict[str, Any]] = []
    model = trained(plan, spread(CORPUS, 3), on_event=events.append)
    embedded = np.asarray(plan.embedded(CORPUS).embeddings, np.float64)
    np.testing.assert_allclose(begun[0]["origin"], embedded.mean(0))
    points = centred(embedded, embedded.mean(0)).astype(np.float64)
    bag = model.count(CORPUS).toarray().astype(np.float64)
    theta, words = pooled(points, bag, begun[0], plan.method, 4)
    np.testing.assert_allclose(model.transform(CORPUS), theta, atol=1e-6)
    np.testing.assert_allclose(model.weights["words"], words, rtol=1e-8, atol=1e-9)
    losses = [event["loss"] for event in events if event["event"] == "round"]
    assert losses == sorted(losses, reverse=True), "EM never makes it worse"


def test_words_tell_where_embeddings_do_not() -> None:
    """Two families of words have the same embeddings; words alone tell them apart."""
    corpus = blobs(400, spread=1.0)
    labels = labels_of(corpus)
    vectors = np.array(corpus.embeddings)
    vectors[labels == 1] = vectors[labels == 0].mean(0) + 0.1 * vectors[labels == 1]
    mixed = corpus_of(vectors, labels, texts_of(corpus))
    model = trained(planned("mixture", word_weight=1.0, n_components=5), {"a": mixed})
    assert accuracy(model, {"a": mixed}) > 0.9


# What leaves


def test_topics_of_few_documents_leave_nothing() -> None:
    corpus = blobs(60, 3, spread=0.3)
    plan = planned("mixture", n_components=4, kappa=20.0)
    client, fingerprint = half(plan, corpus, Policy(min_documents=10, min_document_frequency=1))
    means = np.stack(
        [np.array(corpus.embeddings)[labels_of(corpus) == k].mean(0) for k in range(3)]
    )
    directions = np.vstack([means, -means.sum(0)])
    state = {
        "origin": np.zeros(DIMENSION), "directions": directions, "weights": np.ones(4),
        "words": np.zeros((4, client.bag.shape[1])),
    }  # fmt: skip
    evidence = vars(mixture_method.Evidence.of(state, plan.method))
    reply = client.topic_sums(fingerprint, 1, evidence)
    few = reply["weights"] < 10
    assert few.any()
    assert not few.all()
    assert not reply["directions"][few].any()
    assert not reply["words"][few].any()
    assert reply["words"][~few].any(1).all()
    assert reply["weights"].sum() == pytest.approx(60)


def test_a_topic_that_nothing_is_sent_of_stays() -> None:
    plan = planned("mixture", n_components=2).method

    class Everybody:
        def keep(self, round_: int) -> float:
            return 0.0

    before = {
        "origin": np.zeros(2), "directions": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "words": np.ones((2, 3)), "weights": np.array([5.0, 6.0]),
    }  # fmt: skip
    reply = {
        "directions": np.array([[9.0, 9.0], [0.0, 0.0]]), "weights": np.array([10.0, 1.0]),
        "words": np.array([[7.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), "loss": 22.0, "documents": 11,
    }  # fmt: skip
    step = Expectation(plan).step(Everybody(), before, reply, 1)  # type: ignore[arg-type]
    np.testing.assert_array_equal(step.state["directions"], [[9, 9], [3, 4]])
    np.testing.assert_array_equal(step.state["words"], [[7, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(step.state["weights"], [10, 1])
    assert step.facts == {"loss": 2.0, "documents": 11}
    nothing = reply | {name: np.zeros_like(before[name]) for name in ("directions", "words")}
    with pytest.raises(StudyError, match="No cluster has as many documents as a policy"):
        Expectation(plan).step(Everybody(), before, nothing, 1)  # type: ignore[arg-type]


# What it begins with, and what begins with it


def started(network: str, **more: Any) -> Study:
    method = {
        "network": network, "n_components": CLUSTERS, "hidden": (12, 12), "max_rounds": 3,
        "embedding": {"dimension": DIMENSION}, "initialisation": "mixture", "batch_size": 100,
        "coherence": "nothing",
    }  # fmt: skip
    return Study.make(method=method | more, vocabulary={"min_document_frequency": 1})


@pytest.mark.parametrize("network", ["zeroshottm", "combinedtm"])
def test_networks_begin_with_it(network: str) -> None:
    corpus = blobs(400, spread=1.0)
    still = started(network, max_rounds=1, learning_rate=1e-12, optimizer="sgd")
    model = trained(still, spread(corpus, 3))
    assert accuracy(model, {"a": corpus}) > 0.9, "the encoder looks towards the directions"
    for topic in model.topics(4, lambda_=1.0):
        assert len({word.rstrip("0123456789") for word in topic}) == 1
