"""Scores of topic models."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.errors import DataError
from fedtopics.metrics import (
    clustering_accuracy,
    normalised_mutual_information,
    purity,
    topic_similarity,
)

LABELS = ["a", "a", "b", "b", "c", "c"]


def test_purity() -> None:
    assert purity(LABELS, np.array([5, 5, 2, 2, 9, 9])) == 1.0
    assert purity(LABELS, np.array([0, 0, 0, 0, 1, 1])) == pytest.approx(4 / 6)
    assert purity(LABELS, np.zeros(6, int)) == pytest.approx(2 / 6)


def test_normalised_mutual_information() -> None:
    assert normalised_mutual_information(LABELS, np.array([5, 5, 2, 2, 9, 9])) == pytest.approx(1)
    assert normalised_mutual_information(LABELS, np.zeros(6, int)) == 0.0
    # I(labels; topics) = log 2, H(labels) = log 2, H(topics) = log 4
    split = normalised_mutual_information(["a", "a", "b", "b"], np.arange(4))
    assert split == pytest.approx(np.log(2) / ((np.log(2) + np.log(4)) / 2))


def test_geometric_mean_of_entropies() -> None:
    split = normalised_mutual_information(["a", "a", "b", "b"], np.arange(4), average="geometric")
    assert split == pytest.approx(np.log(2) / np.sqrt(np.log(2) * np.log(4)))


def test_clustering_accuracy() -> None:
    assert clustering_accuracy(LABELS, np.array([5, 5, 2, 2, 9, 9])) == 1.0
    assert clustering_accuracy(LABELS, list("xxyyyz")) == pytest.approx(5 / 6)


def test_clusters_are_matched_together() -> None:
    """One cluster after the other, 0 would take a, and 1 have none left."""
    labels, clusters = list("aaaaabb"), [0, 0, 0, 1, 1, 0, 0]
    # 0 as a and 1 as b: 3 right; 0 as b and 1 as a: 4 right
    assert clustering_accuracy(labels, clusters) == pytest.approx(4 / 7)
    assert purity(labels, np.array(clusters)) == pytest.approx(5 / 7)


@pytest.mark.parametrize(("labels", "clusters"), [([], []), (["a"], [0, 1])])
def test_documents_without_label_or_cluster(labels: list[str], clusters: list[int]) -> None:
    message = f"There are {len(labels)} labels and {len(clusters)} clusters of documents"
    with pytest.raises(DataError, match=message):
        clustering_accuracy(labels, clusters)


def test_topic_similarity() -> None:
    true = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert topic_similarity(true, true) == pytest.approx(2)
    assert topic_similarity(true, true[::-1]) == pytest.approx(2)
    # closest to the first: sqrt(1 * 0.25); to the second: 2 sqrt(0.5 * 0.375)
    inferred = np.array([[0.25, 0.375, 0.375]])
    assert topic_similarity(true, inferred) == pytest.approx(0.5 + 2 * np.sqrt(0.5 * 0.375))


def test_topic_similarity_is_one_less_the_squared_hellinger_distance() -> None:
    p, q = np.array([[0.2, 0.3, 0.5]]), np.array([[0.6, 0.1, 0.3]])
    distance = np.sqrt(((np.sqrt(p) - np.sqrt(q)) ** 2).sum() / 2)
    assert topic_similarity(p, q) == pytest.approx(1 - distance**2)
