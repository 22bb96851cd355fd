"""Discriminative clustering: the same wherever documents are, and only sums leave."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from fedtopics import Policy, Study
from fedtopics.methods.clusters.settings import WHOLE, Part
from fedtopics.methods.clusters.sums import Moments
from fedtopics.methods.discriminative import method as discriminative
from fedtopics.methods.discriminative import number
from fedtopics.methods.discriminative.separation import (
    LEAST_COUNT,
    RAREST,
    Separation,
    Split,
    complete,
)
from fedtopics.methods.kmeans.lloyd import Partition
from fedtopics.metrics import clustering_accuracy
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    blobs,
    corpus_of,
    half,
    labels_of,
    planned,
    spread,
    trained,
)
from tests.helpers.federation import train_and_note
from tests.helpers.noted import noted


def pooled(points: Any, sums: Any, weights: Any, plan: Study, rounds: int) -> Any:
    """The algorithm in a few lines, by scipy: memberships, and the trace of S_W^-1 S_B."""
    method = plan.method
    n_clusters = len(weights)
    scatter = np.cov(points.T, bias=True)
    mean = points.mean(0)
    bias = np.zeros(n_clusters)
    apart = []
    for _ in range(rounds + 1):
        means = sums / weights[:, None]
        between = (means - mean).T @ ((means - mean) * weights[:, None]) / len(points)
        ball = method.separation.shrinkage * np.trace(scatter) / len(mean)
        values, vectors = scipy.linalg.eigh(between, scatter - between + ball * np.eye(len(mean)))
        projection = vectors[:, ::-1][:, : n_clusters - 1]
        apart.append(values[::-1][: n_clusters - 1].sum())
        bias = bias - np.log(weights / weights.mean())
        directions = means @ projection
        projected = points @ projection
        for rows in (directions, projected):
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        exponential = np.exp(projected @ directions.T / method.temperature + bias)
        shares = exponential / exponential.sum(1, keepdims=True)
        sums = shares.T @ points
        weights = shares.sum(0)
    return shares, apart


def test_it_is_the_algorithm_on_pooled_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    called = noted(monkeypatch, discriminative, "start_separation")
    # No choice among finalists: the algorithm of one machine has one start.
    single = {"tolerance": 0, "finalists": 1, "sizes": "even"}
    plan = planned("discriminative", max_rounds=6, word_weight=0, separation=single)
    corpus = blobs(300, spread=2.0)
    model, events = train_and_note(plan, spread(corpus, 3), run=trained)
    ((_, start),) = called
    embedded = np.asarray(plan.embedded(corpus).embeddings, np.float64)
    origin = start.separation.origin
    assert not origin.any()
    expected, apart = pooled(
        model.inference.points(origin, None, embedded).astype(np.float64),
        sums=start.split.sums[0],
        weights=start.split.weights[0],
        plan=plan,
        rounds=6,
    )
    np.testing.assert_allclose(model.transform(corpus), expected, atol=1e-6)
    np.testing.assert_allclose(
        [event["loss"] for event in events.of("round")], -np.array(apart[:6]), rtol=1e-9
    )


def split(*weights: list[float], even: tuple[bool, ...]) -> Split:
    rng = np.random.default_rng(0)
    shape = len(weights), len(weights[0])
    return Split(
        sums=rng.normal(size=(*shape, 3)) * np.array(weights)[..., None],
        weights=np.array(weights),
        bias=np.full(shape, 0.5),
        apart=np.zeros(len(weights)),
        even=np.array(even),
    )


def test_a_bias_brings_clusters_to_one_size() -> None:
    moments = Moments(count=100, mean=np.zeros(3), scatter=10 * np.eye(3))
    state = split([75.0, 25.0], [0.0, 100.0], [75.0, 25.0], even=(True, True, False))
    directed = Separation(planned("discriminative").method, np.zeros(3), moments).direct(state)
    np.testing.assert_allclose(directed.bias, 0.5 - np.log([[1.5, 0.5], [RAREST, 2], [1, 1]]))


def test_clusters_of_k_means_begin_even_and_free() -> None:
    clusters = Partition.first(np.arange(12.0).reshape(2, 3, 2))
    both = Split.of(clusters, "both")
    assert both.even.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(both.sums[:2], both.sums[2:])
    np.testing.assert_allclose(both.sums[:2], LEAST_COUNT * clusters.centres)
    assert [Split.of(clusters, sizes).even.tolist() for sizes in ("even", "free")] == [
        [True, True],
        [False, False],
    ]


def sums_of(client: Any, bias: list[float]) -> dict[str, Any]:
    """Each of five documents has a direction of its own; all agree with none of four clusters."""
    apart = {"projection": np.eye(5)[None], "directions": np.zeros((1, 4, 5))}
    given = {"round": 1, "origin": np.zeros(5), "bias": np.array([bias]), "part": WHOLE}
    return dict(client.function("class_sums")(**given, **apart))


def test_a_cluster_of_few_documents_is_not_told() -> None:
    """Of five documents whose shares are alike, all are five, however small their shares."""
    shares = np.array([0.5, 0.41, 0.08, 0.01])
    weights = 5 * shares
    plan = planned("discriminative", n_components=4, embedding={"dimension": 5}, word_weight=0)
    for least, told in ((1, 4), (5, 4), (6, 0)):
        reply = sums_of(
            half(plan, corpus_of(np.eye(5)), Policy(min_persons=least)), np.log(shares).tolist()
        )
        enough = np.where(np.arange(4) < told, shares, 0)
        np.testing.assert_allclose(reply["weights"], [weights])
        np.testing.assert_allclose(reply["sent"], [5 * enough])
        np.testing.assert_allclose(reply["sums"], np.repeat(enough, 5).reshape(1, 4, 5), rtol=1e-6)
        assert reply["documents"] == 5


def test_what_is_told_of_a_cluster_stands_for_the_rest_of_it() -> None:
    before = Split(
        sums=np.array([[[2.0, 4.0], [9.0, 0.0], [0.0, 0.0]]]),
        weights=np.array([[2.0, 3.0, 0.0]]),
        bias=np.zeros((1, 3)),
        apart=np.zeros(1),
        even=np.ones(1, bool),
    )
    total = {
        "sums": np.array([[[30.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]),
        "sent": np.array([[10.0, 0.0, 0.0]]),
        "weights": np.array([[12.0, 5.0, 1.0]]),
    }
    sums, weights = complete(total, before.sums, before.weights)
    np.testing.assert_allclose(sums, [[[36, 0], [15, 0], [0, 0]]])
    np.testing.assert_array_equal(weights, total["weights"])
    np.testing.assert_allclose(
        complete(total | {"sent": total["weights"]}, before.sums, before.weights)[0][:, :1],
        total["sums"][:, :1],
    )


def test_words_of_all_documents_change_nothing() -> None:
    corpus = blobs(80)
    same = corpus_of(corpus.embeddings, texts=[["a", "b"]] * 80)
    clusters = trained(planned("discriminative"), {"a": same}).main_topics(same)
    assert clustering_accuracy(labels_of(corpus), clusters) > 0.95


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([334], 2),
        ([3999], 2),
        ([4000], 4),
        ([4000, 4000], 8),
        ([79] * 120, 4),
        ([39] * 300, 2),
        ([4000, 4000, *[20] * 50], 2),  # small clients count
    ],
)
def test_nearly_all_documents_are_in_some_part(sizes: list[int], parts: int) -> None:
    class Sums:
        def ask(self, function: Any, origin: Any, part: Part) -> dict[str, Any]:
            in_part = [n // part[1] if n // part[1] >= 10 else 0 for n in sizes]
            return {"documents": sum(in_part), "points": np.ones(3), "products": np.eye(3)}

    moments = number._moments_of_parts(Sums(), np.zeros(3), sum(sizes))
    assert list(moments) == [(i, parts) for i in range(parts)]


@pytest.mark.parametrize("per_part", [1000, 90])
def test_the_number_of_clusters_is_chosen(per_part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(number, "PER_PART", per_part)
    corpus = blobs(400)
    given: Any = {"candidates": (3, 5, 8), "start": {"tries": 4}, "word_weight": 0}
    plan = planned("discriminative", n_components=20, **given)
    plan = plan.model_copy(update={"seed": 3})
    model, events = train_and_note(plan, spread(corpus, 2), run=trained)
    scores = {e["n_components"]: e["score"] for e in events.of("candidate")}
    assert scores.keys() == {3, 5, 8}
    assert 1 >= scores[5] > 0.03 + max(scores[3], scores[8])
    assert model.n_topics == 5
    assert clustering_accuracy(labels_of(corpus), model.main_topics(corpus)) > 0.98


@pytest.mark.parametrize(
    ("n", "parts", "in_part"),
    [
        (10, 2, 0),
        (19, 2, 0),
        (20, 2, 10),
        (79, 8, 0),
        (80, 8, 10),
    ],
)
def test_a_part_of_too_few_documents_says_nothing(n: int, parts: int, in_part: int) -> None:
    client = half(planned("discriminative"), blobs(n), Policy())
    origin = np.zeros(DIMENSION)
    clusters = np.zeros((1, CLUSTERS, DIMENSION))
    discriminants = {
        "projection": np.eye(DIMENSION)[None],
        "directions": clusters,
        "bias": np.zeros((1, CLUSTERS)),
    }

    def replies(of: Part) -> list[dict[str, Any]]:
        given: dict[str, Any] = {"round": 0, "origin": origin, "part": of}
        return [
            client.function("embedding_moments")(origin, of),
            client.function("cluster_sums")(centres=clusters, starts=[0], **given),
            client.function("class_sums")(**given, **discriminants),
        ]

    for part in ((2, 2), (-1, 2), (0, 3)):
        with pytest.raises(ValueError, match="there is no part"):
            client.function("embedding_moments")(origin, part)
    for part in ((0, parts), (parts - 1, parts)):
        assert [reply["documents"] for reply in replies(part)] == [in_part] * 3
        for reply in replies(part):
            assert any(np.any(value) for value in reply.values()) == (in_part > 0)
    assert [reply["documents"] for reply in replies(WHOLE)] == [n] * 3
