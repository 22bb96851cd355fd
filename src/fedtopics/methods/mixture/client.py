"""The client side of the mixture model: sums over documents, weighted by topic probabilities."""

from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtopics.contract.interfaces import published
from fedtopics.inference.mixture import Evidence, MixtureShape
from fedtopics.inference.vectors import Numbers, Points
from fedtopics.methods.clusters.client import PointSums
from fedtopics.methods.clusters.settings import StartSettings
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.groups import SEEN, Enough, Grouped, GroupRequest, Thetas, as_many
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.kmeans.lloyd import calls_of_start
from fedtopics.text.embeddings import EmbeddingSettings


class MixtureSettings(TopicSettings, MixtureShape):
    name: Literal["mixture"] = Field("mixture", description="the method")
    start: StartSettings = Field(
        StartSettings(rounds=20), description="settings of k-means at the start"
    )
    max_rounds: int = Field(50, ge=1, description="maximum number of rounds")
    tolerance: float = Field(
        1e-3,
        ge=0,
        description="stop when the topics' sums change by less than this, relative to their size",
    )

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        return self.embedding


class MixtureSums(PointSums):
    """Sums of a client's embeddings and words, by topic; networks may begin with these sums."""

    @cached_property
    def seen(self) -> Documents:
        """Rows of the documents with a word or an embedding."""
        return np.flatnonzero(self.embeddings.any(1) | (np.diff(self.client.bag.indptr) > 0))

    @published(
        "For each topic, the sum of the documents' probabilities; for each topic where that sum is "
        "large enough, the sums, weighted by these probabilities, of embeddings and of occurrences "
        "of words that enough of the documents contain. The evidence (nats) and the number of "
        "documents. With secure aggregation, probabilities are also summed first."
    )
    def topic_sums(
        self,
        vocabulary: str,
        round: int,
        evidence: dict[str, NDArray[Any]],
        groups: GroupRequest = SEEN,
    ) -> dict[str, Any]:
        """Sum the documents by their probabilities of each topic (the E-step)."""
        self.client.check(vocabulary)
        request = {"sums": "topics", **evidence}
        compute = partial(self._expected, Evidence(**evidence))
        reply = self.client.guard.sums(groups, request, as_many, compute)
        return reply | {"documents": len(self.seen)}

    def _expected(self, evidence: Evidence) -> Grouped:
        points = self.placed(evidence.origin)
        counts = self.client.bag[self.seen]
        directions = np.zeros(evidence.directions.shape)
        words = np.zeros(evidence.words.shape)
        weights = np.zeros(len(evidence.bias))
        loss = 0.0
        for rows, theta, log_evidence in evidence.memberships(points, counts):
            directions += theta.T @ points[rows].astype(np.float64)
            words += theta.T @ counts[rows]
            weights += theta.sum(0)
            loss -= log_evidence
        sums = {"directions": directions, "words": words}

        def summed(enough: Enough) -> dict[str, Any]:
            sent_sums = {name: total * enough[:, None] for name, total in sums.items()}
            return {**sent_sums, "weights": weights, "loss": loss}

        return {"counts": weights}, summed

    def placed(self, origin: Numbers) -> Points:
        if len(self.located) == len(self.seen):  # if so, the rows are the same
            return self.points(origin)
        points = np.zeros((len(self.seen), len(origin)), np.float32)
        points[np.isin(self.seen, self.located)] = self.points(origin)
        return points


def calls_of_mixture(settings: MixtureSettings, often: str) -> dict[str, str]:
    return calls_of_start(settings.start) | {"topic_sums": often}


class MixtureClient(TopicClient[MixtureSettings]):
    exchanges = (MixtureSums,)
    continues = True

    @staticmethod
    def rounds(settings: MixtureSettings) -> dict[str, str]:
        return calls_of_mixture(settings, "each round")

    def find_usable(self) -> Documents:
        return self.part(MixtureSums).seen

    def thetas(self, **model: Any) -> Thetas:
        evidence = Evidence(**model["evidence"])
        sums = self.part(MixtureSums)
        points = sums.placed(evidence.origin)
        counts = self.bag[sums.seen]
        for rows, theta, _ in evidence.memberships(points, counts):
            yield sums.seen[rows], theta
