"""How a mixture finds the topic of new documents, by hand; and a model of it, saved and read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics import Corpus, MixtureTM, TopicModel
from fedtopics.inference.mixture import Evidence, Mixture, MixtureShape, place
from fedtopics.methods.mixture.method import without_empty_topics
from fedtopics.text.embeddings import EmbeddingSettings

SHAPE = MixtureShape(
    n_components=2,
    kappa=2.0,
    word_weight=0.5,
    smoothing=0.0,
    embedding=EmbeddingSettings(dimension=2),
)
SUMS: dict[str, Any] = {
    "origin": np.zeros(2),
    "directions": np.array([[6.0, 0.0], [0.0, 2.0]]),
    "words": np.array([[9.0, 1.0], [1.0, 3.0]]),
    "weights": np.array([8.0, 4.0]),
}


def thetas_of(counts: Any, embeddings: Any) -> Any:
    evidence = Evidence.of(SUMS, SHAPE)
    bag = sparse.csr_array(np.array(counts, np.float32))
    points = place(np.array(embeddings, np.float32), evidence.origin, len(counts))
    return np.concatenate([theta for _, theta, _ in evidence.memberships(points, bag)])


def test_words_and_embeddings_say_together() -> None:
    """Odds are those of sizes, exp(kappa cos) and words to the power of their weight."""
    beta = np.array([[9.005, 1.005], [1.005, 3.005]]) / [[10.01], [4.01]]
    theta = thetas_of([[0, 0], [2, 0], [0, 0], [1, 1]], [[0, 0], [0, 0], [1, 0], [0, 3]])
    words = np.sqrt(beta[0] / beta[1])
    odds = 9 / 5 * np.array([1, words[0] ** 2, np.exp(2), words.prod() * np.exp(-2)])
    np.testing.assert_allclose(theta[:, 0] / theta[:, 1], odds, rtol=1e-6)


def test_a_model_is_saved_and_read(tmp_path: Path) -> None:
    texts = [["oak", "elm"], ["ketch", "yawl"]] * 30
    vectors = np.tile([[1.0, 0.1], [0.1, 1.0]], (30, 1)) + 0.01 * np.arange(60)[:, None] % 0.07
    corpus = Corpus.of(texts).with_embeddings(vectors)
    model = MixtureTM(2, embedding_dimension=2, stop_words="none").fit(corpus).model_
    assert isinstance(model.inference, Mixture)
    again = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    np.testing.assert_array_equal(again.beta, model.beta)
    np.testing.assert_array_equal(again.transform(corpus), model.transform(corpus))
    theta = again.transform(corpus)
    assert theta[0].argmax() != theta[1].argmax()
    assert again.transform(corpus, refine=True)[0].argmax() == theta[0].argmax()
    only = Corpus.of([["oak"], ["unknown"], []]).with_embeddings(
        np.array([[0, 0], [0.1, 1], [0, 0]])
    )
    odd = again.transform(only)
    assert odd[0].argmax() == theta[0].argmax()
    assert odd[1].argmax() == theta[1].argmax()
    np.testing.assert_allclose(odd[2], 0.5)
    assert again.main_topics(only)[2] == -1


def test_topics_without_documents_are_left_out() -> None:
    """Their words are those of others; an origin has no topics."""
    sums = {
        "origin": np.ones(2),
        "directions": np.eye(3)[:, :2],
        "words": np.arange(6.0).reshape(3, 2),
        "weights": np.array([10.0, 0.0, 20.0]),
    }
    with pytest.warns(UserWarning, match="1 of 3 topics have too few documents, and are left"):
        left = without_empty_topics(sums)
    assert {name: array.tolist() for name, array in left.items()} == {
        "origin": [1, 1],
        "directions": [[1, 0], [0, 0]],
        "words": [[0, 1], [4, 5]],
        "weights": [10, 20],
    }
    assert without_empty_topics(left)["weights"].tolist() == [10, 20]
