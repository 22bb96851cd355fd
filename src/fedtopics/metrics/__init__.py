"""Scores of topics as lists of words and as groups of documents, and similarity of two models."""

from fedtopics.metrics.clustering import clustering_accuracy, normalised_mutual_information, purity
from fedtopics.metrics.coherence import (
    WINDOWS,
    Cooccurrences,
    Measure,
    coherence_of,
    count_cooccurrences,
    npmi_of_pairs,
    score_pairs,
)
from fedtopics.metrics.diversity import (
    inverted_rank_biased_overlap,
    mean_cosine_dissimilarity,
    unique_words,
)
from fedtopics.metrics.registry import METRICS, Metric, register
from fedtopics.metrics.similarity import (
    align_words,
    cosines,
    document_similarity,
    topic_similarity,
    usual_threshold,
)

__all__ = [
    "METRICS",
    "WINDOWS",
    "Cooccurrences",
    "Measure",
    "Metric",
    "align_words",
    "clustering_accuracy",
    "coherence_of",
    "cosines",
    "count_cooccurrences",
    "document_similarity",
    "inverted_rank_biased_overlap",
    "mean_cosine_dissimilarity",
    "normalised_mutual_information",
    "npmi_of_pairs",
    "purity",
    "register",
    "score_pairs",
    "topic_similarity",
    "unique_words",
    "usual_threshold",
]
