"""Compiled inference of topics: variational inference for LDA, least squares for NMF.

Both take a fixed number of steps: with a tolerance, the last bit of a sum could decide the number
of steps, and a federation would differ from training in one process. See Blei, Ng and Jordan,
JMLR 2003, section 5, and Hoffman, Blei and Bach, Online Learning for Latent Dirichlet Allocation,
NIPS 2010, algorithm 1. Other documents and threads do not change a bit of a document's result.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import digamma, gammaln

from fedtopics.extras import compiled
from fedtopics.inference import Readout
from fedtopics.inference.vectors import Numbers
from fedtopics.threads import available

CHUNK = 64  # documents that a thread takes at once


@dataclass(frozen=True)
class Posterior:
    """The posterior of n documents' topics, given their words."""

    gamma: Numbers  # parameters of each document's Dirichlet distribution, (n, n_topics)
    topics: Numbers  # exp(psi(gamma) - scale)
    scale: Numbers  # by document; prevents underflow of `topics`
    ratios: sparse.csr_array
    """Each count divided by the document's weight of the word; (n, n_words)."""

    def read(self, readout: Readout) -> Numbers:
        """Return theta, (n, n_topics): the mean, or ("root") the closest by Hellinger distance."""
        theta = (
            np.exp(2 * (gammaln(self.gamma + 0.5) - gammaln(self.gamma)))
            if readout == "root"  # the squared expectation of the roots of theta
            else self.gamma
        )
        return np.asarray(theta / theta.sum(1, keepdims=True))

    def word_counts(self, weights: Numbers) -> Numbers:
        """Return expected counts of the words that occur, by topic, (n_present, n_topics)."""
        words, columns = occurring(self.ratios)
        present = sparse.csr_array(
            (self.ratios.data, columns, self.ratios.indptr), (self.ratios.shape[0], len(words))
        )
        return np.asarray((present.T @ self.topics) * weights[words])

    def bound(self, counts: sparse.csr_array, alpha: float) -> float:
        """Return the evidence lower bound of all words in nats, without the terms of the topics."""
        total = self.gamma.sum(1)
        expected = digamma(self.gamma) - digamma(total)[:, None]
        words = counts.data @ (np.log(counts.data) - np.log(self.ratios.data))
        words += counts.sum(1) @ (self.scale - digamma(total))
        prior = ((alpha - self.gamma) * expected + gammaln(self.gamma)).sum()
        n, k = self.gamma.shape
        of_alpha = gammaln(k * alpha) - k * gammaln(alpha)
        return float(words + prior - gammaln(total).sum() + n * of_alpha)


def occurring(counts: sparse.csr_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the words that occur, ascending, and each entry's position among them."""
    places = np.zeros(counts.shape[1], np.int64)
    places[counts.indices] = 1
    words = np.flatnonzero(places)
    places[words] = np.arange(len(words))
    return words, places[counts.indices]


def infer(
    counts: sparse.csr_array,
    weights: Numbers,
    alpha: float,
    steps: int,
    start: NDArray[np.floating[Any]] | None = None,
) -> Posterior:
    """Find topics of documents, CSR (n, n_words); weights (n_words, n_topics) are never 0."""
    n = counts.shape[0]
    k = weights.shape[1]
    _check_rows(counts.shape[1], weights)
    lengths = counts.sum(1, dtype=np.float64)[:, None]
    gamma = np.empty((n, k))
    gamma[:] = alpha + lengths * (1 / k if start is None else start)
    topics = np.empty_like(gamma)
    scale = np.empty(n)
    data = counts.data.astype(np.float64)
    ratios = np.empty_like(data)
    weights = np.ascontiguousarray(weights, np.float64)
    arrays = counts.indptr, counts.indices, data, weights, gamma, topics, scale, ratios
    in_chunks(n, partial(_take_steps, *arrays, alpha, steps))
    return Posterior(
        gamma=gamma,
        topics=topics,
        scale=scale,
        ratios=sparse.csr_array((ratios, counts.indices, counts.indptr), counts.shape),
    )


def _check_rows(n: int, array: Numbers) -> None:
    """Raise ValueError unless there are n rows: compiled loops do not check what they read."""
    if len(array) != n:
        raise ValueError(f"an array for {n} words or documents has {len(array)} rows")


def in_chunks(n: int, work: Callable[[int, int], None]) -> None:
    """Call `work(first, last)` for chunks of documents, in threads."""
    chunks = range(0, n, CHUNK)
    ends = [min(first + CHUNK, n) for first in chunks]
    threads = min(available(), len(chunks))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, chunks, ends))
    else:
        list(map(work, chunks, ends))


