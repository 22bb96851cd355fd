"""Clusters of vectors from sums alone: memberships where the vectors are, centres where sums meet.

A sum over documents is the same however they are spread over clients, and so is what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Points = Any  # A row a document: an array of embeddings, or a sparse bag of words (CSR)
Numbers = NDArray[np.float64]
BLOCK = 4096  # rows that are computed with in float64 at a time
TINY = 1e-12
DIGITS = 6  # in which one clustering is better than another


def blocks(points: Points) -> Iterator[tuple[slice, Any]]:
    """Yield rows in float64, some thousand at a time, and where they are."""
    for start in range(0, points.shape[0], BLOCK):
        rows = slice(start, min(start + BLOCK, points.shape[0]))
        yield rows, points[rows].astype(np.float64)


def unit_rows(rows: Numbers) -> Numbers:
    """Bring rows to length 1; a row of zeros stays."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), TINY))


def of_unit_length(points: sparse.csr_array) -> sparse.csr_array:
    """Bring the rows of a sparse matrix to length 1, in place; a row of zeros stays."""
    length = np.sqrt(np.asarray(points.multiply(points).sum(1)).ravel())
    points.data /= np.repeat(np.where(length > 0, length, 1), np.diff(points.indptr))
    return points


def softmax(scores: Numbers) -> Numbers:
    """Turn rows of scores into rows that sum to 1."""
    exponential = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(exponential / exponential.sum(1, keepdims=True))


@dataclass(frozen=True)
class Moments:
    """The number of vectors, their mean (n_dimensions,) and their covariance matrix."""

    count: int
    mean: Numbers
    scatter: Numbers

    @classmethod
    def of(cls, count: int, total: Numbers, products: Numbers) -> Moments:
        """Make them of the vectors' sum and the sum of their outer products."""
        mean = total / count
        return cls(count, mean, products / count - np.outer(mean, mean))

    @property
    def length(self) -> float:
        """Root of the mean square of the vectors' lengths."""
        return float(np.sqrt(np.trace(self.scatter) + self.mean @ self.mean))

    def draw(self, n: int, rng: np.random.Generator) -> Numbers:
        """Draw vectors from the normal distribution with these moments, shape (n, n_dimensions)."""
        values, vectors = np.linalg.eigh(self.scatter)
        spread = vectors * np.sqrt(np.maximum(values, 0))
        return np.asarray(self.mean + rng.standard_normal((n, len(self.mean))) @ spread.T)


def closeness(points: Any, centres: Numbers) -> Numbers:
    """Return -|x - c|^2 / 2 of points and centres, but for what is the same for all centres."""
    return np.asarray(points @ centres.T - (centres**2).sum(1) / 2)


