"""The metrics of `fedtopics evaluate`, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from fedtopics.extras import Registry
from fedtopics.metrics.clustering import clustering_accuracy, normalised_mutual_information, purity
from fedtopics.metrics.coherence import Measure
from fedtopics.metrics.diversity import (
    inverted_rank_biased_overlap,
    mean_cosine_dissimilarity,
    unique_words,
)

Part = Literal["words", "beta", "coherence", "counts", "theta", "main_topics", "labels"]
COHERENCE = "Coherence, the mean over topics"
DIVERSITY = "Diversity, from 0 to 1"
AGREEMENT = "Agreement with the labels, from 0 to 1"


@dataclass(frozen=True)
class Metric:
    """A number that says how good a model is on documents.

    It can take, of the model, "words" (lists of the first 25 words shown of each topic) and "beta"
    (n_topics, n_words). Of the model on documents: "coherence" (mapping of measure to array of
    shape (n_topics,)), "counts" (CSR array of shape (n_documents, n_words)), "theta" (n_documents,
    n_topics), "main_topics" and "labels" (n_documents,). A metric that takes labels sees those
    documents alone that have a label and a topic; without labels it is left out.
    """

    name: str  # its key in what `evaluate` returns
    title: str
    group: str  # heading in the table for people
    function: Callable[..., float]
    takes: tuple[Part, ...]  # what the function takes, in that order


METRICS: Registry[Metric] = Registry(
    "metric", "fedtopics.metrics", maker=lambda metric: metric.function
)


def register(metric: Metric) -> Metric:
    """Make a metric known under its name, as `Registry.register`."""
    return METRICS.register(metric.name, metric)


def _mean(measure: Measure) -> Callable[[Mapping[str, NDArray[Any]]], float]:
    def mean(scores: Mapping[str, NDArray[Any]]) -> float:
        return float(scores[measure].mean())

    return mean


def _register_ours(group: str, *metrics: tuple[str, str, Callable[..., float], Part]) -> None:
    """Register metrics: name, title, function, and what it takes (besides labels, there)."""
    for name, title, function, part in metrics:
        takes: tuple[Part, ...] = ("labels", part) if group == AGREEMENT else (part,)
        register(Metric(name, title, group, function, takes))


_register_ours(
    COHERENCE,
    ("c_v", "c_v, from -1 to 1", _mean("c_v"), "coherence"),
    ("npmi", "NPMI, from -1 to 1", _mean("npmi"), "coherence"),
    ("u_mass", "u_mass, at most about 0", _mean("u_mass"), "coherence"),
)
_register_ours(
    DIVERSITY,
    ("unique_words", "unique share of the first 25 words", unique_words, "words"),
    (
        "cosine_dissimilarity",
        "mean cosine dissimilarity of beta",
        mean_cosine_dissimilarity,
        "beta",
    ),
    ("inverted_rbo", "inverted rank-biased overlap", inverted_rank_biased_overlap, "words"),
)
_register_ours(
    AGREEMENT,
    ("purity", "purity of the largest topics", purity, "main_topics"),
    ("accuracy", "accuracy of the best matching", clustering_accuracy, "main_topics"),
    ("nmi", "normalised mutual information", normalised_mutual_information, "main_topics"),
)
