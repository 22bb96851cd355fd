"""What all methods that find topics or clusters by embeddings promise, whatever they compute."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedtopics import Study, TopicModel, train
from fedtopics.errors import DataError, StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.inference.clusters import centred
from fedtopics.methods.clusters.program import ORIGIN_STEP
from fedtopics.methods.core.settings import filled
from fedtopics.methods.mixture import method as mixture_method
from fedtopics.methods.mixture.method import EMRounds
from fedtopics.methods.registry import find_method
from fedtopics.text.rounding import rounded
from tests.helpers.clusters import (
    CLUSTERS,
    DIMENSION,
    ODD,
    accuracy,
    assert_nothing_else_leaves,
    assert_same_result,
    assert_sound,
    blobs,
    corpus_of,
    empty,
    gone_on,
    half,
    labels_of,
    planned,
    spread,
    texts_of,
    trained,
)
from tests.helpers.federation import ANY_WORDS, train_and_note
from tests.helpers.noted import noted

NETWORK = {"hidden": 8, "deletion": 0, "local_steps": 10, "batch_size": 30}
TWICE = {"start": {"tries": 2}}
CASES: dict[str, dict[str, Any]] = {
    "lloyd": {"name": "kmeans", "algorithm": "lloyd"},
    "lloyd of tfidf": {"name": "kmeans", "algorithm": "lloyd", "representation": "tfidf"},
    "k-fed": {"name": "kmeans", "algorithm": "k-fed"},
    "fbow": {"name": "kmeans", "preset": "fbow"},
    "ftfidf": {"name": "kmeans", "preset": "ftfidf"},
    "discriminative": {"name": "discriminative", "max_rounds": 20, **TWICE},
    "discriminative, free": {
        "name": "discriminative",
        "separation": {"sizes": "free"},
        "word_weight": 0,
        **TWICE,
    },
    "mixture": {"name": "mixture", "max_rounds": 5, **TWICE},
    "fstc": {"name": "fstc", "max_rounds": 2},
    "fstc, frozen": {"name": "fstc", "preset": "frozen", "average_every": 1, "max_rounds": 2},
    "fsccl": {
        "name": "fsccl",
        "embedding": {"model": "x", "dimension": DIMENSION},
        "network": NETWORK,
        "max_rounds": 2,
    },
}
OF_WORDS = ("lloyd of tfidf", "fbow", "ftfidf")
every = pytest.mark.parametrize("case", CASES)


def plan_of(case: str, **method: Any) -> Study:
    return planned(**filled(method, CASES[case]))


@every
def test_permuted_clients_change_no_bit(case: str) -> None:
    """tests/federation/test_same_bits.py says the same of gRPC."""
    corpora = spread(blobs(150), 3)
    plan = plan_of(case)
    forth, back = (trained(plan, c) for c in (corpora, dict(reversed(corpora.items()))))
    assert_same_result(back, forth)
    assert back.topics() == forth.topics()


@pytest.mark.parametrize(
    ("case", "stop", "method"),
    [
        ("lloyd", 1, {}),
        ("lloyd", 12, {"max_rounds": 15}),
        ("discriminative", 4, {"max_rounds": 8}),
        ("discriminative", 24, {"max_rounds": 26}),
        ("discriminative, free", 6, {"max_rounds": 9}),
        ("mixture", 4, {"max_rounds": 6, "tolerance": 0}),
        ("fstc", 3, {"max_rounds": 4, "average_every": 2, "mixture_from": 0.3}),
        ("fsccl", 2, {"max_rounds": 3}),
    ],
)
def test_an_interrupted_run_goes_on_with_the_same_bits(
    case: str, stop: int, method: dict[str, Any], tmp_path: Path
) -> None:
    corpora = spread(blobs(300, 12, spread=2.0), 2)
    plan = plan_of(case, n_components=12, **method).model_copy(update={"checkpoint_every": 2})
    whole = trained(plan, corpora)
    assert whole.info["rounds"] >= stop
    assert_same_result(gone_on(plan, corpora, tmp_path, stop), whole)
    assert_same_result(trained(plan, corpora, out=tmp_path, resume=True), whole)


@pytest.mark.parametrize("case", [*CASES, "discriminative, candidates"])
def test_no_embedding_and_no_rare_word_leaves(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a study announces is what it asks for."""
    of = case.removesuffix(", candidates")
    more = dict[str, Any]()
    if of != case:
        more = {"separation": {"tolerance": 0.05}, "start": {"tries": 1}, "candidates": (4, 5)}
    plan = plan_of(of, **more)
    messages = assert_nothing_else_leaves(plan, tmp_path, monkeypatch)
    asked = {function for _, function, _, _ in messages.calls}
    announced = find_method(plan.method.name).client.in_study(plan.method).keys()
    assert asked ^ announced <= {"known_words", "word_products"}, (
        "of kept words, of 1,000 documents"
    )
    for function in (
        "cluster_sums",
        "own_centres",
        "first_centres",
        "adapter_sums",
        "network_changes",
    ):
        for reply in messages.of(function, "client-1"):
            if "counts" in reply:
                assert ((reply["counts"] == 0) | (reply["counts"] >= 10)).all()
    for reply in messages.of("class_sums", "client-1"):
        enough = reply["sent"] > 0
        np.testing.assert_array_equal(reply["sums"].any(2), enough)
        np.testing.assert_array_equal(reply["sent"], reply["weights"] * enough)


