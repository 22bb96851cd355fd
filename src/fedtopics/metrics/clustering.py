"""Agreement of topics (or clusters) with true labels; higher is better."""

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import NDArray

from fedtopics.errors import DataError


def purity(labels: Sequence[Any] | NDArray[Any], topics: NDArray[Any]) -> float:
    """Return the share of documents with the most frequent label of their topic.

    Purity is above 0 and at most 1. It grows with the number of topics: with one topic per document
    it is 1. See Manning, Raghavan and Schütze (2008), Introduction to Information Retrieval,
    equation 16.1.

    Examples
    --------
    >>> import numpy as np
    >>> purity(["a", "a", "b", "b"], np.array([0, 0, 0, 1]))
    0.75
    """
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(labels, topics)
    return float(table.max(0).sum() / table.sum())


def clustering_accuracy(
    labels: Sequence[Any] | NDArray[Any], clusters: Sequence[Any] | NDArray[Any]
) -> float:
    """Return the share of documents whose cluster is matched with their label.

    Clusters and labels are matched one to one so that the share is largest. Documents of an
    unmatched cluster count as wrong. The share is above 0 and at most 1. See Hu et al., Federated
    Learning for Short Text Clustering, equation 19.

    Examples
    --------
    >>> clustering_accuracy(["a", "a", "b", "b"], [7, 7, 7, 3])
    0.75
    >>> clustering_accuracy(["a", "a", "b", "b"], [0, 1, 2, 3])
    0.5
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics.cluster import contingency_matrix

    if len(labels) != len(clusters) or not len(labels):
        raise DataError(
            f"There are {len(labels):,} labels but {len(clusters):,} clusters of documents; give "
            "one of each per document."
        )
    table = contingency_matrix(labels, clusters)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def normalised_mutual_information(
    labels: Sequence[Any] | NDArray[Any],
    topics: NDArray[Any],
    *,
    average: Literal["arithmetic", "geometric"] = "arithmetic",
) -> float:
    """Return the mutual information of labels and topics divided by their mean entropy, 0 to 1.

    With the geometric mean, the score is never lower than with the arithmetic one. See Manning,
    Raghavan and Schütze (2008), Introduction to Information Retrieval, equation 16.2 (arithmetic),
    and Hu et al., Federated Learning for Short Text Clustering, equation 20 (geometric).

    Examples
    --------
    >>> import numpy as np
    >>> round(normalised_mutual_information(["a", "a", "b", "b"], np.array([3, 3, 7, 7])), 9)
    1.0
    """
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(labels, topics, average_method=average))
