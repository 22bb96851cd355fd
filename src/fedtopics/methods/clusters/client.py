"""The client side of all methods that find clusters of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.contract.payload import digest_of
from fedtopics.errors import DataError
from fedtopics.files import make_folder, read_bytes, write_durably
from fedtopics.inference.clusters import ClusterInference, centred
from fedtopics.inference.vectors import Numbers, Points, blocks, nearest_centres
from fedtopics.methods.clusters.settings import PARTS, WHOLE, ClusterSettings, Part
from fedtopics.methods.clusters.sums import (
    agreeing_pairs,
    flows,
    may_move,
    sums_by_class,
    sums_by_label,
)
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.groups import SEEN, Enough, Grouped, GroupRequest, as_many, is_count
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.core.training import Arrays

Clustering = tuple[int, int, Part]
"""Number of the start, number of clusters, part of the documents."""
Labels = NDArray[np.int64]
FILE = "labels.safetensors"


class ReleasedLabels:
    """The labels of the last update of each clustering, stored on disk."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / FILE
        # For each clustering: the last request, the labels before it, and the labels of its reply.
        self._last: dict[Clustering, tuple[str, Labels, Labels]] = {}
        if self._file is not None and self._file.exists():
            for key, labels in load(read_bytes(self._file)).items():
                start, number, *part = map(int, key.split("-"))
                self._last[start, number, (part[0], part[1])] = "", labels, labels

    def before(self, clustering: Clustering, question: str, labels: Labels) -> Labels:
        """Return the labels of the last reply to another request, or `labels` if there is none."""
        last_question, earlier, last = self._last.get(clustering, ("", labels, labels))
        before = earlier if last_question == question else last
        return before if len(before) == len(labels) else labels

    def keep(self, clustering: Clustering, question: str, labels: Labels) -> None:
        self._last[clustering] = question, self.before(clustering, question, labels), labels

    def of_whole(self, number: int) -> list[Labels]:
        """Return the labels of all clusterings of all documents with this number of clusters."""
        return [
            labels
            for (_, n_clusters, part), (*_, labels) in self._last.items()
            if (n_clusters, part) == (number, WHOLE)
        ]

    def forget(self) -> None:
        if self._last:
            self._last = {}
            self.store()

    def store(self) -> None:
        if self._file is not None:
            make_folder(self._file.parent)
            named = {
                "-".join(map(str, (start, number, *part))): labels
                for (start, number, part), (*_, labels) in self._last.items()
            }
            write_durably(self._file, save(named))