def nearest(points: Points, centres: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """Return the nearest centre of each point, and the squared distance to it."""
    labels = np.zeros(points.shape[0], np.int64)
    distances = np.zeros(points.shape[0])
    for rows, block in blocks(points):
        close = closeness(block, centres)
        labels[rows] = close.argmax(1)
        distances[rows] = (block * block).sum(1) - 2 * close.max(1)
    return labels, np.maximum(distances, 0)


def sums_by_label(points: Points, labels: NDArray[np.int64], n: int) -> tuple[Numbers, Numbers]:
    """Sum the points of each label, shape (n, n_dimensions), and count them, shape (n,)."""
    total = np.zeros((n, points.shape[1]))
    for rows, block in blocks(points):
        chosen = labels[rows]
        one_hot = sparse.csr_array(
            (np.ones(len(chosen)), chosen, np.arange(len(chosen) + 1)), (len(chosen), n)
        )
        total += one_hot.T @ block
    return total, np.bincount(labels, minlength=n).astype(np.float64)


def ranked(values: Numbers) -> NDArray[np.int64]:
    """Return the order from the smallest on; the first of a draw, but for rounding, comes first.

    Starts that arrived at the same clusters differ in last digits, by where the documents are.
    """
    largest = max(np.abs(values).max(initial=0), TINY)
    return np.asarray(np.argsort(np.round(values / largest, DIGITS), kind="stable"))


def flows(before: NDArray[np.int64], now: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Count the points by the cluster that they come from and where they go, shape (n, n)."""
    return np.bincount(before * n + now, minlength=n * n).reshape(n, n)


def may_move(counts: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """Return from where to where points of these `flows` move, if `least` join or leave a cluster.

    What is put back leaves fewer moves elsewhere.
    """
    moves = counts * ~np.eye(len(counts), dtype=bool)
    may = np.ones(counts.shape, bool)
    while True:
        few = moves.sum(0) + moves.sum(1) < least
        back = (moves > 0) & (few[:, None] | few)
        if not back.any():
            return may
        may &= ~back
        moves[back] = 0


def weighted_sums(
    points: Points, memberships: Iterator[tuple[slice, Numbers]], n: int
) -> tuple[Numbers, Numbers]:
    """Sum the points by their membership of each of n clusters, and the memberships."""
    total, weights = np.zeros((n, points.shape[1])), np.zeros(n)
    for rows, share in memberships:
        total += share.T @ points[rows].astype(np.float64)
        weights += share.sum(0)
    return total, weights


@dataclass(frozen=True)
class Discriminant:
    """A projection in which clusters are far apart for their width, and their directions in it."""

    projection: Numbers  # (n_dimensions, n_directions)
    directions: Numbers  # of unit length, (n_clusters, n_directions)
    bias: Numbers  # makes clusters larger or smaller, (n_clusters,)
    temperature: float

    def memberships(self, points: Points) -> Iterator[tuple[slice, Numbers]]:
        """Yield the points' probabilities of each cluster, rows that sum to 1."""
        for rows, block in blocks(points):
            yield rows, softmax(self.scores(block))

    def scores(self, points: Any) -> Numbers:
        """Return how near each direction is to points."""
        projected = unit_rows(points @ self.projection)
        return projected @ self.directions.T / self.temperature + self.bias


def discriminate(
    sums: Numbers, weights: Numbers, moments: Moments, shrinkage: float
) -> tuple[Numbers, Numbers, float]:
    """Find the projection in which clusters are furthest apart for their width (Fisher's).

    Sums (n_clusters, n_dimensions) are of the points by their membership, weights (n_clusters,) of
    the memberships, moments of all points. `shrinkage` times the mean variance of all points is
    added to the variances within clusters; it may exceed 1.

    Returns the projection (n_dimensions, n_directions): the leading solutions of S_B a = l S_W a,
    n_clusters - 1 or n_dimensions, scaled to variance 1 within clusters, zeros where clusters do
    not differ; the clusters' means in it, of unit length; and how far clusters are apart for their
    width, the trace of S_W^-1 S_B.
    """
    n_clusters, n_dimensions = sums.shape
    means = sums / np.maximum(weights, TINY)[:, None]
    # S_B = H H': of a rank below the number of clusters, so that a matrix of that size is enough.
    shares = weights / max(weights.sum(), TINY)  # the sums may be of a part of the points
    between = ((means - moments.mean) * np.sqrt(shares)[:, None]).T
    within = moments.scatter - between @ between.T
    ball = shrinkage * np.trace(moments.scatter) / n_dimensions
    within[np.diag_indices(n_dimensions)] += ball + TINY
    solved = _solve(within, between, ball + TINY)
    values, vectors = np.linalg.eigh(between.T @ solved)
    kept = np.argsort(-values)[: min(n_clusters - 1, n_dimensions)]
    scale = np.where(values[kept] > TINY, 1 / np.sqrt(np.maximum(values[kept], TINY)), 0)
    projection = solved @ (vectors[:, kept] * scale)
    return projection, unit_rows(means @ projection), float(values[kept].sum())


def _solve(within: Numbers, between: Numbers, least: float) -> Numbers:
    """Return S_W^-1 H; variances below the least, of clients that came later, are raised to it."""
    try:
        solved: Numbers = cho_solve(cho_factor(within), between)
    except LinAlgError:
        values, vectors = np.linalg.eigh(within)
        solved = vectors @ (vectors.T @ between / np.maximum(values, least)[:, None])
    return solved
