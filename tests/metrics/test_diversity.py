"""Diversity of topics."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.errors import DataError, StudyError
from fedtopics.metrics import (
    inverted_rank_biased_overlap,
    mean_cosine_dissimilarity,
    unique_words,
)


def test_unique_words() -> None:
    topics = [["a", "b", "c"], ["a", "d", "c"], ["e", "f", "c"]]
    assert unique_words(topics) == 6 / 9
    assert unique_words(topics, n_words=2) == 5 / 6
    assert np.isnan(unique_words([]))


def test_mean_cosine_dissimilarity() -> None:
    # cosines: 1, 0.6, 0.6
    beta = np.array([[1.0, 0.0], [1.0, 0.0], [3 / 7, 4 / 7]])
    assert mean_cosine_dissimilarity(beta) == pytest.approx(1 - 2.2 / 3)
    assert np.isnan(mean_cosine_dissimilarity(beta[:1]))


def test_rank_biased_overlap_by_hand() -> None:
    # agreements 0, 1, 2/3; p = 1/2: (0 + 1/4 + 1/12) + 2/3 * 1/8
    topics = [["a", "b", "c"], ["b", "a", "d"]]
    assert inverted_rank_biased_overlap(topics, 0.5) == pytest.approx(1 - (1 / 3 + 1 / 12))


def test_rank_biased_overlap_at_the_ends() -> None:
    assert inverted_rank_biased_overlap([["a", "b"], ["a", "b"]]) == pytest.approx(0)
    assert inverted_rank_biased_overlap([["a", "b"], ["c", "d"]]) == 1
    assert inverted_rank_biased_overlap([["a", "b"], ["a", "c"]], n_words=1) == pytest.approx(0)
    assert np.isnan(inverted_rank_biased_overlap([["a", "b"]]))


def slow_overlap(one: list[str], other: list[str], p: float) -> float:
    """Webber et al., equation 32 with lists of one length."""
    agreement = [len(set(one[:d]) & set(other[:d])) / d for d in range(1, len(one) + 1)]
    seen = sum(share * p**d for d, share in enumerate(agreement, 1))
    return agreement[-1] * p ** len(one) + (1 - p) / p * seen


@pytest.mark.parametrize("weight", [0.2, 0.9])
def test_rank_biased_overlap_is_the_formula(weight: float) -> None:
    rng = np.random.default_rng(0)
    topics = [rng.permutation(list("abcdefghijklmno"))[:10].tolist() for _ in range(4)]
    pairs = [(i, j) for i in range(4) for j in range(i)]
    slow = 1 - np.mean([slow_overlap(topics[i], topics[j], weight) for i, j in pairs])
    assert inverted_rank_biased_overlap(topics, weight) == pytest.approx(slow)


def test_mistakes() -> None:
    with pytest.raises(DataError, match="differ in length"):
        inverted_rank_biased_overlap([["a"], ["a", "b"]])
    with pytest.raises(StudyError, match=r"The weight 1\.0 is out of range"):
        inverted_rank_biased_overlap([["a"], ["b"]], weight=1.0)