class PointSums(SharedFunctions):
    client: TopicClient[Any]

    def __init__(self, client: TopicClient[Any]) -> None:
        super().__init__(client)
        self._points: tuple[bytes, Points] = (b"", np.zeros((0, 0)))
        self.moved_embeddings: NDArray[np.float32] | None = None  # moved towards their words'
        protect = client.guard.of_all or client.min_documents > 1
        self.released = ReleasedLabels(client.site.folder if protect else None)

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """The documents' embeddings; DataError if they have none."""
        embeddings = self.client.corpus.embeddings
        if self.moved_embeddings is not None:
            return self.moved_embeddings
        if embeddings is None:
            raise DataError(
                "the documents have no embeddings, which the method needs to distinguish them."
            )
        return embeddings

    @cached_property
    def located(self) -> Documents:
        return np.flatnonzero(self.embeddings.any(1))

    @published("The sum of the documents' embeddings, and their number.")
    def means(self, vocabulary: str) -> dict[str, Any]:
        self.client.check(vocabulary)
        total = np.zeros(self.embeddings.shape[1])
        for _, block in blocks(self.embeddings[self.located]):
            total += block.sum(0)
        return {"embeddings": total, "documents": len(self.located)}

    @published(
        "The sum of the documents' centred embeddings, the sum of their outer products (if there "
        "are fewer documents than dimensions, it reveals the space that they span), their number."
    )
    def moments(self, vocabulary: str, origin: Numbers, part: Part) -> dict[str, Any]:
        """Sum the embeddings (minus the origin, of unit length), and their outer products."""
        self.client.check(vocabulary)
        points = self.points(origin)[self.rows(part)]
        total = np.zeros(points.shape[1])
        products = np.zeros((points.shape[1],) * 2)
        for _, block in blocks(points):
            total += block.sum(0)
            products += block.T @ block
        return {"points": total, "products": products, "documents": len(points)}

    @published(
        "For each clustering: for each cluster with enough of the documents, the sum of their "
        "vectors (of embeddings or words) and their number; the sum of squared distances to the "
        "nearest centre. The number of documents. With secure aggregation, first: how many "
        "documents of each cluster of the last reply are now in each cluster."
    )
    def cluster_sums(
        self,
        vocabulary: str,
        round: int,
        origin: Numbers,
        centres: Numbers,
        starts: list[int],
        part: Part,
        groups: GroupRequest = SEEN,
    ) -> dict[str, Any]:
        """Sum the points that are nearest to each centre (k-means).

        Between replies about a clustering, documents change their cluster only in groups of at
        least the policy's min_documents, so two sums never differ by one document's embedding.
        """
        self.client.check(vocabulary)
        points = self.points(origin)[self.rows(part)]
        sums = np.zeros(centres.shape)
        counts = np.zeros(centres.shape[:2])
        distances = np.zeros(len(centres))
        n = centres.shape[1]
        moves = np.zeros((len(centres), n, n), np.int64)
        request = {"sums": "nearest", "origin": origin, "centres": centres, "part": part}
        nearest = self.client.guard.once(
            groups, request, lambda: [nearest_centres(points, of_start) for of_start in centres]
        )
        question = digest_of({"round": round, "origin": origin, "centres": centres})
        for i, (start, (labels, distance)) in enumerate(zip(starts, nearest, strict=True)):
            before = self.released.before((start, n, part), question, labels)
            labels, enough, moves[i] = self.moved(groups, i, before, labels, n)
            if is_count(groups):
                continue
            self.released.keep((start, n, part), question, labels)
            all_sums, all_counts = sums_by_label(points, labels, n)
            sums[i], counts[i] = of_enough(enough, all_sums, all_counts)
            distances[i] = distance.sum()
        if is_count(groups):
            return {"moves": moves, "documents": points.shape[0]}
        # Store before sending: a restarted client must know which labels others have sums of.
        self.released.store()
        reply = {"sums": sums, "counts": counts, "distances": distances}
        return reply | {"documents": points.shape[0]}

    def moved(
        self, groups: GroupRequest, clustering: int, before: Labels, now: Labels, n: int
    ) -> tuple[Labels, Enough, NDArray[np.int64]]:
        """Move documents only in groups; return labels, which clusters are large enough, moves."""
        moves = flows(before, now, n)
        if not self.client.guard.shares(groups):
            allowed, enough = _settled(moves, self.client.guard.least)
            labels = np.where(allowed[before, now], now, before)
            return labels, enough, np.diag(np.bincount(labels, minlength=n) * enough)
        if is_count(groups):
            return now, np.ones(n, bool), moves
        allowed, enough = _settled(groups["counted"]["moves"][clustering], groups["least"])
        return np.where(allowed[before, now], now, before), enough, moves

    def forget(self) -> None:
        self.released.forget()

    def rows(self, part: Part) -> Documents | slice:
        """Return the rows of a part of the documents; all parts are empty if one is too small."""
        number, parts = part
        if parts not in PARTS or not 0 <= number < parts:
            raise ValueError(f"there is no part {number} of {parts}")
        if parts == 1:
            return slice(None)
        shuffled = self.client.secret.rng("parts").permutation(len(self.located))
        enough = len(shuffled) // parts >= self.client.min_documents
        return np.sort(shuffled[number::parts]) if enough else shuffled[:0]

    def points(self, origin: Numbers) -> Points:
        key = origin.tobytes()
        if self._points[0] != key:
            self._points = key, self.find_points(origin)
        return self._points[1]

    def find_points(self, origin: Numbers) -> Points:
        """Return centred embeddings of unit length."""
        return centred(self.embeddings[self.located], origin)


