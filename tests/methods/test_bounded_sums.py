"""Sums with noise: what each document adds, and what is estimated from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.methods.bounded import contributions, estimates
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.bounded import DIMENSION, METHODS, PUBLIC, half_of, install, questions
from tests.helpers.encoders import unit

LEAST_REACHED = {"lda": 0.6, "nmf": 0.4}
ONE = 1 + 1e-6  # embeddings are float32


def adversarial(rng: np.random.Generator) -> tuple[list[str], Any]:
    """A document that may be anything: of one word, all words or none, long, repeated, nowhere."""
    chosen = rng.choice(PUBLIC, rng.integers(0, len(PUBLIC) + 1), replace=False)
    text = np.repeat(chosen, rng.integers(1, 1000, len(chosen)) ** rng.integers(0, 2))
    vector = rng.normal(size=DIMENSION) * rng.choice([0.0, 1e-9, 1.0, 100.0])
    return text.tolist(), vector


@pytest.mark.parametrize("name", METHODS)
def test_a_document_more_changes_each_release_by_one_at_most(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    rng = np.random.default_rng(1)
    largest: dict[str, float] = {}
    for _ in range(12):
        others = [adversarial(rng) for _ in range(3)]
        asked, found = questions(name, rng), []
        for documents in (others, [*others, adversarial(rng)]):
            texts, vectors = zip(*documents, strict=True)
            corpus = Corpus.of([*texts, ["x"]])  # one without a known word, so that none is empty
            vectors = np.array([*vectors, np.zeros(DIMENSION)], np.float32)
            half = half_of(corpus.with_embeddings(vectors), name)
            agreed = fingerprint(PUBLIC)
            replies = [getattr(half, function)(vocabulary=agreed, **how) for function, how in asked]
            found.append({field: reply[field] for reply in replies for field in reply})
        for field, before in found[0].items():
            change = float(np.linalg.norm(found[1][field] - before))
            assert change <= ONE, field
            largest[field] = max(largest.get(field, 0), change)
    # The bound is reached, but for sketches: noise is not larger than it need be.
    assert min(largest.values()) > LEAST_REACHED.get(name, 0.9), largest


def test_nearest_words() -> None:
    bag = sparse.csr_array(np.array([[3.0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 2]]))
    vectors = np.array([[0.0, 1], [1, 0], [0.8, 0.6], [0, 1]])
    found = contributions.nearest_words(bag, np.array([[1.0, 0], [1, 0], [1, 0]]), vectors, 2)
    half = 0.5**0.5
    np.testing.assert_allclose(found.todense(), [[0, half, half, 0], [0, 0, 0, 0], [0, 0, 0, 1]])


def test_a_triangle_is_as_long_as_the_matrix() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(5, 5))
    matrix += matrix.T
    triangle = contributions.packed(matrix)
    assert np.linalg.norm(triangle) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(contributions.unpacked(triangle, 5), matrix)


def test_a_sketch_by_hand() -> None:
    """Of two words that occur once, each row is the other's in the projection, halved."""
    bag = sparse.csr_array(np.array([[1.0, 1.0, 0.0]]))
    projection = np.array([[0.6, 0], [0, 0.8], [5, 5]])
    found = contributions.sketched(bag, np.ones(3), projection, np.ones(1))
    np.testing.assert_allclose(found, [[0, 0.4], [0.3, 0], [0, 0]], atol=1e-12)


# What the program makes of sums


def test_what_noise_hides_is_what_was_expected() -> None:
    counts = np.array([[10.0, 2.0], [3.0, 7.0]])
    expected = np.array([[9.0, 3.0], [4.0, 6.0]])
    np.testing.assert_array_equal(estimates.shrunk(counts, expected, 0.0), counts)
    np.testing.assert_allclose(estimates.shrunk(counts, expected, 1e4), expected, atol=1e-3)
    half = expected**2 * 0.1  # the least variance: here the differences are as the noise
    by_hand = expected + half / (half + 1) * (counts - expected)
    np.testing.assert_allclose(estimates.shrunk(counts, expected, 1.0), by_hand)


def test_words_that_surely_occur() -> None:
    counts = np.array([9.0, 50.0, 3.9, 0.0, 4.1])
    assert estimates.surely_there(counts, 1.0, 10).tolist() == [1, 0, 4]
    assert estimates.surely_there(counts, 1.0, 2).tolist() == [1, 0]
    assert estimates.surely_there(counts, 0.0, 10).tolist() == [1, 0, 4, 2]


def test_a_cluster_that_noise_hides_keeps_its_centre() -> None:
    centres, directions = np.eye(2), np.eye(3)[:, :2]
    sums = np.array([[0.0, 30.0, 9.0], [1.0, 0.0, 40.0]])
    moved, alive = estimates.move(centres, sums, directions, 1.0)
    np.testing.assert_allclose(moved, [[0, 1], [0, 1]])
    assert alive.tolist() == [True, False]


def test_topics_from_a_sketch() -> None:
    """Words of three topics, some of which two have in common, are told apart."""
    rng = np.random.default_rng(0)
    topics = np.zeros((40, 3))
    topics[:12, 0] = topics[10:26, 1] = topics[24:, 2] = 1
    topics /= topics.sum(0)
    texts = [rng.multinomial(30, topics[:, k]) for k in rng.integers(3, size=600)]
    bag = sparse.csr_array(np.array(texts, float))
    projection = estimates.projection(40, 5)
    sketch = contributions.sketched(bag, np.ones(40), projection, np.ones(600))
    found = estimates.first_topics(sketch, 0.0, 3)
    found /= found.sum(0)
    close = np.sqrt(found).T @ np.sqrt(topics)
    assert sorted(close.argmax(1).tolist()) == [0, 1, 2]
    assert close.max(1).min() > 0.95


def test_lengths_of_points_are_one_or_nothing() -> None:
    origin = unit(np.ones((1, 4)))[0] / 2
    points, nearest = contributions.placed(np.array([origin, 3 * origin]), origin, np.eye(4))
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), [0, 1], atol=1e-6)
    assert nearest[1] == 0
