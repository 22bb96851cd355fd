"""Vectors of documents, and the clusters to which they are near."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

Points = Any  # one row per document: an array of embeddings, or a sparse bag of words (CSR)
Numbers = NDArray[np.float64]
BLOCK = 4096  # rows converted to float64 at a time
BATCH = 1024  # documents whose topics are computed at a time
TINY = 1e-12


def blocks(points: Points) -> Iterator[tuple[slice, Any]]:
    """Yield slices of rows, and these rows in float64."""
    for start in range(0, points.shape[0], BLOCK):
        rows = slice(start, min(start + BLOCK, points.shape[0]))
        yield rows, points[rows].astype(np.float64)


def batches(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of documents for which computations are done at a time."""
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def unit_rows(rows: Numbers) -> Numbers:
    """Scale rows to length 1; a row of zeros stays unchanged."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), TINY))


def of_unit_length(points: sparse.csr_array) -> sparse.csr_array:
    """Scale the rows of a sparse matrix to length 1, in place; a row of zeros stays unchanged."""
    length = np.sqrt(np.asarray(points.multiply(points).sum(1)).ravel())
    points.data /= np.repeat(np.where(length > 0, length, 1), np.diff(points.indptr))
    return points


def with_entries(points: sparse.csr_array, stay: NDArray[np.bool_]) -> sparse.csr_array:
    """Return a copy with only the entries that `stay`, in the order of the data."""
    fewer = points.copy()
    fewer.data *= stay
    fewer.eliminate_zeros()
    return fewer


def closeness(points: Any, centres: Numbers) -> Numbers:
    """Return -|x - c|^2 / 2 of points and centres, without the term equal for all centres."""
    return np.asarray(points @ centres.T - (centres**2).sum(1) / 2)


def nearest_centres(points: Points, centres: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """Return each point's nearest centre, and its squared distance."""
    labels = np.zeros(points.shape[0], np.int64)
    distances = np.zeros(points.shape[0])
    for rows, block in blocks(points):
        close = closeness(block, centres)
        labels[rows] = close.argmax(1)
        distances[rows] = (block * block).sum(1) - 2 * close.max(1)
    return labels, np.maximum(distances, 0)


@dataclass(frozen=True)
class Discriminant:
    """A projection that separates clusters, and the clusters' directions in the projection."""

    projection: Numbers  # (n_dimensions, n_directions)
    directions: Numbers  # of unit length, (n_clusters, n_directions)
    bias: Numbers  # adjusts the sizes of clusters, (n_clusters,)
    temperature: float

    def memberships(self, points: Points) -> Iterator[tuple[slice, Numbers]]:
        """Yield the points' probabilities of each cluster; rows sum to 1."""
        for rows, block in blocks(points):
            yield rows, softmax(self.scores(block), axis=1)

    def scores(self, points: Any) -> Numbers:
        """Return each point's score for each direction."""
        projected = unit_rows(points @ self.projection)
        return projected @ self.directions.T / self.temperature + self.bias
