"""One client's LDA: where guidance leads, what is counted, and that a seed decides all."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics.errors import FedTopicsError
from fedtopics.inference.gibbs import GibbsSettings, Sampled, sample_topics

pytest.importorskip("tomotopy")

WORDS = [f"{theme}{i}" for theme in ("apple", "bread") for i in range(12)]
APPLES = {f"apple{i}": 1 / 3 for i in range(3)}
BREADS = {f"bread{i}": 1 / 3 for i in range(3)}


def planted(size: int = 150) -> sparse.csr_array:
    """Documents of two themes, each of ten words of one theme and two of both."""
    rng = np.random.default_rng(0)
    counts = np.zeros((size, 24), np.int32)
    for row, theme in zip(counts, rng.integers(2, size=size), strict=True):
        np.add.at(row, 12 * theme + rng.integers(12, size=10), 1)
        np.add.at(row, rng.integers(24, size=2), 1)
    return sparse.csr_array(counts)


def sampled(
    seeds: Sequence[Mapping[str, float]] = (), n_topics: int = 2, seed: int = 0, **given: Any
) -> Sampled:
    settings = GibbsSettings(iterations=60, **given)
    return sample_topics(planted(), WORDS, n_topics, settings, seeds, seed)


def themes(found: Sampled) -> list[set[str]]:
    """What the six first words of each topic are about."""
    topics = (found.topic(number, 6) for number in range(len(found.beta)))
    return [{word[:5] for word in topic} for topic in topics]


def same(one: Sampled, other: Sampled) -> bool:
    return one.words == other.words and all(
        getattr(one, name).tobytes() == getattr(other, name).tobytes()
        for name in ("beta", "main", "occurrences")
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_guided_topic_is_that_of_its_words(seed: int) -> None:
    apple, bread = {"apple"}, {"bread"}
    assert themes(sampled([APPLES], seed=seed)) == [apple, bread]
    assert themes(sampled([BREADS], seed=seed)) == [bread, apple]
    assert themes(sampled([APPLES, BREADS], seed=seed)) == [apple, bread]
    assert themes(sampled([BREADS, APPLES], seed=seed)) == [bread, apple]


def test_without_guidance_either_theme_is_first() -> None:
    first = [themes(sampled(seed=seed))[0] for seed in range(8)]
    assert {"apple"} in first
    assert {"bread"} in first
    assert themes(sampled([APPLES], strength=0, seed=3)) == themes(sampled(seed=3))


def test_the_same_seed_has_the_same_bits() -> None:
    assert same(sampled(seed=5), sampled(seed=5))
    assert same(sampled([BREADS], seed=5), sampled([BREADS], seed=5))
    assert not same(sampled(seed=5), sampled(seed=6))


def test_words_that_no_document_has_do_not_matter() -> None:
    more = [BREADS | {"zebra": 1 / 3}, {"yak": 1.0}]
    assert same(sampled(more, seed=1), sampled([BREADS, {}], seed=1))
    counts = sparse.csr_array(np.hstack([planted().toarray(), np.zeros((150, 1), np.int32)]))
    found = sample_topics(counts, [*WORDS, "zebra"], 2, GibbsSettings(iterations=60), [BREADS], 1)
    assert same(found, sampled([BREADS], seed=1))
    assert "zebra" not in found.words


def test_every_word_of_the_documents_is_counted() -> None:
    found = sampled([APPLES], n_topics=3)
    assert found.occurrences.sum() == pytest.approx(150 * 12)
    assert found.main.sum() == 150
    assert sorted(found.words) == sorted(WORDS)
    assert found.beta.shape == (3, 24)
    np.testing.assert_allclose(found.beta.sum(1), 1, rtol=1e-6)
    assert (found.beta > 0).all()


def test_empty_documents_are_of_no_topic() -> None:
    counts = planted().toarray()
    counts[::3] = 0
    found = sample_topics(sparse.csr_array(counts), WORDS, 2, GibbsSettings(iterations=20))
    assert found.main.sum() == 100
    assert found.occurrences.sum() == pytest.approx(100 * 12)


def test_the_first_words_of_a_topic() -> None:
    beta = np.array([[0.1, 0.3, 0.3, 0.2, 0.1]])
    found = Sampled(["a", "b", "c", "d", "e"], beta, np.array([1]), np.array([1.0]))
    assert list(found.topic(0, 2).items()) == [("b", 0.3), ("c", 0.3)]
    every = [("b", 0.3), ("c", 0.3), ("d", 0.2)]
    assert list(found.topic(0, 9).items()) == every, "what it has no more of than of any is no word"


def test_without_tomotopy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomotopy", None)
    with pytest.raises(FedTopicsError) as error:
        sampled()
    assert str(error.value) == (
        "F-LDA and guided LDA need the package tomotopy, which is not installed; install it "
        "with: pip install 'fedtopics[flda]'"
    )