@pytest.mark.parametrize("corpora", ODD)
@every
def test_odd_corpora(case: str, corpora: str) -> None:
    plan = plan_of(case)
    clients = ODD[corpora]()
    if (case, corpora) == ("k-fed", "two texts"):
        with pytest.raises(StudyError, match="have only 4 clusters with enough documents"):
            trained(plan, clients)
    else:
        assert_sound(trained(plan, clients), clients)


@every
def test_two_clusters(case: str) -> None:
    corpora = spread(blobs(60, 2), 2)
    model = trained(plan_of(case, n_components=2), corpora)
    assert_sound(model, corpora)
    assert accuracy(model, corpora) > 0.95


@pytest.mark.parametrize("case", ["lloyd", "discriminative", "discriminative, free", "fstc"])
def test_more_clusters_than_documents_of_a_client(case: str) -> None:
    corpora = spread(blobs(300), 3)
    assert_sound(trained(plan_of(case, n_components=200, **TWICE), corpora), corpora)


@pytest.mark.parametrize("policy", [OPEN_POLICY, Policy()], ids=["open", "usual"])
@every
def test_more_clusters_than_documents(case: str, policy: Policy) -> None:
    corpora = spread(blobs(120), 2)
    with pytest.raises(StudyError, match=r"fewer than n_components = 200; lower n_components"):
        train(plan_of(case, n_components=200), corpora, policies=dict.fromkeys(corpora, policy))


@pytest.mark.parametrize("case", ["lloyd", "discriminative", "fstc"])
def test_clusters_of_which_no_client_has_enough_documents(case: str) -> None:
    corpora = spread(blobs(60, spread=5.0), 2)
    policies = dict.fromkeys(corpora, Policy(min_persons=25))
    with pytest.raises(StudyError, match="No cluster has as many documents as a policy requires"):
        train(plan_of(case, n_components=50, **TWICE), corpora, policies=policies)


@every
def test_documents_that_are_all_the_same_or_empty(case: str) -> None:
    texts = [["a", "b"]] * 40
    one = corpus_of(np.tile(np.arange(DIMENSION), (40, 1)), texts=texts)
    # Another computer's embedding of the same text has other last bits.
    other = corpus_of(np.tile(np.arange(DIMENSION) + 1e-6, (40, 1)), texts=texts)
    for corpora in ({"a": one, "b": one}, {"a": one, "b": other}):
        with pytest.raises(StudyError, match=r"differ|more documents|are empty, or the same"):
            trained(plan_of(case), corpora)
    with pytest.raises(DataError, match=r"Client 'a': No document has a word: the docu"):
        trained(plan_of(case), {"a": empty(20), "b": empty(20)})


