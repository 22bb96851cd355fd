"""Program of all methods that find clusters of documents, from embeddings or bags of words."""

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar

import numpy as np

from fedtopics.contract.events import SameClusters
from fedtopics.contract.interfaces import Clients, Run
from fedtopics.contract.replies import Bounds, Template, counts
from fedtopics.errors import StudyError
from fedtopics.inference.clusters import ClusterInference
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.clusters.settings import WHOLE, ClusterSettings, Part
from fedtopics.methods.clusters.sums import Moments
from fedtopics.methods.core.agreement import Agreement, reach_agreement
from fedtopics.methods.core.final_model import assemble_model
from fedtopics.methods.core.training import Arrays, Program
from fedtopics.model.topics import Topics

Settings = TypeVar("Settings", bound=ClusterSettings)
State = TypeVar("State")
DIGITS = 6  # significant digits to which two clusters are compared


class ClusterProgram(Program[Settings, State]):
    inference: ClassVar[type[ClusterInference]]

    @abstractmethod
    def weights(self, agreement: Agreement, state: State, rounds: int) -> Arrays:
        """Return the arrays from which a model infers clusters."""

    def shape(self, settings: Settings) -> Any:
        return settings.shape(self.inference.settings_type)

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on a vocabulary; one word is enough."""
        return reach_agreement(clients, run, self.plan, 1)

    def model(self, agreement: Agreement, state: State, rounds: int, run: Run) -> Topics:
        weights = self.weights(agreement, state, rounds)
        n_clusters = len(weights[self.inference.prototypes])
        settings = self.settings.model_copy(update={"n_components": n_clusters})
        template: Template = {
            "sizes": counts(n_clusters, per_document=1),
            "unclear": counts(per_document=1),
        }
        sizes = agreement.call("sizes", template, weights=weights)
        info: dict[str, Any] = {
            "sizes": {name: reply["sizes"].tolist() for name, reply in sizes.items()},
            "unclear": {name: reply["unclear"] for name, reply in sizes.items()},
        }
        if same := _count_same(weights[self.inference.prototypes]):
            run.event(SameClusters(same, n_clusters))
            info["same"] = same
        inference = self.inference(len(agreement.vocabulary), self.shape(settings))

        def make(**described: Any) -> Topics:
            with_words = inference.with_words(weights, described["word_sums"])
            return self.made(inference, with_words, rounds, **info)(**described)

        return assemble_model(agreement, settings, {"weights": weights}, make)


def _count_same(prototypes: Numbers) -> int:
    """Count the clusters that equal an earlier one, up to rounding."""
    rounded = np.round(prototypes / max(np.abs(prototypes).max(), TINY), DIGITS)
    return len(rounded) - len(np.unique(rounded, axis=0))


def find_origin(agreement: Agreement, dimension: int) -> Numbers:
    total = agreement.sum("means", {"embeddings": (dimension,)})
    origin: Numbers = total["embeddings"] / max(total["documents"], 1)
    return origin


def find_moments(agreement: Agreement, dimension: int) -> tuple[Numbers, Moments]:
    origin = find_origin(agreement, dimension)
    return origin, moments_about(agreement, origin, WHOLE)


def moments_about(agreement: Agreement, origin: Numbers, part: Part) -> Moments:
    """Return the moments of points; raise StudyError if no two of them differ."""
    dimension = len(origin)
    # Points have length 1; the sum can vanish for most clients, but not for one that differs.
    points = Bounds((dimension,), length=1.0)
    products = Bounds((dimension, dimension), products=True)
    template: Template = {"points": points, "products": products}
    reply = agreement.sum("moments", template, origin=origin, part=part)
    count = reply["documents"]
    if count == 0 or not reply["products"].any():
        raise StudyError(
            "All documents are empty or the same, so there are no clusters to find; give documents "
            "that differ."
        )
    return Moments.of(count, reply["points"], reply["products"])


def check_enough(weights: Numbers) -> None:
    """Raise StudyError if no cluster has enough documents."""
    if not weights.any():
        raise StudyError(
            "No cluster has as many documents as a policy requires, from one client or, with "
            "secure aggregation, from all; set fewer clusters, give more documents, or lower "
            "min_documents in the policies."
        )
