"""What is measured of topics, and what it says."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtopics.metrics import mean_cosine_dissimilarity, unique_words
from fedtopics.model.topic_model import TopicModel

SCORES = {
    "npmi": (
        "coherence, NPMI",
        "-1 to 1; how often a topic's ten first words occur together in the clients' documents, "
        "against chance",
        "Bouma 2009; Lau, Newman and Baldwin 2014",
    ),
    "c_v": (
        "coherence, C_V",
        "0 to 1; as NPMI, but by how alike the words' neighbours are",
        "Röder, Both and Hinneburg 2015",
    ),
    "u_mass": (
        "coherence, U_Mass",
        "up to 0; how often a word occurs in the documents that have a more important one",
        "Mimno et al. 2011",
    ),
    "diversity": (
        "topic diversity",
        "0 to 1; share of different words among the ten first of all topics",
        "Dieng, Ruiz and Blei 2020",
    ),
    "dissimilarity": (
        "mean cosine dissimilarity",
        "0 to 1; of pairs of topics, over all words",
        "1 - cosine of rows of beta",
    ),
}


def scores_of(model: TopicModel) -> list[dict[str, Any]]:
    """Return a row a score: its name, value, meaning and reference."""
    known = {name: score[np.isfinite(score)] for name, score in model.coherence.items()}
    values = {name: float(np.mean(score)) for name, score in known.items() if len(score)}
    values["diversity"] = unique_words(model.topics(10), 10)
    if model.n_topics > 1:
        values["dissimilarity"] = mean_cosine_dissimilarity(model.beta)
    return [
        dict(zip(("name", "meaning", "reference"), SCORES[name], strict=True)) | {"value": value}
        for name, value in values.items()
        if name in SCORES
    ]
