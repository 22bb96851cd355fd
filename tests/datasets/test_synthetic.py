"""Documents of known topics, and the scores that compare models with them."""

from typing import Any

import numpy as np
import pytest

from fedtopics.datasets import SyntheticClients, synthetic_lda
from fedtopics.errors import DataError, StudyError
from fedtopics.metrics import document_similarity, topic_similarity
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words


@pytest.fixture(scope="module")
def drawn() -> SyntheticClients:
    return synthetic_lda(
        n_clients=3,
        n_words=60,
        n_topics=8,
        shared_topics=2,
        eta=0.1,
        alpha=0.5,
        n_documents=2000,
        n_validation=20,
        lengths=(20, 40),
        seed=5,
    )


def test_shapes_and_distributions(drawn: SyntheticClients) -> None:
    assert drawn.beta.shape == (8, 60)
    np.testing.assert_allclose(drawn.beta.sum(1), 1)
    assert list(drawn.training) == list(drawn.validation) == ["client0", "client1", "client2"]
    for client, n in ((drawn.training["client1"], 2000), (drawn.validation["client1"], 20)):
        assert len(client) == n
        assert client.counts.shape == (n, 60)
        np.testing.assert_allclose(client.theta.sum(1), 1)


def test_lengths_are_drawn_evenly(drawn: SyntheticClients) -> None:
    values, counts = np.unique(drawn.training["client0"].counts.sum(1), return_counts=True)
    assert list(values) == list(range(20, 41))
    assert counts.min() > 0.6 * 2000 / 21


def test_clients_share_some_topics_and_have_the_others_alone(drawn: SyntheticClients) -> None:
    assert {name: rows.tolist() for name, rows in drawn.topics.items()} == {
        "client0": [0, 1, 2, 3],
        "client1": [0, 1, 4, 5],
        "client2": [0, 1, 6, 7],
    }
    for name, rows in drawn.topics.items():
        share = drawn.training[name].theta.mean(0)
        np.testing.assert_allclose(share[rows], 1 / 4, atol=0.03)
        assert share.sum() - share[rows].sum() < 1e-3


def test_alpha_is_that_of_a_clients_own_topics(drawn: SyntheticClients) -> None:
    # The variance of a component of Dirichlet(.5, .5, .5, .5) is 1/4 * 3/4 / 3.
    np.testing.assert_allclose(
        drawn.training["client2"].theta[:, [0, 1, 6, 7]].var(0), 3 / 16 / 3, rtol=0.1
    )


def test_words_follow_theta_and_beta(drawn: SyntheticClients) -> None:
    client = drawn.training["client0"]
    expected = client.counts.sum(1) @ (client.theta @ drawn.beta)
    assert np.abs(client.counts.sum(0) - expected).sum() / expected.sum() < 0.02
    # Where theta is nearly one topic, so are the words.
    words = client.counts[client.theta[:, 2] > 0.95].sum(0)
    assert topic_similarity([words / words.sum()], drawn.beta[[2]]) > 0.97


def test_the_same_seed_draws_the_same() -> None:
    small = {"n_clients": 2, "n_words": 30, "n_topics": 4, "shared_topics": 2, "n_documents": 9}
    one, other, third = (synthetic_lda(**small, seed=seed) for seed in (1, 1, 2))
    assert one.beta.tobytes() == other.beta.tobytes() != third.beta.tobytes()
    for name, client in one.training.items():
        assert (client.counts != other.training[name].counts).nnz == 0


def test_a_corpus_has_the_same_counts(drawn: SyntheticClients) -> None:
    client = drawn.validation["client0"]
    corpus = client.corpus()
    assert isinstance(corpus, Corpus)
    index = {word: column for column, word in enumerate(drawn.words)}
    assert (count_words(corpus, TextRules(), index).counts != client.counts).nnz == 0


@pytest.mark.parametrize(("topics", "shared"), [(8, 3), (8, 9), (8, -1)])
def test_topics_that_clients_cannot_share_evenly(topics: int, shared: int) -> None:
    with pytest.raises(StudyError, match="change shared_topics"):
        synthetic_lda(n_clients=3, n_words=20, n_topics=topics, shared_topics=shared)


def test_topics_of_another_order_of_words_are_aligned() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(20)]
    true = rng.dirichlet(np.full(20, 0.2), 5)
    inferred = rng.dirichlet(np.full(20, 0.2), 7)
    order = rng.permutation(20)
    mixed = [words[i] for i in order]
    assert topic_similarity(true, inferred[:, order], words, mixed) == pytest.approx(
        topic_similarity(true, inferred), abs=1e-12
    )
    assert topic_similarity(true, inferred[:, order]) != pytest.approx(
        topic_similarity(true, inferred)
    )


def test_words_that_one_model_lacks_match_nothing() -> None:
    true = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    inferred = np.array([[0.3, 0.5, 0.2]])  # of c, b, x
    expected = np.sqrt(0.5 * 0.5) + (np.sqrt(0.25 * 0.5) + np.sqrt(0.75 * 0.3))
    assert topic_similarity(true, inferred, ["a", "b", "c"], ["c", "b", "x"]) == pytest.approx(
        expected
    )


def test_document_similarity_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(4), 23)
    inferred = rng.dirichlet(np.ones(6), 23)
    whole = document_similarity(true, inferred)
    monkeypatch.setattr("fedtopics.metrics.similarity.BLOCK", 5)
    assert document_similarity(true, inferred) == pytest.approx(whole, rel=1e-12)
    w_true, w_inferred = (np.sqrt(theta) @ np.sqrt(theta).T for theta in (true, inferred))
    differences = np.abs(w_true - w_inferred)
    np.fill_diagonal(differences, 0)
    assert whole == pytest.approx(differences.sum() / 23)


@pytest.mark.parametrize(
    ("similarity", "given", "says"),
    [
        (topic_similarity, (np.eye(3), np.eye(2)), "have 3 and 2 words"),
        (
            topic_similarity,
            (np.eye(3), np.eye(2), ["a", "b", "c"], ["a", "b", "c"]),
            "There are 3 words but 2 columns",
        ),
        (document_similarity, (np.eye(3), np.eye(2)), "has 3 documents and the other 2"),
    ],
)
def test_models_that_cannot_be_compared(similarity: Any, given: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        similarity(*given)
