"""The metrics of `fedtopics evaluate`, by name."""

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
    """A score of a model on documents.

    Inputs from the model: "words" (lists of the first 25 words shown of each topic) and "beta"
    (n_topics, n_words). Inputs from documents: "coherence" (by measure, arrays of shape
    (n_topics,)), "counts" (CSR, (n_documents, n_words)), "theta" (n_documents, n_topics),
    "main_topics" and "labels" (n_documents,). A metric that takes labels gets only documents with
    a label and a topic, and is skipped if there are none.
    """

    name: str  # key in the result of `evaluate`
    title: str
    group: str  # heading in the table for people
    function: Callable[..., float]
    takes: tuple[Part, ...]  # arguments of the function, in order


def _mean(measure: Measure) -> Callable[[Mapping[str, NDArray[Any]]], float]:
    return lambda scores: float(scores[measure].mean())


_MAIN: tuple[Part, ...] = ("labels", "main_topics")
METRICS: Registry[Metric] = Registry(
    "metric",
    "fedtopics.metrics",
    maker=lambda metric: metric.function,
    items={
        metric.name: metric
        for metric in (
            Metric(
                name="c_v",
                title="c_v, from -1 to 1",
                group=COHERENCE,
                function=_mean("c_v"),
                takes=("coherence",),
            ),
            Metric(
                name="npmi",
                title="NPMI, from -1 to 1",
                group=COHERENCE,
                function=_mean("npmi"),
                takes=("coherence",),
            ),
            Metric(
                name="u_mass",
                title="u_mass, at most about 0",
                group=COHERENCE,
                function=_mean("u_mass"),
                takes=("coherence",),
            ),
            Metric(
                name="unique_words",
                title="unique share of the first 25 words",
                group=DIVERSITY,
                function=unique_words,
                takes=("words",),
            ),
            Metric(
                name="cosine_dissimilarity",
                title="mean cosine dissimilarity of beta",
                group=DIVERSITY,
                function=mean_cosine_dissimilarity,
                takes=("beta",),
            ),
            Metric(
                name="inverted_rbo",
                title="inverted rank-biased overlap",
                group=DIVERSITY,
                function=inverted_rank_biased_overlap,
                takes=("words",),
            ),
            Metric(
                name="purity",
                title="purity of the largest topics",
                group=AGREEMENT,
                function=purity,
                takes=_MAIN,
            ),
            Metric(
                name="accuracy",
                title="accuracy of the best matching",
                group=AGREEMENT,
                function=clustering_accuracy,
                takes=_MAIN,
            ),
            Metric(
                name="nmi",
                title="normalised mutual information",
                group=AGREEMENT,
                function=normalised_mutual_information,
                takes=_MAIN,
            ),
        )
    },
)


def register(metric: Metric) -> Metric:
    """Register a metric under its name."""
    return METRICS.register(metric.name, metric)
