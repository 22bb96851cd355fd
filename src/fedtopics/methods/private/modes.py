"""What is asked in which order, and what a model then infers by, for each thing documents are."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtopics.inference.clusters import Centres, ClusterShape, Discriminants
from fedtopics.inference.lda import LDAPrior, VariationalLDA
from fedtopics.inference.nmf import Factors, NMFShape
from fedtopics.inference.points import Numbers
from fedtopics.methods.bounded import Mode, Recipe
from fedtopics.methods.plan import Plan
from fedtopics.methods.private.classes import ClassSums, ClassWords, apart
from fedtopics.methods.private.factors import FactorSums, FirstFactors
from fedtopics.methods.private.stages import (
    SMOOTHING,
    ClusterSums,
    ClusterWords,
    KeyWords,
    Occurrences,
    Sketch,
    Stage,
    TopicWords,
    WordVectors,
    where,
)
from fedtopics.methods.training import Arrays
from fedtopics.privacy import Budget

Numbered = tuple[type[Stage], int]


def stages_of(mode: Mode, plan: Plan[Any], budget: Budget) -> list[Stage]:
    """Return the stages of a mode, in order."""
    recipe: Recipe = plan.settings.recipe
    again = range(1, recipe.rounds_of(mode) + 1)

    def repeated(kind: type[Stage]) -> list[Numbered]:
        return [(kind, number) for number in again]

    public: list[Numbered] = [(KeyWords, 1), (WordVectors, 1)]
    clusters: list[Numbered] = [*public, *repeated(ClusterSums), (ClusterWords, 1)]
    of_mode: dict[Mode, list[Numbered]] = {
        "embeddings": clusters,
        "both": [*clusters, *repeated(TopicWords)],
        "words": [(Occurrences, 1), (Sketch, 1), *repeated(TopicWords)],
        "factors": [(Occurrences, 1), (FirstFactors, 1), *repeated(FactorSums)],
        "classes": [*public, *repeated(ClassSums), (ClassWords, 1)],
    }
    usual = recipe, budget, plan.seed, plan.limits.max_words
    return [kind(*usual, number) for kind, number in of_mode[mode]]


def inferred(mode: Mode, recipe: Recipe, state: Arrays, found: Numbers) -> dict[str, Any]:
    """Return what finds the topics of new documents, and its weights.

    `found` (n_topics, n_words) is how often words are of topics. Where the state is by words, they
    are in the order of its counts.
    """
    n_words = found.shape[1]
    if mode in ("both", "words"):
        prior = LDAPrior(n_components=recipe.n_components, alpha=recipe.alpha)
        pseudo_counts = np.ascontiguousarray((found.T + SMOOTHING) / SMOOTHING)
        weights: dict[str, Any] = {"pseudo_counts": pseudo_counts}
        return {"inference": VariationalLDA(n_words, prior), "weights": weights}
    own = {} if recipe.own is None else recipe.own.model_dump()
    if mode == "factors":
        shape = NMFShape(**{name: own[name] for name in NMFShape.model_fields})
        weights = {"topics": state["topics"], "rarity": state["weights"]}
        return {"inference": Factors(n_words, shape), "weights": weights}
    usual = {"n_components": recipe.n_components, "embedding": recipe.embedding}
    kept = {name: own[name] for name in ClusterShape.model_fields if name in own}
    of_clusters = ClusterShape(**(kept | usual))
    inference: Any = Centres(n_words, of_clusters)
    place = where(state) if mode == "embeddings" else apart(state)
    if mode == "classes":
        inference = Discriminants(n_words, of_clusters)
    return {"inference": inference, "weights": inference.with_words(place, found)}
