"""What the clients' halves have in common in all methods that see documents as points."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError
from fedtopics.inference.clusters import centred
from fedtopics.inference.points import (
    Numbers,
    Points,
    blocks,
    flows,
    may_move,
    nearest,
    sums_by_label,
)  # fmt: skip
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.groups import SEEN, Enough, Groups, as_many, digest_of, is_count
from fedtopics.methods.plan import Plan, Site
from fedtopics.methods.released_labels import Labels, ReleasedLabels
from fedtopics.methods.settings import TopicSettings

Settings = TypeVar("Settings", bound=TopicSettings)


class PointClient(TopicClient[Settings]):
    """A client's documents as points, and their sums.

    A cluster with fewer of its documents than its policy asks for is not summed: the sum of one
    document is its embedding.
    """

    def __init__(self, plan: Plan[Settings], site: Site) -> None:
        super().__init__(plan, site)
        self._points: tuple[bytes, Points] = (b"", np.zeros((0, 0)))
        protect = self.guard.of_all or self.min_documents > 1
        self._released = ReleasedLabels(site.folder if protect else None)

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """The documents' embeddings; DataError if they have none."""
        embeddings: NDArray[np.float32] | None = self._corpus.embeddings
        if embeddings is None:
            raise DataError("the documents have no embeddings, by which they are told apart.")
        return embeddings

    @cached_property
    def located(self) -> Documents:
        """Rows of the documents that have a point."""
        return np.flatnonzero(self.embeddings.any(1))

    @leaves("The sum of the documents' embeddings, and their number.")
    def means(self, vocabulary: str) -> dict[str, Any]:
        """Sum the embeddings of all documents."""
        self.check(vocabulary)
        total = np.zeros(self.embeddings.shape[1])
        for _, block in blocks(self.embeddings[self.located]):
            total += block.sum(0)
        return {"embeddings": total, "documents": len(self.located)}

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
        "documents. Where sums are masked, before that: how many of the documents are now in each "
        "cluster, by the cluster that they were in at the last reply."
    )
    def cluster_sums(
        self, vocabulary: str, round: int, origin: Numbers, centres: Numbers, starts: list[int],
        half: int, groups: Groups = SEEN,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the points that are nearest to each centre (k-means).

        From one reply to the next about a clustering, documents change their cluster only in groups
        of the policy's min_documents, so that sums do not differ by one document's embedding; where
        they are masked, in groups of so many of all clients.

        Centres of several clusterings have the shape (n_starts, n_clusters, n_dimensions); `starts`
        are the clusterings' numbers, as later rounds have fewer. See `moments` for the rest.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]
        sums, counts = np.zeros(centres.shape), np.zeros(centres.shape[:2])
        distances, n = np.zeros(len(centres)), centres.shape[1]
        moves = np.zeros((len(centres), n, n), np.int64)
        compute = lambda: [nearest(points, each) for each in centres]  # noqa: E731
        found = self.guard.once(groups, ("nearest", origin, centres, half), compute)
        question = digest_of((round, origin, centres))
        for i, (start, (labels, distance)) in enumerate(zip(starts, found, strict=True)):
            before = self._released.before((start, n, half), question, labels)
            labels, enough, moves[i] = self.moved(groups, i, before, labels, n)
            if is_count(groups):
                continue
            self._released.keep((start, n, half), question, labels)
            sums[i], counts[i] = of_enough(enough, *sums_by_label(points, labels, n))
            distances[i] = distance.sum()
        if is_count(groups):
            return {"moves": moves, "documents": points.shape[0]}
        self._released.store()
        reply = {"sums": sums, "counts": counts, "distances": distances}
        return reply | {"documents": points.shape[0]}

    def moved(
        self, groups: Groups, clustering: int, before: Labels, now: Labels, n: int
    ) -> tuple[Labels, Enough, NDArray[np.int64]]:
        """Let documents change their cluster, of n, in groups only.

        Return their clusters, which have enough documents, and by which moves they are counted:
        documents that move in groups of this client alone do not move for others.
        """
        moves = flows(before, now, n)
        if not self.guard.shares(groups):
            may, enough = _settled(moves, self.guard.least)
            labels = np.where(may[before, now], now, before)
            return labels, enough, np.diag(np.bincount(labels, minlength=n) * enough)
        if is_count(groups):
            return now, np.ones(n, bool), moves
        may, enough = _settled(groups["counted"]["moves"][clustering], groups["least"])
        return np.where(may[before, now], now, before), enough, moves

    def forget(self) -> None:
        """As of `TopicClient`: nothing was released yet."""
        self._released.forget()

    def rows(self, half: int) -> Documents | slice:
        """Return which points belong to a half of the documents, or all of them.

        Where one of the halves has fewer documents than the policy asks for, both are empty: the
        sum of all less the sum of one is that of the other.
        """
        if half not in (0, 1):
            return slice(None)
        shuffled = self.secret.rng("halves").permutation(len(self.located))
        enough = len(shuffled) // 2 >= self.min_documents
        return np.sort(shuffled[half::2]) if enough else shuffled[:0]

    def points(self, origin: Numbers) -> Points:
        """Return the points of the documents that have one; the last ones are cached."""
        key = origin.tobytes()
        if self._points[0] != key:
            self._points = key, self.find_points(origin)
        return self._points[1]

    def find_points(self, origin: Numbers) -> Points:
        """Return embeddings less the origin, of unit length."""
        return centred(self.embeddings[self.located], origin)


def of_enough(enough: Enough, sums: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Set the sums of clusters of too few documents to 0, and what they weigh."""
    return sums * enough[..., None], weights * enough


def _settled(moves: NDArray[np.int64], least: int) -> tuple[NDArray[np.bool_], Enough]:
    """Return which of these moves documents make, and which clusters have enough of them then."""
    may = may_move(moves, least)
    return may, as_many((moves * may).sum(0) + (moves * ~may).sum(1), least)
