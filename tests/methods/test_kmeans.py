"""Federated k-means is k-means on pooled documents; k-FED; and what clusters tell of documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans as PooledKMeans

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.client import ALL
from fedtopics.methods.kmeans.lloyd import Partition
from fedtopics.methods.kmeans.method import KMeans, merge_centres
from fedtopics.methods.registry import METHODS, find_method
from fedtopics.metrics import clustering_accuracy
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    ODD,
    accuracy,
    assert_not_worked_again,
    assert_nothing_else_leaves,
    assert_same_however_carried,
    assert_same_result,
    assert_sound,
    blobs,
    corpus_of,
    each_apart,
    empty,
    gone_on,
    half,
    labels_of,
    overheard,
    planned,
    spread,
    texts_of,
    trained,
)
from tests.helpers.federation import assert_same
from tests.helpers.ledgers import lines_that_left

CORPUS = blobs(2000, spread=2.0)
LLOYD: dict[str, Any] = {"algorithm": "lloyd"}
WAYS = [
    pytest.param(LLOYD, id="lloyd"),
    pytest.param({"algorithm": "k-fed"}, id="k-fed"),
    pytest.param({"preset": "fbow"}, id="fbow"),
    pytest.param({"preset": "ftfidf"}, id="ftfidf"),
    pytest.param(LLOYD | {"representation": "tfidf"}, id="lloyd of tfidf"),
]


def test_the_papers_presets() -> None:
    def method(preset: str) -> tuple[str, str]:
        found = Study.make(method={"name": "kmeans", "preset": preset}).method
        return found.algorithm, found.representation

    assert method("fbow") == ("k-fed", "bow")
    assert method("ftfidf") == ("k-fed", "tfidf")
    assert method("fsbert") == method("default") == ("lloyd", "embedding")


# Exactness


def begun_with(monkeypatch: pytest.MonkeyPatch) -> list[NDArray[np.float64]]:
    """The centres that Lloyd's algorithm begins with."""
    first_state, starts = KMeans.first_state, list[NDArray[np.float64]]()

    def noting(self: KMeans, *given: Any) -> Any:
        state = first_state(self, *given)
        starts.append(state.partition.centres)
        return state

    monkeypatch.setattr(KMeans, "first_state", noting)
    return starts