@pytest.mark.parametrize("case", [case for case in CASES if case not in OF_WORDS])
def test_a_client_without_embeddings(case: str) -> None:
    nothing = corpus_of(np.zeros((20, DIMENSION)))
    plan = plan_of(case)
    clients = {"a": nothing, "b": blobs(80)}
    if case.startswith("fstc"):
        with pytest.raises(DataError, match="Client 'a': no document has an embedding"):
            trained(plan, clients)
        return
    model = trained(plan, clients)
    assert model.n_topics == CLUSTERS
    assert_sound(model, {"b": blobs(80)})
    if case != "mixture":  # for which words are enough
        assert model.documents == {"a": 0, "b": 80}
        assert model.main_topics(nothing).tolist() == [-1] * 20


CORPUS = blobs(400, 8, spread=2.0)  # that overlap: most documents are members of several
EIGHT: dict[str, Any] = {"n_components": 8, "max_rounds": 15, "start": {"tries": 2, "rounds": 10}}


@pytest.fixture(scope="module", params=["mixture", "kmeans", "discriminative"])
def plan_and_model_of_one(request: pytest.FixtureRequest) -> tuple[Study, TopicModel]:
    """A study of these documents, and its model, were all at one client."""
    plan = planned(request.param, **EIGHT)
    return plan, trained(plan, {"all": CORPUS})


@pytest.mark.parametrize(("n_clients", "alpha"), [(2, None), (10, None), (50, None), (10, 0.1)])
def test_the_model_does_not_depend_on_where_documents_are(
    n_clients: int, alpha: float | None, plan_and_model_of_one: tuple[Study, TopicModel]
) -> None:
    plan, at_one = plan_and_model_of_one
    model = trained(plan, spread(CORPUS, n_clients, alpha))
    assert len(model.documents) == n_clients
    np.testing.assert_array_equal(model.main_topics(CORPUS), at_one.main_topics(CORPUS))
    if plan.method.method_name == "mixture":
        np.testing.assert_allclose(model.beta, at_one.beta, rtol=1e-8)
        np.testing.assert_allclose(model.transform(CORPUS), at_one.transform(CORPUS), atol=1e-6)


def pooled(points: Any, bag: Any, sums: Any, method: Any, rounds: int) -> tuple[Any, Any]:
    """The algorithm in a few lines: theta, and the topics' words, summed."""
    directions = sums["directions"]
    words = sums["words"]
    weights = sums["weights"]
    for _ in range(rounds + 1):
        beta = words + 0.01 / len(words)
        beta = beta + method.smoothing * bag.shape[1] * (beta.sum(0) / beta.sum())
        beta /= beta.sum(1, keepdims=True)
        mean = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        theta = np.exp(method.kappa * points @ mean.T) * (weights + 1)
        theta *= np.exp(method.word_weight * bag @ np.log(beta).T)
        theta /= theta.sum(1, keepdims=True)
        before = words
        directions = theta.T @ points
        words = theta.T @ bag
        weights = theta.sum(0)
    return theta, before


def test_it_is_em_on_pooled_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture_method, "without_exact_sums", lambda sums, _: dict(sums))
    called = noted(monkeypatch, mixture_method, "first_sums")
    plan = planned("mixture", **EIGHT | {"max_rounds": 4, "tolerance": 0})
    model, events = train_and_note(plan, spread(CORPUS, 3), run=trained)
    ((_, begun),) = called
    embedded = np.asarray(plan.embedded(CORPUS).embeddings, np.float64)
    summed = centred(embedded, np.zeros(embedded.shape[1])).sum(0, dtype=np.float64)
    moved = np.abs(begun["origin"] * rounded(np.array(len(CORPUS))) - summed)
    assert 0.1 < moved.max() < ORIGIN_STEP, "rounded, as a mean changes with each document"
    points = centred(embedded, begun["origin"]).astype(np.float64)
    bag = model.count_words(CORPUS).toarray().astype(np.float64)
    theta, words = pooled(points, bag, sums=begun, method=plan.method, rounds=4)
    np.testing.assert_allclose(model.transform(CORPUS), theta, atol=1e-6)
    np.testing.assert_allclose(model.weights["words"], words, rtol=1e-8, atol=1e-9)
    losses = [event["loss"] for event in events.of("round")]
    assert losses == sorted(losses, reverse=True), "EM never makes it worse"


