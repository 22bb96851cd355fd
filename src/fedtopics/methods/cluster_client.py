"""What the clients' halves have in common in all methods that find clusters of documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError
from fedtopics.inference.clusters import ClusterInference, Discriminants
from fedtopics.inference.points import (
    Discriminant,
    Numbers,
    Points,
    blocks,
    nearest,
    sums_by_label,
    weighted_sums,
)
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.cluster_settings import ClusterSettings
from fedtopics.methods.plan import Plan, Site
from fedtopics.methods.released_labels import ReleasedLabels
from fedtopics.methods.settings import TopicSettings

Settings = TypeVar("Settings", bound=ClusterSettings)
UNCLEAR = 0.5  # a document whose clusters are all less probable belongs to none


class ClusterClient(TopicClient[Settings]):
    """A client's documents as points.

    A cluster with fewer of its documents than its policy asks for is not summed: the sum of one
    document is its embedding.
    """

    inference: ClassVar[type[ClusterInference]]

    def __init__(self, plan: Plan[Settings], site: Site) -> None:
        super().__init__(plan, site)
        self._points: tuple[bytes, Points] = (b"", np.zeros((0, 0)))
        self._released = ReleasedLabels(self.min_documents, site.folder)

    @staticmethod
    def end(settings: TopicSettings) -> dict[str, str]:
        return TopicClient.end(settings) | {"sizes": "once, at the end"}

    def find_usable(self) -> Documents:
        if self.settings.representation != "embedding":
            return super().find_usable()
        return np.flatnonzero(self._embeddings.any(1))

    @property
    def _embeddings(self) -> NDArray[np.float32]:
        embeddings: NDArray[np.float32] | None = self._corpus.embeddings
        if embeddings is None:
            raise DataError("the documents have no embeddings, by which clusters are found.")
        return embeddings

    @leaves("The sum of the documents' embeddings, and their number.")
    def means(self, vocabulary: str) -> dict[str, Any]:
        """Sum the embeddings of all documents."""
        self.check(vocabulary)
        total = np.zeros(self._embeddings.shape[1])
        for _, block in blocks(self._embeddings[self.usable]):
            total += block.sum(0)
        return {"embeddings": total, "documents": len(self.usable)}

    @leaves(
        "The sum of the points, the sum of their outer products (of fewer documents than "
        "dimensions, it tells which space they span), and their number."
    )
    def moments(self, vocabulary: str, origin: Numbers, half: int) -> dict[str, Any]:
        """Sum the embeddings, less their mean and of unit length, and their outer products.

        The origin (n_dimensions,) is the mean embedding of all clients; see `rows` for the half.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]
        total, products = np.zeros(points.shape[1]), np.zeros((points.shape[1],) * 2)
        for _, block in blocks(points):
            total += block.sum(0)
            products += block.T @ block
        return {"points": total, "products": products, "documents": len(points)}

    @leaves(
        "For each clustering: of each cluster with enough of the documents, their sum and "
        "their number; the sum of squared distances to the nearest centre. The number of "
        "documents."
    )
    def cluster_sums(
        self, vocabulary: str, round: int, origin: Numbers, centres: Numbers, starts: list[int],
        half: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the points that are nearest to each centre (k-means).

        From one reply to the next about a clustering, documents change their cluster only in groups
        of the policy's min_documents, so that sums do not differ by one document's embedding.

        Centres of several clusterings have the shape (n_starts, n_clusters, n_dimensions); `starts`
        are the clusterings' numbers, as later rounds have fewer. See `moments` for the rest.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]
        sums, counts = np.zeros(centres.shape), np.zeros(centres.shape[:2])
        distances = np.zeros(len(centres))
        n = centres.shape[1]
        for i, start in enumerate(starts):
            labels, distance = nearest(points, centres[i])
            labels = self._released.together((start, n, half), labels)
            sums[i], counts[i] = self.enough(*sums_by_label(points, labels, n))
            distances[i] = distance.sum()
        self._released.store()
        reply = {"sums": sums, "counts": counts, "distances": distances}
        return reply | {"documents": points.shape[0]}

    def forget(self) -> None:
        self._released.forget()

    def rows(self, half: int) -> Documents | slice:
        """Return which points belong to a half of the documents, or all of them.

        Where one of the halves has fewer documents than the policy asks for, both are empty: the
        sum of all less the sum of one is that of the other.
        """
        if half not in (0, 1):
            return slice(None)
        shuffled = self.secret.rng("halves").permutation(len(self.usable))
        enough = len(shuffled) // 2 >= self.min_documents
        return np.sort(shuffled[half::2]) if enough else shuffled[:0]

    @leaves(
        "For each clustering: with how much weight the documents are members of each cluster; "
        "of each with enough weight, their sum by membership. The number of documents."
    )
    def class_sums(
        self, vocabulary: str, round: int, origin: Numbers, projection: Numbers,
        directions: Numbers, bias: Numbers, half: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the points by their memberships, of n_starts `Discriminant`s with stacked arrays.

        See `moments` for the rest.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]
        sums, weights = np.zeros((*bias.shape, points.shape[1])), np.zeros(bias.shape)
        sent = np.zeros(bias.shape)
        for i, arrays in enumerate(zip(projection, directions, bias, strict=True)):
            members = Discriminant(*arrays, self.settings.temperature).memberships(points)
            total, weights[i] = weighted_sums(points, members, bias.shape[1])
            sums[i], sent[i] = self.enough(total, weights[i])
        return {"sums": sums, "weights": weights, "sent": sent, "documents": len(points)}

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
        return pairs | {"chance": chance, "documents": n}

    @leaves(
        "The number of such documents of each cluster that has enough of them, else zero; the "
        "number of those of which no cluster has at least half a probability, if enough; the "
        "number of all. The model says them of each client: all participants see them."
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

    def points(self, origin: Numbers) -> Points:
        """Return the points of the usable documents; the last ones are cached."""
        key = origin.tobytes()
        if self._points[0] != key:
            inference = self._inference()
            if inference.sees_words:
                self._points = key, inference.points(origin, self.bag[self.usable], None)
            else:
                embeddings = self._embeddings[self.usable]
                self._points = key, inference.points(origin, None, embeddings)
        return self._points[1]

    @property
    def n_dimensions(self) -> int:
        """Length of a point."""
        return self._inference().n_dimensions

    def enough(self, sums: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
        """Set the sums of clusters of too few documents to 0; where one is enough, none."""
        enough = weights >= (self.min_documents if self.min_documents > 1 else 0)
        return sums * enough[..., None], weights * enough

    def _inference(
        self, n_clusters: int | None = None, kind: type[ClusterInference] | None = None
    ) -> ClusterInference:
        number = n_clusters or self.settings.n_components
        shape = self.settings.model_copy(update={"n_components": number})
        return (kind or self.inference)(self.bag.shape[1], shape)
