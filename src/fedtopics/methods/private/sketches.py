"""First topics from a noisy sketch of which words occur together.

Words that stand for one topic alone occur beside the words of that topic: rows of the co-occurrence
matrix are mixtures of a row for each topic. A random projection of few columns keeps rows apart,
and fewer numbers have less noise.

References
----------
Arora and others, A Practical Algorithm for Topic Modeling with Provable Guarantees, ICML 2013:
words far from the space of those before. Here they are clustered besides, as noise makes of a
single word a bad witness.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from fedtopics.inference.points import TINY, Numbers, unit_rows

WIDTH = 200
WELL_KNOWN, KNOWN = 6.0, 1.5  # times the noise of a row: of words to find topics by, of any
SHORTEST = 3e-3  # of the longest row: of words to find topics by
MOST_WORDS, FEWEST_OF_TOPIC = 2000, 6  # to find topics by
PURE = 0.6  # cosine, from which a word stands for one topic
ALIKE = 0.9  # cosine, from which two topics are one
PASSES, TRIES = 15, 5


def projection(n_words: int, seed: int) -> Numbers:
    """Draw the public projection (n_words, WIDTH), whose rows have about length 1."""
    drawn = np.random.default_rng(seed).standard_normal((n_words, WIDTH))
    return np.asarray(drawn / np.sqrt(WIDTH))


def first_topics(sketch: Numbers, sigma: float, n_topics: int) -> Numbers:
    """Return how much of each word is of each topic, (n_words, n_topics); 0 where noise hides it.

    The sketch (n_words, WIDTH) has noise of standard deviation sigma.
    """
    left, values, _ = np.linalg.svd(sketch, full_matrices=False)
    rows = left[:, :n_topics] * values[:n_topics]
    lengths, noise = np.linalg.norm(rows, axis=1), sigma * np.sqrt(n_topics)
    clear = int((lengths > max(WELL_KNOWN * noise, SHORTEST * lengths.max())).sum())
    number = min(max(FEWEST_OF_TOPIC * n_topics, clear), MOST_WORDS)
    chosen = np.argsort(-lengths, kind="stable")[:number]
    centres = _find_centres(unit_rows(rows[chosen]), lengths[chosen], n_topics)
    shares = np.zeros(rows.shape)
    for word in np.flatnonzero(lengths > max(KNOWN * noise, TINY)):
        shares[word] = nnls(centres.T, rows[word])[0]
    return shares


def _find_centres(directions: Numbers, weights: Numbers, n: int) -> Numbers:
    """Cluster directions of words; of two centres that are alike, look for another one."""
    centres = np.zeros((0, directions.shape[1]))
    for _ in range(TRIES):
        more = _far_apart(directions, weights, centres, n - len(centres))
        centres = _clustered(directions, weights, np.vstack([centres, more]))
        different = _different(centres, directions, weights)
        if len(different) == n:
            break
        last, centres = centres, different
    else:
        return last
    return centres


def _far_apart(directions: Numbers, weights: Numbers, given: Numbers, n: int) -> Numbers:
    """Choose directions far from the space of given ones and of each other, well known first."""
    known = np.minimum(1, weights / np.median(weights)) ** 0.5
    axes, _ = np.linalg.qr(given.T)
    left = (directions - directions @ axes @ axes.T) * known[:, None]
    chosen = []
    for _ in range(n):
        farthest = int((left**2).sum(1).argmax())
        chosen.append(directions[farthest])
        axis = unit_rows(left[farthest])
        left = left - np.outer(left @ axis, axis)
    return np.array(chosen)


def _clustered(directions: Numbers, weights: Numbers, centres: Numbers) -> Numbers:
    """Move centres to the mean of the words that stand for them alone, some times."""
    for _ in range(PASSES):
        close = directions @ centres.T
        nearest = close.argmax(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, directions * (weights * (close.max(1) > PURE))[:, None])
        some = np.linalg.norm(sums, axis=1, keepdims=True) > 0
        centres = np.where(some, unit_rows(sums), centres)
    return centres


def _different(centres: Numbers, directions: Numbers, weights: Numbers) -> Numbers:
    """Return the centres without those that are like one of more words."""
    nearest = (directions @ centres.T).argmax(1)
    order = np.argsort(-np.bincount(nearest, weights, len(centres)), kind="stable")
    kept: list[int] = []
    for centre in order:
        if not kept or (centres[kept] @ centres[centre]).max() <= ALIKE:
            kept.append(int(centre))
    return np.asarray(centres[np.sort(kept)])