def test_words_tell_where_embeddings_do_not() -> None:
    """Two families of words have the same embeddings; words alone tell them apart."""
    corpus = blobs(400, spread=1.0)
    labels = labels_of(corpus)
    vectors = np.array(corpus.embeddings)
    vectors[labels == 1] = vectors[labels == 0].mean(0) + 0.1 * vectors[labels == 1]
    mixed = corpus_of(vectors, labels, texts_of(corpus))
    plan = planned("mixture", word_weight=1.0, n_components=5)
    assert accuracy(trained(plan, {"a": mixed}), {"a": mixed}) > 0.9


def test_topics_of_few_documents_leave_nothing() -> None:
    corpus = blobs(60, 3, spread=0.3)
    plan = planned("mixture", n_components=4, kappa=20.0)
    client = half(plan, corpus, Policy(min_persons=10, min_persons_per_word=1))
    vectors = np.array(corpus.embeddings)
    labels = labels_of(corpus)
    means = np.stack([vectors[labels == k].mean(0) for k in range(3)])
    state = {
        "origin": np.zeros(DIMENSION),
        "directions": np.vstack([means, -means.sum(0)]),
        "weights": np.ones(4),
        "words": np.zeros((4, client.bag.shape[1])),
    }
    reply = client.function("topic_sums")(1, vars(mixture_method.Evidence.of(state, plan.method)))
    few = reply["weights"] < 10
    assert few.any() and not few.all()
    assert not reply["directions"][few].any() and not reply["words"][few].any()
    assert reply["words"][~few].any(1).all()
    assert reply["weights"].sum() == pytest.approx(60)


def test_a_topic_that_nothing_is_sent_of_stays() -> None:
    plan = planned("mixture", n_components=2).method
    everybody: Any = SimpleNamespace(weight_of_earlier_sums=lambda round_: 0.0)
    before = {
        "origin": np.zeros(2),
        "directions": np.array([[1.0, 2.0], [3.0, 4.0]]),
        "words": np.ones((2, 3)),
        "weights": np.array([5.0, 6.0]),
    }
    reply = {
        "directions": np.array([[9.0, 9.0], [0.0, 0.0]]),
        "weights": np.array([10.0, 1.0]),
        "words": np.array([[7.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        "loss": 22.0,
        "documents": 11,
    }
    step = EMRounds(plan).step(everybody, before, reply, 1)
    np.testing.assert_array_equal(step.state["directions"], [[9, 9], [3, 4]])
    np.testing.assert_array_equal(step.state["words"], [[7, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(step.state["weights"], [10, 1])
    assert step.facts == {"loss": 2.0, "documents": 11}
    nothing = reply | {name: np.zeros_like(before[name]) for name in ("directions", "words")}
    with pytest.raises(StudyError, match="No cluster has as many documents as a policy"):
        EMRounds(plan).step(everybody, before, nothing, 1)


@pytest.mark.parametrize("network", ["zeroshottm", "combinedtm"])
def test_networks_begin_with_it(network: str) -> None:
    corpus = blobs(400, spread=1.0)
    still = {
        "name": "gfedntm",
        "network": network,
        "n_components": CLUSTERS,
        "hidden": (12, 12),
        "max_rounds": 1,
        "embedding": {"dimension": DIMENSION},
        "initialisation": "mixture",
        "batch_size": 100,
        "coherence": "nothing",
        "learning_rate": 1e-12,
        "optimizer": "sgd",
    }
    model = trained(Study.make(method=still, vocabulary=ANY_WORDS), spread(corpus, 3))
    assert accuracy(model, {"a": corpus}) > 0.9, "the encoder looks towards the directions"
    for topic in model.topics(4, relevance=1.0):
        assert len({word.rstrip("0123456789") for word in topic}) == 1
