"""How clusters are found among new documents, by hand; and models of them, saved and read again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.inference import vectors
from fedtopics.inference.clusters import (
    SMOOTHING,
    Centres,
    ClusterInference,
    ClusterShape,
    Consensus,
    ConsensusShape,
    Discriminants,
    centred,
)
from fedtopics.inference.trained_clusters import Adapted, AdapterShape
from fedtopics.model.topic_model import TopicModel
from tests.helpers.clusters import (
    CLUSTERS,
    blobs,
    corpus_of,
    half,
    planned,
    spread,
    texts_of,
    trained,
)
from tests.helpers.federation import assert_same, assert_same_bits


def shape(**given: Any) -> dict[str, Any]:
    return {"n_components": 3, "embedding": {"dimension": 2}, "temperature": 0.5} | given


def shares_of(inference: ClusterInference, weights: dict[str, Any], points: Any) -> Any:
    return np.concatenate([shares for _, shares in inference.memberships(weights, points)])


def softmax_of(scores: Any) -> Any:
    exponential = np.exp(np.asarray(scores))
    return exponential / exponential.sum(1, keepdims=True)


def test_what_is_the_mean_but_for_its_last_bits_has_no_direction() -> None:
    embeddings = np.array([[0.6, 0.8], [0.6 + 1e-7, 0.8 - 1e-7], [0.6 + 1e-4, 0.8]], np.float32)
    points = centred(embeddings, np.array([0.6, 0.8]))
    assert not points[:2].any()
    np.testing.assert_allclose(points[2], [1, 0], atol=1e-3)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_memberships_by_the_nearest_centre(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 2)
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    centres = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    inference = Centres(3, ClusterShape(**shape()))
    np.testing.assert_allclose(
        shares_of(inference, {"centres": centres}, kind(points)),
        softmax_of(-((points[:, None] - centres) ** 2).sum(2) / 2 / 0.5),
    )


def test_memberships_by_discriminants() -> None:
    points = np.array([[3.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    weights = {
        "projection": np.array([[2.0, 0.0], [0.0, 1.0]]),
        "directions": np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]),
        "bias": np.array([0.0, 0.0, 1.0]),
    }
    scores = np.array([[2, 0, 0], [0, 2, -2], [0, 0, 0]]) + weights["bias"]
    inference = Discriminants(3, ClusterShape(**shape()))
    np.testing.assert_allclose(shares_of(inference, weights, points), softmax_of(scores))
    assert inference.shapes() == {
        "origin": (2,),
        "projection": (2, 2),
        "directions": (3, 2),
        "bias": (3,),
    }


def test_memberships_by_a_network() -> None:
    inference = Adapted(3, AdapterShape(**shape(hidden=1)))
    weights = {
        "origin": np.zeros(2),
        "adapter_in": np.array([[1.0], [-1.0]]),
        "adapter_bias": np.array([0.5]),
        "adapter_out": np.array([[2.0, 0.0]]),
        "head": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "head_bias": np.array([0.0, 0.0, -1.0]),
    }
    assert {name: weight.shape for name, weight in weights.items()} == inference.shapes()
    # 1 + 2 relu(1 - 0 + 0.5) = 4; relu(0 - 1 + 0.5) = 0
    represented = np.array([[4.0, 0.0], [0.0, 1.0]])
    scores = np.stack([represented[:, 0], represented[:, 1], represented.sum(1) - 1], 1)
    np.testing.assert_allclose(shares_of(inference, weights, np.eye(2)), softmax_of(scores / 0.5))


def test_the_words_of_clusters() -> None:
    inference = Centres(2, ClusterShape(**shape()))
    given = {"origin": np.zeros(2), "centres": np.zeros((3, 2))}
    weights = inference.with_words(given, np.array([[3.0, 1.0], [0.0, 0.0], [0.0, 2.0]]))
    total = 4 + 2 * SMOOTHING
    np.testing.assert_allclose(
        weights["beta"][0], [(3 + SMOOTHING) / total, (1 + SMOOTHING) / total]
    )
    np.testing.assert_allclose(weights["beta"][1], 0.5)
    np.testing.assert_allclose(weights["beta"].sum(1), 1)
    assert inference.layout() == {
        name: (weight.shape, str(weight.dtype)) for name, weight in weights.items()
    }
    assert inference.beta(weights, {}) is weights["beta"]


SINGLE = {"word_weight": 0, "separation": {"sizes": "even"}}
METHODS: list[Any] = [
    pytest.param("kmeans", {}, Centres, id="kmeans"),
    pytest.param("kmeans", {"preset": "ftfidf"}, Centres, id="ftfidf"),
    pytest.param("discriminative", {}, Consensus, id="discriminative"),
    pytest.param("discriminative", {"word_weight": 0}, Consensus, id="without words"),
    pytest.param("discriminative", SINGLE, Discriminants, id="one vectors"),
    pytest.param("fstc", {"max_rounds": 1}, Adapted, id="fstc"),
]


@pytest.mark.parametrize(("name", "method", "kind"), METHODS)
def test_a_saved_model_comes_back_to_the_bit(
    name: str, method: Any, kind: type[ClusterInference], tmp_path: Path
) -> None:
    corpus = blobs(100)
    model = trained(planned(name, **method), spread(corpus, 2))
    back = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    assert type(back.inference) is kind
    assert back.inference.settings == model.inference.settings
    assert back.inference.settings.n_components == CLUSTERS
    assert_same_bits(model, back)
    assert_same(back.transform(corpus), model.transform(corpus))
    assert_same(back.main_topics(corpus), model.main_topics(corpus))
    assert back.topics() == model.topics()
    assert {"sizes", "unclear", "method", "rounds", "seed"} <= back.info.keys()


@pytest.mark.parametrize(("name", "method", "kind"), METHODS)
def test_a_model_says_of_documents_what_their_client_says(
    name: str, method: Any, kind: type[ClusterInference]
) -> None:
    plan = planned(name, **method)
    corpus = blobs(80)
    model = trained(plan, {"a": corpus})
    client = half(plan, corpus)
    client.adopt(list(model.vocabulary.words), len(corpus), 3.0)
    client_weights = {name: weight for name, weight in model.weights.items() if name != "beta"}
    names = "word_origin", "word_means", "rarity", "word_directions"
    if word_weights := {name: client_weights[name] for name in names if name in client_weights}:
        client.function("learn_words")(**word_weights)
    ((rows, theta),) = client.thetas(weights=client_weights)
    assert rows.tolist() == list(range(80))
    np.testing.assert_allclose(model.transform(corpus), theta, rtol=1e-5, atol=1e-7)
    labels = theta.argmax(1)
    clear = theta.max(1) >= 0.5
    assert model.info["sizes"] == {"a": np.bincount(labels[clear], minlength=CLUSTERS).tolist()}
    assert model.info["unclear"] == {"a": int((~clear).sum())}
    np.testing.assert_allclose(model.shares["a"], theta.mean(0))
    np.testing.assert_allclose(
        model.word_sums, theta.T @ model.count_words(corpus).toarray(), rtol=1e-5
    )


def test_clusters_are_described_by_words_that_are_rare_elsewhere() -> None:
    corpus = blobs(300)
    texts = [[*text, "everywhere"] for text in texts_of(corpus)]
    model = trained(planned("kmeans"), {"a": corpus_of(corpus.embeddings, None, texts)})
    for words in model.topics(4):
        assert len({word.rstrip("0123456789") for word in words} - {"everywhere"}) == 1
        assert words[0] != "everywhere"
    assert all("everywhere" in words for words in model.topics(1, relevance=1.0))


def test_words_move_and_extend_embeddings() -> None:
    bag = sparse.csr_array(
        np.array([[0, 0, 3, 0], [1, 0, 1, 2], [0, 1, 0, 0], [0, 0, 0, 0]], np.float32)
    )
    weights = {
        "word_means": np.array([[0.0, 2.0], [9.0, 9.0], [0.0, 1.0], [-2.0, 0.0]], np.float32),
        "rarity": np.array([1.0, 0.0, 2.0, 2.0]),
        "word_origin": np.array([1.0, 3.0]),
        "word_directions": np.diag([1.0, 2, 3, 4]),
    }
    inference = Consensus(4, ConsensusShape(**shape(word_weight=0.6)))
    mixed = inference.mixed(np.tile([5.0, 3.0], (4, 1)), bag, weights)
    first = np.array([1 - 0.6 / 3, 0.6 / 3])  # one known word: a third of the weight
    words = np.array([-4.0, 2 + 2.0]) / np.sqrt(32)  # three: three fifths, whatever their counts
    second = np.array([1 - 0.6 * 3 / 5, 0]) + 0.6 * 3 / 5 * words
    expected = [first / np.linalg.norm(first), second / np.linalg.norm(second), [1, 0], [1, 0]]
    np.testing.assert_allclose(mixed[:, :2], expected, rtol=1e-6)
    logs = np.array([np.log(2), 0, 3 * np.log(2), 4 * np.log(3)])
    directed = [[0, 0, 1 / 3, 0], logs / np.linalg.norm(logs) * 3 / 5, [0, 1 / 3, 0, 0], [0] * 4]
    np.testing.assert_allclose(mixed[:, 2:], directed, rtol=1e-6)
    origin = np.arange(6.0)
    points = inference.points(origin, None, mixed)
    extended = 0.2 * np.array([[1 / 3], [3 / 5], [1 / 3], [0]])
    for part, share in ((slice(2), 1 - extended), (slice(2, 6), extended)):
        moved = mixed[:, part] - origin[part]
        expected = np.sqrt(share) * moved / np.linalg.norm(moved, axis=1, keepdims=True)
        np.testing.assert_allclose(points[:, part], expected, rtol=1e-5)


def test_memberships_by_a_consensus() -> None:
    rng = np.random.default_rng(0)
    settings = ConsensusShape(**shape(n_components=2, n_clusterings=2, word_weight=0))
    inference = Consensus(3, settings)
    weights = {name: rng.normal(size=size) for name, size in inference.shapes().items()}
    points = rng.normal(size=(4, 2))
    members = []
    for one in range(2):
        projected = points @ weights["projection"][one]
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        scores = projected @ weights["directions"][one].T / 0.5 + weights["bias"][one]
        members.append(softmax_of(scores))
    scores = np.hstack(members) @ weights["votes"].T + weights["sizes"]
    np.testing.assert_allclose(shares_of(inference, weights, points), softmax_of(scores))
    assert "word_means" not in inference.layout()
    with_words = Consensus(7, settings.model_copy(update={"word_weight": 0.5})).layout()
    assert with_words["word_means"] == ((7, 2), "float32")
    assert with_words["word_directions"] == ((7, 7), "float32")
    assert with_words["origin"] == ((9,), "float64")
