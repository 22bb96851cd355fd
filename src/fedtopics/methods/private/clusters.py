"""Clusters of documents from noisy sums: what the program makes of each exchange.

Much of it is public: which words there are, and the vectors that the encoder gives them. Documents
say how often words occur, where embeddings spread, and what is in each cluster.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import TINY, Numbers, unit_rows

FEWEST_DIRECTIONS, MOST_DIRECTIONS = 8, 48
ABOVE_NOISE = 1.2  # times the largest eigenvalue of noise alone
DEAD = 2.0  # times as long as noise alone: a cluster's sum that is shorter says nothing
STARTS = 8


def find_directions(mean: Numbers, products: Numbers, documents: float, sigma: float) -> Numbers:
    """Return the directions in which embeddings spread by more than noise, as columns.

    Noise alone, of this standard deviation on the diagonal and half the variance beside it, has
    eigenvalues of up to sqrt(2 n_dimensions) sigma (Wigner's semicircle).
    """
    values, vectors = np.linalg.eigh(products - documents * np.outer(mean, mean))
    number = MOST_DIRECTIONS
    if sigma:
        clear = values > ABOVE_NOISE * np.sqrt(2 * len(mean)) * sigma
        number = min(max(int(clear.sum()), FEWEST_DIRECTIONS), MOST_DIRECTIONS)
    return np.asarray(vectors[:, -number:])


def scatter_along(
    directions: Numbers, mean: Numbers, products: Numbers, documents: float
) -> Numbers:
    """Return the scatter along directions of points less their mean, of length 1."""
    scatter = products / documents - np.outer(mean, mean)
    return np.asarray(directions.T @ scatter @ directions / max(np.trace(scatter), TINY))


def centred_words(vectors: Numbers, frequency: Numbers) -> Numbers:
    """Return vectors of words less their mean, of length 1."""
    return unit_rows(vectors - np.average(vectors, axis=0, weights=frequency))


def first_centres(words: Numbers, frequency: Numbers, n: int, seed: int) -> Numbers:
    """Cluster words by the directions of their vectors; return the centres, of length 1."""
    from sklearn.cluster import KMeans

    kmeans = KMeans(n, n_init=STARTS, random_state=seed % 2**31)
    return unit_rows(kmeans.fit(unit_rows(words), sample_weight=frequency).cluster_centers_)


def move(
    centres: Numbers, sums: Numbers, directions: Numbers, sigma: float
) -> tuple[Numbers, NDArray[np.bool_]]:
    """Move centres (n_clusters, n_directions) to their points; return which clusters are alive.

    `sums` (n_clusters, n_dimensions) are of the points nearest to them. The others stay.
    """
    there = sums @ directions
    least = max(DEAD * sigma * np.sqrt(directions.shape[1]), TINY)
    alive = np.linalg.norm(there, axis=1) >= least
    return np.where(alive[:, None], unit_rows(there), centres), alive