@compiled
def _exp_digamma(gamma: Any, topics: Any) -> float:
    """Write exp(psi(gamma) - scale) into topics; return scale. It takes a third of the time."""
    # psi(x) = psi(x + 6) - 1 / x - ... - 1 / (x + 5), and the asymptotic series, without a branch.
    scale = -math.inf
    for topic in range(len(gamma)):
        x = gamma[topic]
        pairs = (2 * x + 1) / (x * (x + 1)) + (2 * x + 5) / ((x + 2) * (x + 3))
        pairs += (2 * x + 9) / ((x + 4) * (x + 5))
        y = x + 6
        square = 1 / (y * y)
        tail = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
        topics[topic] = -0.5 / y - tail - pairs
        scale = max(scale, topics[topic])
    for topic in range(len(gamma)):
        topics[topic] = (gamma[topic] + 6) * math.exp(topics[topic] - scale)
    return scale


@compiled
def _take_steps(
    ends: Any,
    words: Any,
    counts: Any,
    weights: Any,
    gamma: Any,
    topics: Any,
    scale: Any,
    ratios: Any,
    alpha: float,
    steps: int,
    first: int,
    last: int,
) -> None:
    """Take the variational steps for documents first to last - 1, in place."""
    k = weights.shape[1]
    sums = np.empty(k)
    for document in range(first, last):
        expected = topics[document]
        scale[document] = _exp_digamma(gamma[document], expected)
        for step in range(steps + 1):
            sums[:] = 0
            for place in range(ends[document], ends[document + 1]):
                row = weights[words[place]]
                weight = 0.0
                for topic in range(k):
                    weight += expected[topic] * row[topic]
                ratio = counts[place] / weight
                ratios[place] = ratio
                for topic in range(k):
                    sums[topic] += ratio * row[topic]
            if step == steps:  # the last pass only computes the ratios
                break
            for topic in range(k):
                gamma[document, topic] = alpha + expected[topic] * sums[topic]
            scale[document] = _exp_digamma(gamma[document], expected)


SWEEPS = 20  # most passes over a document's topics


def solve(points: sparse.csr_array, topics: Numbers) -> Numbers:
    """Fit topics (n_words, n_topics) to documents; return shares (n, n_topics) from 0 to 1."""
    _check_rows(points.shape[1], topics)
    shares = np.zeros((points.shape[0], topics.shape[1]))
    gram = topics.T @ topics
    in_chunks(
        len(shares),
        partial(_solve, points.indptr, points.indices, points.data, topics, gram, shares),
    )
    return shares


def add_products(points: sparse.csr_array, rows: Numbers, total: Numbers) -> None:
    """Add X' R in place: for each word, the weighted sum of its documents' rows (n, width)."""
    for n, array in zip(points.shape, (rows, total), strict=True):
        _check_rows(n, array)
    _add_products(points.indptr, points.indices, points.data, rows, total)


@compiled
def _solve(
    ends: Any, words: Any, values: Any, topics: Any, gram: Any, shares: Any, first: int, last: int
) -> None:
    """Fit one topic after the other (HALS) to documents first to last - 1, in place."""
    k = topics.shape[1]
    # The negative gradient, kept up to date: a topic whose share stays 0 costs one comparison.
    gradient = np.empty(k)
    for document in range(first, last):
        current = shares[document]
        gradient[:] = 0
        for place in range(ends[document], ends[document + 1]):
            row = topics[words[place]]
            for topic in range(k):
                gradient[topic] += values[place] * row[topic]
        for _ in range(SWEEPS):
            moved = False
            for topic in range(k):
                if gram[topic, topic] > 0:
                    share = current[topic] + gradient[topic] / gram[topic, topic]
                    step = max(share, 0.0) - current[topic]
                    if step != 0:
                        moved = True
                        current[topic] += step
                        for other in range(k):
                            gradient[other] -= step * gram[topic, other]
            if not moved:
                break
        length = 0.0
        for topic in range(k):
            length += current[topic] * current[topic]
        if length > 1:
            current /= np.sqrt(length)


@compiled
def _add_products(ends: Any, words: Any, values: Any, rows: Any, total: Any) -> None:
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1]):
            row = total[words[place]]
            for column in range(rows.shape[1]):
                row[column] += values[place] * rows[document, column]
