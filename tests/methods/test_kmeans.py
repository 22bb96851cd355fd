"""Federated k-means is k-means on pooled documents; k-FED; and what clusters tell of documents."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans as PooledKMeans

from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.study import Study
from fedtopics.methods.clusters.settings import WHOLE
from fedtopics.methods.kmeans.method import KMeans, merge_centres
from fedtopics.metrics import clustering_accuracy
from tests.helpers.clusters import (
    CLUSTERS,
    blobs,
    corpus_of,
    each_apart,
    half,
    labels_of,
    planned,
    spread,
    texts_of,
    trained,
)
from tests.helpers.federation import assert_same
from tests.helpers.noted import noted


def test_the_papers_presets() -> None:
    def method(preset: str) -> tuple[str, str]:
        settings = Study.make(method={"name": "kmeans", "preset": preset}).method
        return settings.algorithm, settings.representation

    assert method("fbow") == ("k-fed", "bow")
    assert method("ftfidf") == ("k-fed", "tfidf")
    assert method("fsbert") == method("default") == ("lloyd", "embedding")


@pytest.mark.parametrize("representation", ["embedding", "tfidf", "bow"])
def test_it_is_pooled_kmeans_from_the_same_start(
    representation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = noted(monkeypatch, KMeans, "first_state")
    corpus = blobs(600, spread=2.0)
    plan = planned("kmeans", representation=representation, algorithm="lloyd", start={"tries": 1})
    model = trained(plan, spread(corpus, 4))
    points = model.inference.points(
        model.weights["origin"], model.count_words(corpus), plan.embedded(corpus).embeddings
    )
    ((_, first),) = called
    pooled = PooledKMeans(CLUSTERS, init=first.partition.centres[0], n_init=1, tol=0).fit(points)
    assert (model.main_topics(corpus) == pooled.labels_).mean() > 0.99
    # A model's centres are rounded by lot.
    np.testing.assert_allclose(model.weights["centres"], pooled.cluster_centers_, atol=0.07)
    assert model.info["rounds"] == pooled.n_iter_ > 1


def reply(centres: list[list[float]], counts: list[float]) -> dict[str, Any]:
    return {"centres": np.array(centres).reshape(-1, 2), "counts": np.array(counts)}


def test_centres_of_clients_are_merged() -> None:
    replies = {
        "b": reply([[0, 1], [10, 0]], [30, 10]),
        "a": reply([[0, 0], [9, 0]], [10, 30]),
        "c": reply([[0, 8], [1, 8]], [1, 3]),
    }
    # a's centres, then the one furthest from them: [1, 8]; means by documents.
    np.testing.assert_allclose(merge_centres(replies, 3), [[0, 0.75], [9.25, 0], [0.75, 8]])
    # Then [0, 8] and [0, 1] and [10, 0] are as far as 1 from one: the first of them, b's.
    np.testing.assert_allclose(merge_centres(replies, 4), [[0, 0], [9.25, 0], [0.75, 8], [0, 1]])
    np.testing.assert_allclose(merge_centres(replies, 2)[1], [9.25, 0])


@pytest.mark.parametrize("preset", ["fbow", "ftfidf"])
def test_clusters_of_words(preset: str) -> None:
    corpus = blobs(200)
    model = trained(planned("kmeans", preset=preset), spread(corpus, 2))
    assert not model.inference.sees_embedding
    assert clustering_accuracy(labels_of(corpus), model.main_topics(texts_of(corpus))) > 0.8
    families = [{word.rstrip("0123456789") for word in words} for words in model.topics(3)]
    assert sum(len(family) == 1 for family in families) >= 3


def asked(client: Any, centres: Any) -> dict[str, Any]:
    return dict(
        client.function("cluster_sums")(
            round=1,
            origin=np.zeros(centres.shape[2]),
            centres=centres,
            starts=list(range(len(centres))),
            part=WHOLE,
        )
    )


def test_a_cluster_of_few_documents_is_not_told() -> None:
    client = each_apart(12, Policy(min_persons=5))
    centres = np.zeros((1, 3, 12))
    centres[0, 0, :7] = centres[0, 1, 7:11] = centres[0, 2, 11] = 1
    centres /= np.linalg.norm(centres, axis=2, keepdims=True)
    told = asked(client, centres)
    assert told["counts"].tolist() == [[7, 0, 0]]
    assert told["sums"][0, 0].tolist() == [1] * 7 + [0] * 5
    assert not told["sums"][0, 1:].any()
    assert told["documents"] == 12


@pytest.mark.parametrize(("least", "size", "unclear"), [(4, 8, 4), (5, 8, 0), (9, 0, 0)])
def test_sizes_are_told_only_of_enough_documents(least: int, size: int, unclear: int) -> None:
    client = each_apart(12, Policy(min_persons=least), temperature=0.01)
    centres = np.zeros((3, 12))
    centres[0, :8] = 0.125  # the others are as near to the one as to the other
    told = client.cluster_sizes({"origin": np.zeros(12), "centres": centres})
    assert (told["sizes"].tolist(), told["unclear"]) == ([size, 0, 0], unclear)
    assert told["documents"] == 12


def members(told: dict[str, Any]) -> NDArray[np.bool_]:
    """Whose points are in which sum, shape (n_starts, n_clusters, n_documents)."""
    assert set(np.unique(told["sums"])) <= {0.0, 1.0}
    memberships: NDArray[np.bool_] = told["sums"] > 0.5
    np.testing.assert_array_equal(memberships.sum(2), told["counts"])
    return memberships


@pytest.mark.parametrize("least", [2, 5])
def test_between_two_replies_no_or_many_documents_change_place(least: int) -> None:
    rng = np.random.default_rng(0)
    client = each_apart(60, Policy(min_persons=least))
    centres = rng.normal(size=(3, 4, 60))
    before = members(asked(client, centres))
    sizes = []
    for _ in range(60):
        centres = centres + 0.1 * rng.normal(size=centres.shape)
        now = members(asked(client, centres))
        changed = (before ^ now).sum(2)
        assert not ((changed > 0) & (changed < least)).any()
        sizes += changed.ravel().tolist()
        before = now
    assert 0 in sizes
    assert max(sizes) >= least


def test_where_one_document_is_enough_nothing_is_held_back() -> None:
    rng = np.random.default_rng(0)
    client = each_apart(60, OPEN_POLICY)
    for _ in range(5):
        centres = rng.normal(size=(1, 4, 60))
        told = members(asked(client, centres))
        nearest = ((np.eye(60)[:, None] - centres) ** 2).sum(2).argmin(1)
        np.testing.assert_array_equal(told[0], nearest == np.arange(4)[:, None])


def test_own_centres_are_of_enough_documents() -> None:
    rng = np.random.default_rng(0)
    near = np.repeat([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [12, 8, 3], axis=0)
    corpus = corpus_of(near + 1e-3 * rng.normal(size=near.shape))
    plan = planned("kmeans", algorithm="k-fed", n_components=3, embedding={"dimension": 2})

    def told(least: int) -> dict[str, Any]:
        return dict(half(plan, corpus, Policy(min_persons=least)).own_centres(1, np.zeros(2)))

    assert sorted(told(1)["counts"].tolist()) == [3, 8, 12]
    assert sorted(told(5)["counts"].tolist()) == [8, 12], "one of 3 is left out"
    assert sorted(told(10)["counts"].tolist()) in ([11, 12], [12], [15]), "no more than 23 // 10"
    none = told(24)
    assert (none["centres"].shape, none["counts"].shape, none["documents"]) == ((0, 2), (0,), 0)
    assert_same(told(5), told(5))
    order = np.argsort(told(5)["counts"])
    np.testing.assert_allclose(told(5)["centres"][order], [[0, 1], [1, 0]], atol=2e-3)
