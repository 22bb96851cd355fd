"""What the server's halves of all methods share that find clusters of documents.

The words of documents are counted as for topics, and say at the end what clusters are about. What
clusters are found by are points: embeddings, or bags of words.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, TypeVar

from fedtopics.errors import StudyError
from fedtopics.inference.clusters import ClusterInference, ClusterShape
from fedtopics.inference.points import Moments, Numbers
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement, reach_agreement
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.cluster_client import ALL
from fedtopics.methods.cluster_settings import ClusterSettings
from fedtopics.methods.final import describe
from fedtopics.methods.training import Arrays, Program
from fedtopics.model.info import TrainingInfo
from fedtopics.model.topic_model import TopicModel

Settings = TypeVar("Settings", bound=ClusterSettings)
State = TypeVar("State")


class ClusterProgram(Program[Settings, State]):
    """The server's half, but for how clusters are found.

    Parameters
    ----------
    plan : Plan
    """

    inference: ClassVar[type[ClusterInference]]

    @abstractmethod
    def weights(self, agreement: Agreement, state: State, rounds: int) -> Arrays:
        """Return the arrays by which clusters are found."""

    def shape(self, settings: Settings) -> Any:
        """Return what a model keeps of the settings."""
        return ClusterShape(**settings.model_dump(include=set(ClusterShape.model_fields)))

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on words, of which one is enough."""
        return reach_agreement(clients, run, self.plan, 1)

    def model(self, agreement: Agreement, state: State, rounds: int, run: Run) -> TopicModel:
        """Ask the clients what the clusters are about; make the model."""
        weights = self.weights(agreement, state, rounds)
        n_clusters = len(weights[self.inference.prototypes])
        settings = self.settings.model_copy(update={"n_components": n_clusters})
        template: Template = {"sizes": (n_clusters,), "unclear": ()}
        sizes = agreement.call("sizes", template, weights=weights)
        info: TrainingInfo = {
            "method": settings.method_name,
            "rounds": rounds,
            "seed": self.plan.seed,
            "sizes": {name: reply["sizes"].tolist() for name, reply in sizes.items()},
            "unclear": {name: reply["unclear"] for name, reply in sizes.items()},
        }
        make = partial(self._make, settings, weights, info)
        return describe(agreement, settings, {"weights": weights}, make)

    def _make(
        self, settings: Settings, weights: Arrays, info: TrainingInfo, **described: Any
    ) -> TopicModel:
        inference = self.inference(len(described["vocabulary"]), self.shape(settings))
        with_words = inference.with_words(weights, described["word_sums"])
        return TopicModel(
            inference=inference,
            weights=with_words,
            shared={},
            text=self.plan.text,
            info=info,
            **described,
        )


def find_origin(agreement: Agreement, dimension: int) -> Numbers:
    """Ask for the mean embedding."""
    total = agreement.sum("means", {"embeddings": (dimension,)})
    origin: Numbers = total["embeddings"] / max(total["documents"], 1)
    return origin


def find_moments(agreement: Agreement, dimension: int) -> tuple[Numbers, Moments]:
    """Ask for the mean embedding, and for the moments of what is left of embeddings without it."""
    origin = find_origin(agreement, dimension)
    return origin, moments_about(agreement, origin, ALL)


def moments_about(agreement: Agreement, origin: Numbers, half: int) -> Moments:
    """Ask for the moments of points: of a half of the documents, or of all.

    Raises
    ------
    StudyError
        If there are no two different points.
    """
    dimension = len(origin)
    template: Template = {"points": (dimension,), "products": (dimension, dimension)}
    found = agreement.sum("moments", template, origin=origin, half=half)
    count = found["documents"]
    if count == 0 or not found["products"].any():
        raise StudyError(
            "There is nothing to find clusters by: all documents are empty, or the same. Give "
            "documents that differ."
        )
    return Moments.of(count, found["points"], found["products"])


def check_enough(weights: Numbers) -> None:
    """Refuse to go on from nothing.

    Raises
    ------
    StudyError
        If no client has enough documents of any cluster.
    """
    if not weights.any():
        raise StudyError(
            "No client has as many documents of any cluster as its policy asks for; ask for fewer "
            "clusters, give more documents, or lower min_documents in the policies."
        )
