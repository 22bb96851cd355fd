"""Diversity of topics, from 0 to 1; topics are lists of words or rows of a matrix."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError


def unique_words(topics: Sequence[Sequence[str]], n_words: int = 25) -> float:
    """Return the share of distinct words among the top words of all topics.

    A topic with fewer than `n_words` words counts with all of them; without any word, the score is
    nan. See Dieng, Ruiz and Blei (2020), Topic Modeling in Embedding Spaces, section 6: topic
    diversity.

    Examples
    --------
    >>> unique_words([["tea", "milk"], ["tea", "sand"]])
    0.75
    """
    words = [word for topic in topics for word in topic[:n_words]]
    return len(set(words)) / len(words) if words else float("nan")


def mean_cosine_dissimilarity(beta: NDArray[np.floating]) -> float:
    """Return 1 minus the mean cosine of the rows of two topics, over all pairs.

    The score is nan for fewer than two topics. See the F-LDA paper (federated topic modelling with
    guided LDA), section Experiments: diversity.

    Examples
    --------
    >>> mean_cosine_dissimilarity(np.array([[1.0, 0.0], [0.0, 1.0]]))
    1.0
    """
    if len(beta) < 2:
        return float("nan")
    rows = beta / np.linalg.norm(beta, axis=1, keepdims=True)
    return float(1 - (rows @ rows.T)[np.triu_indices(len(rows), 1)].mean())


def inverted_rank_biased_overlap(
    topics: Sequence[Sequence[str]], weight: float = 0.9, n_words: int = 10
) -> float:
    """Return 1 minus the mean extrapolated rank-biased overlap of two topics, over all pairs.

    See Webber, Moffat and Zobel (2010), A Similarity Measure for Indefinite Rankings, equation 32
    (for lists of one length without ties, equation 30). The closer `weight` (the paper's p) is to
    1, the more lower ranks count. The score is nan for fewer than two topics.

    Raises
    ------
    DataError
        If topics have different numbers of words.
    StudyError
        If the weight is out of range.

    Examples
    --------
    >>> inverted_rank_biased_overlap([["tea", "milk"], ["sand", "sea"]])
    1.0
    """
    if not 0 < weight < 1:
        raise StudyError(f"weight={weight} is out of range; give a number between 0 and 1.")
    lists = [topic[:n_words] for topic in topics]
    if len({len(words) for words in lists}) > 1 or not all(lists):
        raise DataError("Topics have different numbers of words, or none; use fewer words of each.")
    if len(lists) < 2:
        return float("nan")
    overlaps = [_rank_biased_overlap(one, other, weight) for one, other in combinations(lists, 2)]
    return float(1 - np.mean(overlaps))


def _rank_biased_overlap(one: Sequence[str], other: Sequence[str], weight: float) -> float:
    """Extrapolate the overlap of two lists, assuming that the final agreement continues."""
    place = {word: depth for depth, word in enumerate(other)}
    shared_from = [max(depth, place[word]) for depth, word in enumerate(one) if word in place]
    depths = np.arange(1, len(one) + 1)
    agreement = np.bincount(shared_from, minlength=len(one)).cumsum() / depths
    discounts = weight**depths
    return float(agreement[-1] * discounts[-1] + (1 - weight) / weight * (agreement @ discounts))
