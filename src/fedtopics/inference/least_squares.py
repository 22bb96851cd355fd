"""Non-negative least squares of documents on topics, and sums over documents, compiled.

Documents are rows of unit length. A document's shares follow from its own words and the topics
alone, after a fixed number of steps: neither other documents nor threads change a bit of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.extras import compiled
from fedtopics.inference.variational import in_chunks

SWEEPS = 20  # over a document's topics; each starts from the one before
Floats = NDArray[np.float64]


def solve(points: sparse.csr_array, topics: Floats) -> Floats:
    """Fit documents by topics, (n_words, n_topics); return their shares, (n, n_topics).

    Shares are not negative; as the documents and the topics are of length 1, so are they at most.
    """
    shares = np.zeros((points.shape[0], topics.shape[1]))
    gram = topics.T @ topics

    def of_chunk(first: int, last: int) -> None:
        _solve(points.indptr, points.indices, points.data, topics, gram, first, last, shares)

    in_chunks(len(shares), of_chunk)
    return shares


def add_products(points: sparse.csr_array, rows: Floats, total: Floats) -> None:
    """Add X' R in place: of each word the rows (n, width) of its documents, by their weights."""
    _add_products(points.indptr, points.indices, points.data, rows, total)


@compiled
def _solve(
    ends: Any, words: Any, values: Any, topics: Any, gram: Any, first: int, last: int, shares: Any
) -> None:
    """Descend along one topic after the other (HALS), documents first to last - 1, in place."""
    k = topics.shape[1]
    fits = np.empty(k)
    for document in range(first, last):
        own = shares[document]
        fits[:] = 0
        for place in range(ends[document], ends[document + 1]):
            row = topics[words[place]]
            for topic in range(k):
                fits[topic] += values[place] * row[topic]
        for _ in range(SWEEPS):
            for topic in range(k):
                if gram[topic, topic] > 0:
                    left = fits[topic]
                    for other in range(k):
                        left -= gram[topic, other] * own[other]
                    own[topic] = max(0.0, own[topic] + left / gram[topic, topic])
        length = 0.0
        for topic in range(k):
            length += own[topic] * own[topic]
        if length > 1:
            own /= np.sqrt(length)


@compiled
def _add_products(ends: Any, words: Any, values: Any, rows: Any, total: Any) -> None:
    for document in range(len(ends) - 1):
        for place in range(ends[document], ends[document + 1]):
            row = total[words[place]]
            for column in range(rows.shape[1]):
                row[column] += values[place] * rows[document, column]
