"""What the clients' halves have in common in all methods that find clusters of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.clusters import ClusterInference, Discriminants
from fedtopics.inference.points import Discriminant, Numbers, Points, weighted_sums
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.cluster_settings import ClusterSettings
from fedtopics.methods.groups import SEEN, Enough, Groups, as_many
from fedtopics.methods.point_client import PointClient, of_enough
from fedtopics.methods.settings import TopicSettings

Settings = TypeVar("Settings", bound=ClusterSettings)
UNCLEAR = 0.5  # a document whose clusters are all less probable belongs to none


class ClusterClient(PointClient[Settings]):
    """A client's documents as points, each of one cluster."""

    inference: ClassVar[type[ClusterInference]]

    @staticmethod
    def end(settings: TopicSettings) -> dict[str, str]:
        return TopicClient.end(settings) | {"sizes": "once, at the end"}

    def find_usable(self) -> Documents:
        if self.settings.representation != "embedding":
            return super().find_usable()
        return np.flatnonzero(self.embeddings.any(1))

    @property  # documents without a word are none, where words are points
    def located(self) -> Documents:
        return self.usable

    @leaves(
        "For each clustering: with how much weight the documents are members of each cluster; "
        "of each with enough weight, their sum by membership. The number of documents. Where sums "
        "are masked, the weights are also asked before that."
    )
    def class_sums(
        self, vocabulary: str, round: int, origin: Numbers, projection: Numbers,
        directions: Numbers, bias: Numbers, half: int, groups: Groups = SEEN,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the points by their memberships, of n_starts `Discriminant`s with stacked arrays.

        See `moments` for the rest.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]

        def compute() -> tuple[Numbers, Numbers]:
            sums, weights = np.zeros((*bias.shape, points.shape[1])), np.zeros(bias.shape)
            for i, arrays in enumerate(zip(projection, directions, bias, strict=True)):
                members = Discriminant(*arrays, self.settings.temperature).memberships(points)
                sums[i], weights[i] = weighted_sums(points, members, bias.shape[1])
            return sums, weights

        given = "classes", origin, projection, directions, bias, half
        sums, weights = self.guard.once(groups, given, compute)

        def summed(enough: Enough) -> dict[str, Any]:
            of, sent = of_enough(enough, sums, weights)
            return {"sums": of, "weights": weights, "sent": sent}

        reply = self.guard.reply(groups, as_many, {"counts": weights}, summed)
        return reply | {"documents": len(points)}

    @leaves(
        "How many pairs of its documents are in one cluster of both clusterings, of the "
        "first, of the second, and of both by chance; the number of documents."
    )
    def agreeing_pairs(
        self, vocabulary: str, origin: Numbers, first: dict[str, NDArray[Any]],
        second: dict[str, NDArray[Any]],
    ) -> dict[str, Any]:  # fmt: skip
        """Count the pairs of documents that two clusterings, by `Discriminants`, have together."""
        self.check(vocabulary)
        labels = []
        for clusters in (first, second):
            weights = {"origin": origin, **clusters}
            inference = Discriminants(self.bag.shape[1], self.settings)
            parts = (s.argmax(1) for _, s in inference.memberships(weights, self.points(origin)))
            labels.append(np.concatenate([np.zeros(0, np.int64), *parts]))
        table = np.zeros((labels[0].max(initial=0) + 1, labels[1].max(initial=0) + 1))
        np.add.at(table, tuple(labels), 1)
        sizes = {"together": table, "first": table.sum(1), "second": table.sum(0)}
        pairs = {name: float((counts * (counts - 1) / 2).sum()) for name, counts in sizes.items()}
        n = len(self.usable)
        chance = pairs["first"] * pairs["second"] / max(n * (n - 1) / 2, 1.0)
        return {"pairs": pairs | {"chance": chance}, "documents": n}

    @leaves(
        "The number of such documents of each cluster that has enough of them, else zero; the "
        "number of those of which no cluster has at least half a probability, if enough; the "
        "number of all. The model says them of each client: all participants see them.",
        seen_by_all=True,
    )
    def sizes(self, vocabulary: str, weights: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Count the documents that belong to each cluster with at least half a probability."""
        self.check(vocabulary)
        counts, unclear = np.zeros(self.n_topics(weights=weights)), 0
        for _, theta in self.thetas(weights=weights):
            largest = theta.max(1)
            clear = largest >= UNCLEAR
            counts += np.bincount(theta.argmax(1)[clear], minlength=len(counts))
            unclear += int((~clear).sum())
        counts[counts < self.min_documents] = 0
        return {
            "sizes": counts.astype(np.int64),
            "unclear": unclear if unclear >= self.min_documents else 0,
            "documents": len(self.usable),
        }

    def n_topics(self, **model: Any) -> int:
        return len(model["weights"][self.inference.prototypes])

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        weights = model["weights"]
        points = self.points(weights["origin"])
        inference = self._inference(len(weights[self.inference.prototypes]))
        for rows, theta in inference.memberships(weights, points):
            yield self.usable[rows], theta

    def find_points(self, origin: Numbers) -> Points:
        inference = self._inference()
        if inference.sees_words:
            return inference.points(origin, self.bag[self.usable], None)
        return inference.points(origin, None, self.embeddings[self.usable])

    def points_of(
        self, origin: Numbers, views: Sequence[NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]:
        """Return the points of views of all documents, given by their embeddings."""
        inference = self._inference()
        return [inference.points(origin, None, view[self.usable]) for view in views]

    @property
    def n_dimensions(self) -> int:
        """Length of a point."""
        return self._inference().n_dimensions

    def _inference(
        self, n_clusters: int | None = None, kind: type[ClusterInference] | None = None
    ) -> ClusterInference:
        number = n_clusters or self.settings.n_components
        shape = self.settings.model_copy(update={"n_components": number})
        return (kind or self.inference)(self.bag.shape[1], shape)
