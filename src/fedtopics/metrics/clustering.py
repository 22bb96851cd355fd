"""Scores of topics as groups of documents, against known labels.

scikit-learn is imported when something is scored: the server, which uses other metrics, does
without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray


def purity(labels: Sequence[Any] | NDArray[Any], topics: NDArray[Any]) -> float:
    """Return the share of documents that carry the commonest label of their topic.

    It grows with the number of topics: a topic for each document is pure.

    Parameters
    ----------
    labels, topics : sequences of length n_documents
        A document's true label and its main topic, for instance the argmax of theta.

    Returns
    -------
    float
        Above 0, at most 1; higher is better.

    References
    ----------
    Manning, Raghavan and Schütze (2008), Introduction to Information Retrieval, equation 16.1.

    Examples
    --------
    >>> import numpy as np
    >>> purity(["a", "a", "b", "b"], np.array([0, 0, 0, 1]))
    0.75
    """
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(labels, topics)
    return float(table.max(0).sum() / table.sum())


def normalised_mutual_information(
    labels: Sequence[Any] | NDArray[Any], topics: NDArray[Any]
) -> float:
    """Return the mutual information of labels and topics over the mean of their entropies.

    Parameters
    ----------
    labels, topics : sequences of length n_documents
        A document's true label and its main topic, for instance the argmax of theta.

    Returns
    -------
    float
        From 0 to 1; higher is better.

    References
    ----------
    Manning, Raghavan and Schütze (2008), Introduction to Information Retrieval, equation 16.2.

    Examples
    --------
    >>> import numpy as np
    >>> round(normalised_mutual_information(["a", "a", "b", "b"], np.array([3, 3, 7, 7])), 9)
    1.0
    """
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(labels, topics))