@pytest.mark.parametrize("representation", ["embedding", "tfidf", "bow"])
def test_it_is_pooled_kmeans_from_the_same_start(
    representation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = begun_with(monkeypatch)
    corpus = blobs(600, spread=2.0)
    plan = planned("kmeans", representation=representation, starts=1, **LLOYD)
    model = trained(plan, spread(corpus, 4))
    embedded = plan.embedded(corpus).embeddings
    origin = model.weights["origin"]
    points = model.inference.points(origin, model.count(corpus), embedded)
    (start,) = starts
    pooled = PooledKMeans(CLUSTERS, init=start[0], n_init=1, tol=0).fit(points)
    np.testing.assert_array_equal(model.main_topics(corpus), pooled.labels_)
    np.testing.assert_allclose(
        model.weights["centres"], pooled.cluster_centers_, atol=2e-6
    )  # of float32
    assert model.info["rounds"] == pooled.n_iter_ > 1


@pytest.fixture(scope="module")
def at_one() -> NDArray[np.int64]:
    """The labels, were all documents at one client."""
    return trained(planned("kmeans", starts=3), {"all": CORPUS}).main_topics(CORPUS)


@pytest.mark.parametrize(("n_clients", "alpha"), [(2, None), (10, None), (50, None), (10, 0.1)])
def test_labels_do_not_depend_on_where_documents_are(
    n_clients: int, alpha: float | None, at_one: NDArray[np.int64]
) -> None:
    model = trained(planned("kmeans", starts=3), spread(CORPUS, n_clients, alpha))
    assert len(model.documents) == n_clients
    np.testing.assert_array_equal(model.main_topics(CORPUS), at_one)


def test_they_are_the_clusters_there_are(at_one: NDArray[np.int64]) -> None:
    assert clustering_accuracy(labels_of(CORPUS), at_one) > 0.75


@pytest.mark.parametrize("how", WAYS)
def test_permuted_clients_and_another_engine_have_the_same_bits(
    how: dict[str, Any], tmp_path: Path
) -> None:
    corpora, plan = spread(blobs(150), 3), planned("kmeans", max_rounds=5, **how)
    assert_same_however_carried(plan, corpora, tmp_path)


def test_the_best_of_starts_that_arrive_at_one_result_is_the_first() -> None:
    """Their distances are the same but for rounding, which depends on who has the documents."""
    distances = np.array([3.0, 1.0 + 1e-15, 1.0])
    state = Partition(
        centres=np.arange(24.0).reshape(3, 2, 4),
        sums=np.zeros((3, 2, 4)),
        counts=np.zeros((3, 2)),
        starts=np.arange(3),
        distances=distances,
    )
    assert state.best(1).starts.tolist() == [1]
    assert_same(state.best(1).centres, state.centres[1:2])
    assert_same(state.best(2).centres, state.centres[1:])


# Runs


@pytest.mark.parametrize("stop", [1, 12, 14])
def test_an_interrupted_run_goes_on_with_the_same_bits(stop: int, tmp_path: Path) -> None:
    corpora = spread(CORPUS, 2)
    plan = planned("kmeans", max_rounds=15).model_copy(update={"checkpoint_every": 2})
    whole = trained(plan, corpora)
    assert whole.info["rounds"] == 15, "not at rest before"
    assert_same_result(gone_on(plan, corpora, tmp_path, stop), whole)


@pytest.mark.parametrize("max_rounds", [11, 12, 100])
def test_a_run_that_is_done_is_not_worked_again(max_rounds: int, tmp_path: Path) -> None:
    corpora = spread(blobs(200), 2)
    plan = planned("kmeans", max_rounds=max_rounds).model_copy(update={"checkpoint_every": 1})
    assert_not_worked_again(plan, corpora, tmp_path)


def test_events_of_rounds() -> None:
    events: list[dict[str, Any]] = []
    model = trained(planned("kmeans"), spread(blobs(200), 2), on_event=events.append)
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == list(range(1, model.info["rounds"] + 1))
    assert {event["documents"] for event in rounds} == {200}
    (stopped,) = [event for event in events if event["event"] == "stopped"]
    assert stopped["round"] == len(rounds), "at rest"
    assert stopped["reason"] == "what is trained changed by 0.00e+00, less than the tolerance"
    losses = [event["loss"] for event in rounds]
    assert losses == sorted(losses, reverse=True)


# k-FED


def reply(centres: list[list[float]], counts: list[float]) -> dict[str, Any]:
    return {"centres": np.array(centres).reshape(-1, 2), "counts": np.array(counts)}


def test_centres_of_clients_are_merged() -> None:
    replies = {
        "b": reply([[0, 1], [10, 0]], [30, 10]),
        "a": reply([[0, 0], [9, 0]], [10, 30]),
        "c": reply([[0, 8], [1, 8]], [1, 3]),
    }
    # a's centres, then the one furthest from them: [1, 8]; means by documents.
    merged = [[0, 0.75], [9.25, 0], [0.75, 8]]
    np.testing.assert_allclose(merge_centres(replies, 3), merged)
    # Then [0, 8] and [0, 1] and [10, 0] are as far as 1 from one: the first of them, b's.
    four = [[0, 0], [9.25, 0], [0.75, 8], [0, 1]]
    np.testing.assert_allclose(merge_centres(replies, 4), four)
    np.testing.assert_allclose(merge_centres(replies, 2)[1], [9.25, 0])


def test_centres_when_the_first_client_has_none_or_more_than_enough() -> None:
    replies = {"a": reply([], []), "b": reply([[0, 0], [0, 4], [7, 0]], [1, 2, 3])}
    np.testing.assert_allclose(merge_centres(replies, 3), [[0, 0], [7, 0], [0, 4]])
    np.testing.assert_allclose(merge_centres(replies, 2), [[0, 8 / 3], [7, 0]])


def test_centres_that_are_the_same() -> None:
    replies = {"a": reply([[1, 1], [1, 1]], [1, 1]), "b": reply([[1, 1]], [2])}
    np.testing.assert_allclose(merge_centres(replies, 3), [[1, 1]] * 3)


def test_fewer_centres_than_clusters() -> None:
    with pytest.raises(
        StudyError, match=r"have 2 clusters of enough documents .* n_components = 3"
    ):
        merge_centres({"a": reply([[0, 0]], [5]), "b": reply([[1, 0]], [5])}, 3)


@pytest.mark.parametrize("preset", ["fbow", "ftfidf"])
def test_clusters_of_words(preset: str) -> None:
    corpus = blobs(200)
    model = trained(planned("kmeans", preset=preset), spread(corpus, 2))
    assert not model.inference.sees_embedding
    bare = texts_of(corpus)
    assert clustering_accuracy(labels_of(corpus), model.main_topics(bare)) > 0.8
    families = [{word.rstrip("0123456789") for word in words} for words in model.topics(3)]
    assert sum(len(family) == 1 for family in families) >= 3


def test_rare_words_weigh_more_in_tfidf() -> None:
    corpora = spread(blobs(200), 2)
    model = trained(planned("kmeans", preset="ftfidf"), corpora)
    frequency = model.vocabulary.document_frequency
    expected = np.log(201 / (1 + frequency)) + 1
    np.testing.assert_allclose(model.weights["origin"], expected)
    bow = trained(planned("kmeans", preset="fbow"), corpora)
    np.testing.assert_array_equal(bow.weights["origin"], np.ones(len(bow.vocabulary)))


# What leaves


def test_every_function_says_what_leaves() -> None:
    for name in METHODS.names:
        method = find_method(name)
        exchanges = method.exchanges(method.settings())
        assert {"shares", "word_sums", "pairs"} <= {exchange.function for exchange in exchanges}
        assert all(exchange.leaves and exchange.often for exchange in exchanges)


@pytest.mark.parametrize("how", WAYS)
def test_what_a_study_announces_is_what_it_asks_for(
    how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = overheard(monkeypatch)
    plan = planned("kmeans", **how)
    trained(plan, spread(blobs(100), 2))
    asked = {function for _, function, _, _ in messages.calls}
    assert asked == find_method("kmeans").client.schedule(plan.method).keys()


def asked(
    client: Any, vocabulary: str, centres: NDArray[np.float64], starts: list[int] | None = None
) -> dict[str, Any]:
    origin = np.zeros(centres.shape[2])
    starts = starts or list(range(len(centres)))
    given = {"round": 1, "origin": origin, "centres": centres, "starts": starts, "half": ALL}
    found: dict[str, Any] = client.cluster_sums(vocabulary, **given)
    return found


def test_a_cluster_of_few_documents_is_not_told() -> None:
    client, vocabulary = each_apart(12, Policy(min_documents=5))
    centres = np.zeros((1, 3, 12))
    centres[0, 0, :7] = centres[0, 1, 7:11] = centres[0, 2, 11] = 1
    centres /= np.linalg.norm(centres, axis=2, keepdims=True)
    told = asked(client, vocabulary, centres)
    assert told["counts"].tolist() == [[7, 0, 0]]
    assert told["sums"][0, 0].tolist() == [1] * 7 + [0] * 5
    assert not told["sums"][0, 1:].any()
    assert told["documents"] == 12


@pytest.mark.parametrize(("least", "size", "unclear"), [(4, 8, 4), (5, 8, 0), (9, 0, 0)])
def test_sizes_are_told_only_of_enough_documents(least: int, size: int, unclear: int) -> None:
    client, vocabulary = each_apart(12, Policy(min_documents=least), temperature=0.01)
    centres = np.zeros((3, 12))
    centres[0, :8] = 0.125  # the others are as near to the one as to the other
    told = client.sizes(vocabulary, {"origin": np.zeros(12), "centres": centres})
    assert (told["sizes"].tolist(), told["unclear"]) == ([size, 0, 0], unclear)
    assert told["documents"] == 12


def members(told: dict[str, Any]) -> NDArray[np.bool_]:
    """Whose points are in which sum, shape (n_starts, n_clusters, n_documents)."""
    assert set(np.unique(told["sums"])) <= {0.0, 1.0}
    found: NDArray[np.bool_] = told["sums"] > 0.5
    np.testing.assert_array_equal(found.sum(2), told["counts"])
    return found


@pytest.mark.parametrize("least", [2, 5])
def test_between_two_replies_no_or_many_documents_change_place(least: int) -> None:
    rng = np.random.default_rng(0)
    client, vocabulary = each_apart(60, Policy(min_documents=least))
    centres = rng.normal(size=(3, 4, 60))
    before = members(asked(client, vocabulary, centres))
    sizes = []
    for _ in range(60):
        centres = centres + 0.1 * rng.normal(size=centres.shape)
        now = members(asked(client, vocabulary, centres))
        changed = (before ^ now).sum(2)
        assert not ((changed > 0) & (changed < least)).any()
        sizes += changed.ravel().tolist()
        before = now
    assert 0 in sizes
    assert max(sizes) >= least


def test_between_two_replies_of_the_start_that_goes_on_alone() -> None:
    """It is in another place of the message when the others are left out."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        client, vocabulary = each_apart(60, Policy(min_documents=5))
        centres = rng.normal(size=(3, 4, 60))
        before = members(asked(client, vocabulary, centres))[2]
        moved = centres[2:] + 0.05 * rng.normal(size=(1, 4, 60))
        changed = (before ^ members(asked(client, vocabulary, moved, [2]))[0]).sum(1)
        assert not ((changed > 0) & (changed < 5)).any()


def test_where_one_document_is_enough_nothing_is_held_back() -> None:
    rng = np.random.default_rng(0)
    client, vocabulary = each_apart(60, OPEN_POLICY)
    for _ in range(5):
        centres = rng.normal(size=(1, 4, 60))
        told = members(asked(client, vocabulary, centres))
        nearest = ((np.eye(60)[:, None] - centres) ** 2).sum(2).argmin(1)
        np.testing.assert_array_equal(told[0], nearest == np.arange(4)[:, None])


def test_own_centres_are_of_enough_documents() -> None:
    rng = np.random.default_rng(0)
    near = np.repeat([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [12, 8, 3], axis=0)
    corpus = corpus_of(near + 1e-3 * rng.normal(size=near.shape))
    plan = planned("kmeans", algorithm="k-fed", n_components=3, embedding={"dimension": 2})

    def told(least: int) -> dict[str, Any]:
        client, vocabulary = half(plan, corpus, Policy(min_documents=least))
        found: dict[str, Any] = client.own_centres(vocabulary, 1, np.zeros(2))
        return found

    assert sorted(told(1)["counts"].tolist()) == [3, 8, 12]
    assert sorted(told(5)["counts"].tolist()) == [8, 12], "one of 3 is left out"
    assert sorted(told(10)["counts"].tolist()) in ([11, 12], [12], [15]), "no more than 23 // 10"
    none = told(24)
    assert (none["centres"].shape, none["counts"].shape, none["documents"]) == ((0, 2), (0,), 0)
    assert_same(told(5), told(5))
    order = np.argsort(told(5)["counts"])
    np.testing.assert_allclose(told(5)["centres"][order], [[0, 1], [1, 0]], atol=2e-3)


@pytest.mark.parametrize("how", WAYS)
def test_no_embedding_and_no_rare_word_leaves(
    how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned("kmeans", **how)
    messages = assert_nothing_else_leaves(plan, tmp_path, monkeypatch)
    for function, name in (("cluster_sums", "client-1"), ("own_centres", "client-2")):
        for told in messages.of(function, name):
            assert ((told["counts"] == 0) | (told["counts"] >= 10)).all()
    rows = summarise_ledger(tmp_path / "clients" / "client-1" / "ledger.jsonl")
    assert {row["function"] for row in rows} == {call[1] for call in messages.calls}
    wanted = {
        "before", "time", "what", "study", "run", "method", "client", "round", "function", "moment",
        "payload", "documents", "fields", "bytes", "sha256",
    }  # fmt: skip
    lines = lines_that_left(tmp_path / "clients" / "client-1" / "ledger.jsonl")
    assert all(line.keys() - {"words"} == wanted for line in lines)


# Corpora that are none, or hardly any


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("case", ODD)
def test_odd_corpora(case: str, how: dict[str, Any]) -> None:
    plan, corpora = planned("kmeans", **how), ODD[case]()
    if case == "two texts" and how == {"algorithm": "k-fed"}:
        with pytest.raises(StudyError, match="have 4 clusters of enough documents together"):
            trained(plan, corpora)
    else:
        assert_sound(trained(plan, corpora), corpora)


@pytest.mark.parametrize("how", WAYS)
def test_two_clusters(how: dict[str, Any]) -> None:
    corpora = spread(blobs(60, 2), 2)
    model = trained(planned("kmeans", n_components=2, **how), corpora)
    assert_sound(model, corpora)
    assert accuracy(model, corpora) == 1


def test_more_clusters_than_documents_of_a_client() -> None:
    corpora = spread(blobs(300), 3)
    model = trained(planned("kmeans", n_components=200, starts=2), corpora)
    assert_sound(model, corpora)
    assert sum(model.info["unclear"].values()) == 300, "between so many clusters"


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("policy", [OPEN_POLICY, Policy()], ids=["open", "usual"])
def test_more_clusters_than_documents(how: dict[str, Any], policy: Policy) -> None:
    corpora = spread(blobs(120), 2)
    message = r"fewer than n_components = 200; ask for fewer, or give more documents\."
    with pytest.raises(StudyError, match=message):
        train(
            planned("kmeans", n_components=200, starts=1, **how),
            corpora,
            policies=dict.fromkeys(corpora, policy),
        )


def test_clusters_of_which_no_client_has_enough_documents() -> None:
    plan = planned("kmeans", n_components=50, starts=2)
    with pytest.raises(StudyError, match="No cluster has as many documents as a policy asks for"):
        train(
            plan,
            spread(blobs(60, spread=5.0), 2),
            policies=dict.fromkeys(("client-1", "client-2"), Policy(min_documents=25)),
        )


@pytest.mark.parametrize("how", WAYS)
def test_documents_that_are_all_the_same(how: dict[str, Any]) -> None:
    one = corpus_of(np.tile(np.arange(DIMENSION), (40, 1)), texts=[["a", "b"]] * 40)
    # Another computer's embedding of the same text has other last bits.
    other = corpus_of(np.tile(np.arange(DIMENSION) + 1e-6, (40, 1)), texts=[["a", "b"]] * 40)
    for corpora in ({"a": one, "b": one}, {"a": one, "b": other}):
        with pytest.raises(StudyError, match=r"documents that differ|more documents"):
            trained(planned("kmeans", **how), corpora)


def test_empty_documents_alone() -> None:
    with pytest.raises(DataError, match="Client 'a': No word occurs in 1 or more of the 20"):
        trained(planned("kmeans"), {"a": empty(20), "b": empty(20)})


@pytest.mark.parametrize("algorithm", ["lloyd", "k-fed"])
def test_documents_without_embeddings(algorithm: str) -> None:
    nothing = corpus_of(np.zeros((20, DIMENSION)))
    with pytest.raises(StudyError, match=r"more documents|documents that differ"):
        trained(planned("kmeans", algorithm=algorithm), {"a": nothing, "b": nothing})
    corpora = {"a": nothing, "b": blobs(60)}
    model = trained(planned("kmeans", algorithm=algorithm), corpora)
    assert model.main_topics(nothing).tolist() == [-1] * 20
    assert model.documents == {"a": 0, "b": 60}
