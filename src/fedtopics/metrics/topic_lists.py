"""How alike topics are that are lists of words with weights; a word that a list lacks has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Topic = Mapping[str, float]  # words with their weights
USUAL_THRESHOLD = 0.99  # quantile of how alike two topics of one client are
THRESHOLDS = 0.1, 0.9  # least and largest


def cosines(rows: Sequence[Topic], columns: Sequence[Topic]) -> NDArray[np.float64]:
    """Return how alike topics are, shape (n_rows, n_columns), from 0 to 1."""
    places: dict[str, int] = {}
    for topic in (*rows, *columns):
        for word in topic:
            places.setdefault(word, len(places))

    def unit(topics: Sequence[Topic]) -> NDArray[np.float64]:
        matrix = np.zeros((len(topics), len(places)))
        for row, topic in enumerate(topics):
            matrix[row, [places[word] for word in topic]] = list(topic.values())
        matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-300)
        return matrix

    return unit(rows) @ unit(columns).T


def usual_threshold(local: Mapping[str, Sequence[Topic]]) -> float:
    """Return the cosine that one in a hundred pairs of topics of the same client reaches.

    Topics of one client are different topics: what makes two of them alike is chance and common
    words.
    """
    alike = [
        cosines(topics, topics)[np.triu_indices(len(topics), 1)]
        for _, topics in sorted(local.items())
    ]
    pairs = np.concatenate([*alike, np.zeros(0)])
    threshold = np.quantile(pairs, USUAL_THRESHOLD) if len(pairs) else 0.5
    return float(np.clip(threshold, *THRESHOLDS))