def of_enough(enough: Enough, sums: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Set the sums and weights of clusters of too few documents to 0."""
    return sums * enough[..., None], weights * enough


def _settled(moves: NDArray[np.int64], least: int) -> tuple[NDArray[np.bool_], Enough]:
    """Return which moves are made, and which clusters have enough documents after them."""
    allowed = may_move(moves, least)
    return allowed, as_many((moves * allowed).sum(0) + (moves * ~allowed).sum(1), least)


AnyClusterSettings = TypeVar("AnyClusterSettings", bound=ClusterSettings)
UNCLEAR = 0.5  # documents with a lower probability for every cluster belong to no cluster


class ClusterSums(PointSums):
    client: ClusterClient[Any]

    @property
    def located(self) -> Documents:
        """Rows of the documents that have a point: an embedding, or a word."""
        return self.client.usable

    @published(
        "For each clustering: the sum of the documents' memberships in each cluster, and, for each "
        "cluster where that sum is large enough, the sum of embeddings weighted by membership. The "
        "number of documents. With secure aggregation, memberships are also summed before that."
    )
    def class_sums(
        self,
        vocabulary: str,
        round: int,
        origin: Numbers,
        projection: Numbers,
        directions: Numbers,
        bias: Numbers,
        part: Part,
        groups: GroupRequest = SEEN,
    ) -> dict[str, Any]:
        """Sum points by their memberships in n_starts `Discriminant`s; see `moments` for points."""
        self.client.check(vocabulary)
        points = self.points(origin)[self.rows(part)]
        arrays = {"projection": projection, "directions": directions, "bias": bias}
        temperature = self.client.settings.temperature
        compute = partial(sums_by_class, points, temperature, **arrays)
        request = {"sums": "classes", "origin": origin, "part": part, **arrays}
        return self.by_group(groups, request, compute) | {"documents": len(points)}

    def by_group(
        self,
        groups: GroupRequest,
        request: dict[str, Any],
        compute: Callable[[], tuple[Numbers, Numbers]],
    ) -> dict[str, Any]:
        """Return the sums of groups with enough weight, and the weights of all groups."""

        def grouped() -> Grouped:
            sums, weights = compute()

            def summed(enough: Enough) -> dict[str, Any]:
                sent_sums, sent_weights = of_enough(enough, sums, weights)
                return {"sums": sent_sums, "weights": weights, "sent": sent_weights}

            return {"counts": weights}, summed

        return self.client.guard.sums(groups, request, as_many, grouped)

    @published(
        "For two clusterings, the number of pairs of the client's documents that share a cluster "
        "in both, in the first, in the second, and in both by chance. The number of documents."
    )
    def agreeing_pairs(
        self,
        vocabulary: str,
        origin: Numbers,
        first: dict[str, NDArray[Any]],
        second: dict[str, NDArray[Any]],
    ) -> dict[str, Any]:
        """Count the pairs of documents that share a cluster, for two `Discriminant`s."""
        self.client.check(vocabulary)
        points = self.points(origin)
        temperature = self.client.settings.temperature
        pairs = agreeing_pairs(points, temperature, first, second)
        return {"pairs": pairs, "documents": len(self.client.usable)}

    def find_points(self, origin: Numbers) -> Points:
        inference = self.client.inference_of()
        if inference.sees_words:
            return inference.points(origin, self.client.bag[self.located], None)
        return inference.points(origin, None, self.embeddings[self.located])


class ClusterClient(TopicClient[AnyClusterSettings]):
    inference: ClassVar[type[ClusterInference]]
    exchanges: ClassVar[tuple[type[SharedFunctions], ...]] = (ClusterSums,)
    remembers = True  # the labels of the last reply

    @staticmethod
    def end(settings: TopicSettings) -> dict[str, str]:
        return TopicClient.end(settings) | {"sizes": "once, at the end"}

    def find_usable(self) -> Documents:
        if self.settings.representation != "embedding":
            return super().find_usable()
        return np.flatnonzero(self.part(ClusterSums).embeddings.any(1))

    @published(
        "The number of documents in each cluster with a probability of at least one half, or zero "
        "if there are too few; the number of documents in no cluster, if there are enough; the "
        "number of all. The model contains each client's numbers: all participants see them.",
        seen_by_all=True,
    )
    def sizes(self, vocabulary: str, weights: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Count the documents in each cluster with a probability of at least one half."""
        self.check(vocabulary)
        counts = np.zeros(self.n_topics(weights=weights))
        unclear = 0
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
        inference = self.inference_of(self.n_topics(**model))
        for rows, theta in inference.memberships(weights, self.last_points(weights)):
            yield self.usable[rows], theta

    def last_points(self, weights: Arrays) -> Points:
        """Return the usable documents' points, from which a model with these weights infers."""
        return self.part(ClusterSums).points(weights["origin"])

    def points_of(
        self, origin: Numbers, views: Sequence[NDArray[np.float32]]
    ) -> list[NDArray[np.float32]]:
        inference = self.inference_of()
        return [inference.points(origin, None, view[self.usable]) for view in views]

    def inference_of(self, n_clusters: int | None = None) -> ClusterInference:
        """Return the inference of clusters, with this number of clusters or the settings'."""
        number = n_clusters or self.settings.n_components
        shape = self.settings.shape(self.inference.settings_type, n_components=number)
        return self.inference(self.bag.shape[1], shape)
