"""Noisy numbers of words by topic, and what is known without them: the better of both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import TINY, Numbers

CLEAR = 4.0  # standard deviations of noise, from which a word surely occurs
BINS = 25  # of cosines, and one more of the largest hundredth
FEWEST = 20  # pairs of word and cluster in that
LEAST_COUNT = 1e-6
FEWEST_OF_CLUSTER = 0.002  # of all words: the smallest a cluster is taken to be
SPREAD = 0.1, 20.0  # least and largest variance of a count, relative to its square


def surely_there(counts: Numbers, sigma: float, most: int) -> NDArray[np.int64]:
    """Return the columns of the words that surely occur, the most frequent first."""
    order = np.argsort(-counts, kind="stable")[:most]
    return np.asarray(order[counts[order] > max(CLEAR * sigma, TINY)])


def expected_by_chance(
    counts: Numbers, sigma: float, overall: Numbers, overall_sigma: float
) -> Numbers:
    """Return how often words would be in clusters if all clusters had the same words.

    How frequent a word is, two releases say that each have noise: `counts` (n_words, n_clusters)
    and `overall` (n_words,).
    """
    frequency = counts.sum(1)
    if sigma:
        scale = frequency.sum() / overall.sum()
        of_counts = 1 / (counts.shape[1] * sigma**2)
        of_overall = 1 / (overall_sigma * scale) ** 2
        both = frequency * of_counts + overall * scale * of_overall
        frequency = np.maximum(both / (of_counts + of_overall), overall_sigma / 2)
    sizes = np.maximum(counts.sum(0), FEWEST_OF_CLUSTER * np.abs(counts).sum())
    return np.outer(frequency, sizes / sizes.sum())


def by_closeness(counts: Numbers, chance: Numbers, close: Numbers) -> Numbers:
    """Return what counts are expected to be by how close the vectors of word and cluster are.

    One curve for all pairs of both: how much more often than by chance a word occurs, as a function
    of the cosine, that never falls.
    """
    flat, by_chance, cosines = counts.ravel(), chance.ravel(), close.ravel()
    order = np.argsort(cosines, kind="stable")
    bins = [*np.array_split(order, BINS), order[-max(len(order) // 100, FEWEST) :]]
    places = [cosines[part].mean() for part in bins]
    lifts = [max(flat[part].sum(), 0) / max(by_chance[part].sum(), TINY) for part in bins]
    return chance * np.interp(close, places, np.maximum.accumulate(lifts))


def shrunk(counts: Numbers, expected: Numbers, sigma: float) -> Numbers:
    """Move noisy counts towards what is expected, as far as the noise makes it right.

    Counts are taken to differ from what is expected by a normal number in proportion to it, whose
    variance is what they differ by more than noise does (empirical Bayes).
    """
    if not sigma:
        return counts
    expected = np.maximum(expected, LEAST_COUNT)
    excess = ((counts - expected) ** 2 - sigma**2).sum() / (expected**2).sum()
    variance = np.clip(excess, *SPREAD) * expected**2
    found = expected + variance / (variance + sigma**2) * (counts - expected)
    return np.asarray(np.maximum(found, 0))


def normalised(counts: Numbers, more: float) -> Numbers:
    """Return topics (n_words, n_topics) of counts and so many more of each word; columns sum to 1.

    The array is contiguous, as inference takes it.
    """
    smooth = counts + more
    return np.ascontiguousarray(smooth / smooth.sum(0))
