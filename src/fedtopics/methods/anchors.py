"""First topics from sums: words that stand for one topic alone, and what stands beside them.

A word that occurs in the documents of a single topic is its anchor: the words beside it are the
topic's. Which words these are can be seen from co-occurrence, a matrix of n_words x n_words; its
random projection has the same geometry, and is a sum over documents.

References
----------
Arora et al., A Practical Algorithm for Topic Modeling with Provable Guarantees, ICML 2013,
algorithms 1 and 4; the estimate of co-occurrence is that of its section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import StudyError

WIDTH = 300  # of the projection
RAREST = 0.006  # an anchor's share of the documents: rarer words say too little
Ask = Callable[..., dict[str, Any]]


def projected(counts: sparse.csr_array, seed: int) -> dict[str, NDArray[np.float64]]:
    """Project the co-occurrence of a client's words on random directions.

    Parameters
    ----------
    counts : CSR array of shape (n_documents, n_words)
    seed : int
        Of the directions, which are the same for all clients.

    Returns
    -------
    mapping
        ``projections`` (n_words, WIDTH): of the co-occurrence; ``mass`` (n_words,): summed shares
        of a document's words; ``frequency`` (n_words,): documents.
    """
    rng = np.random.default_rng([seed, WIDTH])
    directions = rng.standard_normal((counts.shape[1], WIDTH)) / np.sqrt(WIDTH)
    scaled, once = _by_pairs(counts)
    beside = scaled.T @ (counts @ directions)
    beside -= once[:, None] * directions  # a word is not beside itself
    of_document = np.repeat(
        1 / np.maximum(counts.sum(1, dtype=np.float64), 1), np.diff(counts.indptr)
    )
    n_words = counts.shape[1]
    return {
        "projections": beside,
        "mass": np.bincount(counts.indices, counts.data * of_document, n_words),
        "frequency": np.bincount(counts.indices, minlength=n_words).astype(np.float64),
    }


def co_occurrences(counts: sparse.csr_array, anchors: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the co-occurrence of all words with the anchors, shape (n_words, n_anchors)."""
    scaled, once = _by_pairs(counts)
    beside = (scaled.T @ counts[:, anchors]).toarray(order="C")
    beside[anchors, np.arange(len(anchors))] -= once[anchors]
    found: NDArray[np.float64] = beside
    return found


def _by_pairs(counts: sparse.csr_array) -> tuple[sparse.csr_array, NDArray[np.float64]]:
    """Divide each document by its number of pairs of words; return that, and its column sums.

    A document of n words has n (n - 1) pairs; one of a single word has none and counts nothing.
    """
    lengths = counts.sum(1, dtype=np.float64)
    pairs = lengths * (lengths - 1)
    weights = np.divide(1, pairs, out=np.zeros_like(pairs), where=pairs > 0)
    data = counts.data * np.repeat(weights, np.diff(counts.indptr))
    scaled = sparse.csr_array((data, counts.indices, counts.indptr), counts.shape)
    once = np.bincount(counts.indices, data, counts.shape[1]).astype(np.float64)
    return scaled, once


def first_topics(ask: Ask, n_topics: int, n_words: int, documents: int) -> NDArray[np.float64]:
    """Find anchors with the clients, and return the words beside each as a first topic.

    Parameters
    ----------
    ask : function (function, template, **payload) -> sum of the clients' replies
    n_topics, n_words, documents : int

    Returns
    -------
    float64 array of shape (n_topics, n_words)
        Rows sum to 1; words that never stand beside the anchor are 0.

    Raises
    ------
    StudyError
        If fewer words than topics are frequent enough to be anchors.
    """
    template = {"projections": (n_words, WIDTH), "mass": (n_words,), "frequency": (n_words,)}
    sums = ask("projections", template)
    candidates = np.flatnonzero(sums["frequency"] >= max(RAREST * documents, 1))
    if len(candidates) < n_topics:
        raise StudyError(
            f"Only {len(candidates)} words are in {RAREST:.1%} of the documents, too few for "
            f'the anchors of {n_topics} topics; set initialisation = "random".'
        )
    rows = sums["projections"][candidates] / sums["mass"][candidates, None]
    anchors = candidates[_spread(rows, n_topics)]
    beside = ask("anchor_rows", {"rows": (n_words, n_topics)}, anchors=anchors)["rows"].T
    beside = np.maximum(beside, 0)
    topics: NDArray[np.float64] = beside / np.maximum(beside.sum(1, keepdims=True), 1e-300)
    return topics


def _spread(rows: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Choose n rows that span the most: each the farthest from the affine hull of those before."""
    left = rows - rows[np.square(rows).sum(1).argmax()]
    chosen = [int(np.square(rows).sum(1).argmax())]
    while len(chosen) < n:
        distances = np.square(left).sum(1)
        farthest = int(distances.argmax())
        chosen.append(farthest)
        direction = left[farthest] / np.sqrt(max(distances[farthest], 1e-300))
        left = left - np.outer(left @ direction, direction)
    return np.array(chosen)
