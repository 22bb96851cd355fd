"""Scores of topic models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix


def purity(labels: Sequence[Any] | NDArray[Any], topics: NDArray[Any]) -> float:
    """Return the share of documents that carry the commonest label of their topic.

    Parameters
    ----------
    labels, topics : sequences of length n_documents
        A document's true label and its main topic, for instance the argmax of theta.

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], np.array([0, 0, 0, 1]))
    0.75
    """
    table = contingency_matrix(labels, topics)
    return float(table.max(0).sum() / table.sum())


def normalised_mutual_information(
    labels: Sequence[Any] | NDArray[Any], topics: NDArray[Any]
) -> float:
    """Return the mutual information of labels and topics over the mean of their entropies."""
    return float(normalized_mutual_info_score(labels, topics))


def topic_similarity(true: NDArray[Any], inferred: NDArray[Any]) -> float:
    """Return the topic similarity score, TSS: higher is better, at most the number of true topics.

    For each true topic, the similarity of the closest inferred one, 1 - H^2 with Hellinger's
    distance H; summed.

    Parameters
    ----------
    true, inferred : float arrays of shape (n_topics, n_words)
        Rows sum to 1; columns are the same words in the same order.

    References
    ----------
    Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models, equation 6.

    Examples
    --------
    >>> topic_similarity(np.eye(3), np.eye(3)[[2, 0, 1]])
    3.0
    """
    return float((np.sqrt(true) @ np.sqrt(inferred).T).max(1).sum())
