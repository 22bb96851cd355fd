"""Program of all methods that find clusters of documents, from embeddings or bags of words."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np

from fedtopics.contract.events import SameClusters
from fedtopics.contract.interfaces import Clients, Run
from fedtopics.errors import StudyError
from fedtopics.inference.clusters import ClusterInference
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.clusters.client import AnyClusterSettings, ClusterClient, PointSums
from fedtopics.methods.clusters.settings import WHOLE, Part
from fedtopics.methods.clusters.sums import DIGITS, Moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.training import Arrays, Program, State
from fedtopics.methods.core.vocabulary_agreement import reach_agreement
from fedtopics.model.topics import Topics
from fedtopics.text.rounding import by_lot, rounded

ORIGIN_STEP = 4.0  # of sums of embeddings of length 1, in a model
LEAST_SPREAD = 1e-8  # squared distance from the mean, of points of length 1 that differ


class ClusterProgram(Program[AnyClusterSettings, State]):
    @abstractmethod
    def weights(self, agreement: Agreement, state: State, rounds: int) -> Arrays:
        """Return the arrays from which a model infers clusters."""

    def build(self, settings: AnyClusterSettings, n_words: int) -> ClusterInference:
        return settings.build(n_words)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on a vocabulary; one word is enough."""
        return reach_agreement(clients, run, self.plan, 1)

    def model(self, agreement: Agreement, state: State, rounds: int, run: Run) -> Topics:
        weights = self.weights(agreement, state, rounds)
        n_clusters = len(weights[self.settings.inference.prototypes])
        settings = self.settings.model_copy(update={"n_components": n_clusters})
        sizes = replace(agreement, settings=settings).ask(
            ClusterClient.cluster_sizes, weights=weights
        )
        info: dict[str, Any] = {
            "sizes": {name: reply["sizes"].tolist() for name, reply in sizes.items()},
            "unclear": {name: reply["unclear"] for name, reply in sizes.items()},
        }
        if same := _count_same(weights[self.settings.inference.prototypes]):
            run.event(SameClusters(same, n_clusters))
            info["same"] = same
        inference = self.build(settings, len(agreement.vocabulary))

        def make(**described: Any) -> Topics:
            return self.made(
                inference, inference.with_words(weights, described["word_sums"]), rounds, **info
            )(**described)

        return assemble_model(agreement, settings, {"weights": weights}, make)


def _count_same(prototypes: Numbers) -> int:
    """Count the clusters that equal an earlier one, up to rounding."""
    rounded = np.round(prototypes / max(np.abs(prototypes).max(), TINY), DIGITS)
    return len(rounded) - len(np.unique(rounded, axis=0))


def find_origin(agreement: Agreement, dimension: int) -> Numbers:
    """Return the mean embedding from sums rounded by lot, which show no single document."""
    reply = agreement.ask(PointSums.embedding_moments, origin=np.zeros(dimension), part=WHOLE)
    documents = np.array([max(reply["documents"], 1)])
    if agreement.is_example:
        return np.asarray(reply["points"] / documents)
    sums = by_lot(reply["points"][None] / ORIGIN_STEP, agreement.coins, documents) * ORIGIN_STEP
    return np.asarray(sums[0] / rounded(documents))


def find_moments(agreement: Agreement, origin: Numbers, part: Part = WHOLE) -> Moments:
    """Return the moments of points; raise StudyError if no two of them differ."""
    reply = agreement.ask(PointSums.embedding_moments, origin=origin, part=part)
    moments = Moments.of(max(reply["documents"], 1), reply["points"], reply["products"])
    if moments.scatter.trace() <= LEAST_SPREAD:
        raise StudyError(
            "All documents are empty or the same, so there are no clusters to find; give documents "
            "that differ."
        )
    return moments


def check_enough(weights: Numbers) -> None:
    """Raise StudyError if no cluster has enough documents."""
    if not weights.any():
        raise StudyError(
            "No cluster has as many documents as a policy requires, from one client or, with "
            "secure aggregation, from all; set fewer clusters, or give documents of more persons."
        )
