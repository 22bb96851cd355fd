"""The client side of all methods that find clusters of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.payload import digest_of
from fedtopics.contract.published import (
    EACH_ROUND,
    LAST,
    NEVER,
    Often,
    Over,
    Reply,
    of_method,
    published,
    unknown,
)
from fedtopics.contract.replies import AgreeingPairs, Bounds, Template, counts, of_groups, sums
from fedtopics.errors import DataError
from fedtopics.files import make_folder, read_bytes, write_durably
from fedtopics.inference.clusters import ClusterInference, centred
from fedtopics.inference.vectors import Numbers, Points, blocks, nearest_centres
from fedtopics.methods.clusters.settings import (
    MOST_ROUNDS,
    PARTS,
    START_OF_CHOICE,
    WHOLE,
    Clusterings,
    ClusterSettings,
    DiscriminativeSettings,
    KMeansSettings,
    Part,
)
from fedtopics.methods.clusters.sums import (
    agreeing_pairs,
    flows,
    may_move,
    sums_by_class,
    sums_by_label,
)
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.groups import (
    SEEN,
    Enough,
    Grouped,
    GroupRequest,
    as_many,
    clients_in,
    is_count,
    of_enough_clients,
    persons_by_label,
)
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


A_PART = Over(
    "all documents, or a part of them",
    fewest=lambda agreement, request: agreement.n_persons(request["part"][1]),
)


def n_dimensions(settings: Any, n_words: int) -> int:
    """Return the number of dimensions of a method's points: of embeddings, or of words."""
    if isinstance(settings, DiscriminativeSettings):
        return settings.build(n_words).n_dimensions
    return n_words if settings.needed_embedding is None else settings.embedding.dimension


def is_start(settings: Any) -> bool:
    """Whether k-means of embeddings begins with these settings; it needs their mean."""
    return (
        not settings.pairs
        if isinstance(settings, Clusterings)
        else isinstance(settings, KMeansSettings) and settings.needed_embedding is not None
    )


def nearest_bounds(agreement: Agreement, settings: TopicSettings, centres: Numbers) -> Template:
    # Measured from the origin, points by embeddings have a known length; words have no bound.
    length = np.inf if settings.needed_embedding is None else settings.longest_point
    most = length * agreement.bound_if_announced(agreement.documents)  # Cauchy-Schwarz
    of_point = max(length, 1.0)  # centres are means of points of this length or 0
    farthest = float((of_point + np.linalg.norm(centres, axis=-1).max(initial=0)) ** 2)
    return {
        "sums": Bounds(centres.shape, most, -most),
        "counts": sums(*centres.shape[:2], per_document=1),
        "distances": sums(len(centres), per_document=farthest),
    }


def sums_by_weight(*shape: int) -> Template:
    """Return the bounds of sums of vectors of length 1, weighted by documents' memberships."""
    weights = sums(*shape[:-1], per_document=1)
    return {"sums": Bounds(shape, per_document=1), "weights": weights, "sent": weights}


class PointSums(SharedFunctions):
    client: TopicClient[Any]

    def __init__(self, client: TopicClient[Any]) -> None:
        super().__init__(client)
        self._points: tuple[bytes, Points] = (b"", np.zeros((0, 0)))
        self.moved_embeddings: NDArray[np.float32] | None = None  # moved towards their words'
        self.released = ReleasedLabels(
            client.site.folder if client.guard.of_all or client.min_persons > 1 else None
        )

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

    @published(
        "The sum of the documents' embeddings, scaled to length 1, the sum of their outer products "
        "(if there are fewer documents than dimensions, it reveals the space that they span), and "
        "their number.",
        "sums of embeddings and of their products",
        often=lambda s: (
            Often(before=sum(PARTS[1:]), at_most=True)
            if isinstance(s, Clusterings) and s.pairs
            else Often(before=2, at_most=True)
            if is_start(s) and (isinstance(s, Clusterings) or s.adds_up)
            else NEVER
        ),
        # Points have length 1; the sum can vanish for most clients, but not for one that differs.
        reply=lambda origin: {
            "points": Bounds((len(origin),), length=1.0),
            "products": Bounds((len(origin), len(origin)), products=True),
        },
        largest=lambda s, n_words: {"origin": unknown(n_dimensions(s, n_words))},
        over=A_PART,
    )
    def embedding_moments(self, origin: Numbers, part: Part) -> Reply:
        """Sum the embeddings (minus the origin, of unit length), and their outer products."""
        rows = self.rows(part)
        points = self.points(origin)[rows]
        total = np.zeros(points.shape[1])
        products = np.zeros((points.shape[1],) * 2)
        for _, block in blocks(points):
            total += block.sum(0)
            products += block.T @ block
        return {
            "points": total,
            "products": products,
            "documents": self.client.over(self.located[rows]),
        }

    @published(
        "For each clustering: for each cluster with documents of enough persons, the sum of their "
        "vectors (of embeddings or words) and their number; the sum of squared distances to the "
        "nearest centre. The number of documents. With secure aggregation, first: how many "
        "documents of each cluster of the last reply are now in each cluster.",
        "sums of embeddings or words by cluster",
        often=lambda s: (
            EACH_ROUND
            if isinstance(s, Clusterings) or (isinstance(s, KMeansSettings) and s.adds_up)
            else NEVER
        ),
        reply=nearest_bounds,
        counts_first=lambda centres: {
            "moves": sums(*centres.shape[:2], centres.shape[1], per_document=1)
        },
        largest=lambda s, n_words: {
            "centres": unknown(
                max(s.start.tries, START_OF_CHOICE.tries),
                s.most_topics,
                n_dimensions(s, n_words),
            )
        },
        over=A_PART,
    )
    def cluster_sums(
        self,
        round: int,
        origin: Numbers,
        centres: Numbers,
        starts: list[int],
        part: Part,
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Sum the points that are nearest to each centre (k-means).

        Between replies about a clustering, documents change their cluster only in groups of at
        least the policy's min_persons, so two sums never differ by one document's embedding.
        """
        rows = self.rows(part)
        points = self.points(origin)[rows]
        owners = self.client.corpus.owners_of(self.located[rows])
        documents = self.client.over(self.located[rows])
        cluster_totals = np.zeros(centres.shape)
        sizes = np.zeros(centres.shape[:2])
        distances = np.zeros(len(centres))
        n = centres.shape[1]
        moves = np.zeros((len(centres), n, n))
        nearest = self.client.guard.once(
            groups,
            {"sums": "nearest", "origin": origin, "centres": centres, "part": part},
            lambda: [nearest_centres(points, of_start) for of_start in centres],
        )
        question = digest_of({"round": round, "origin": origin, "centres": centres})
        for i, (start, (labels, distance)) in enumerate(zip(starts, nearest, strict=True)):
            before = self.released.before((start, n, part), question, labels)
            labels, enough, moves[i] = self.moved(groups, i, before, labels, n, owners)
            if is_count(groups):
                continue
            self.released.keep((start, n, part), question, labels)
            all_sums, all_counts = sums_by_label(points, labels, n)
            cluster_totals[i] = all_sums * enough[:, None]
            sizes[i] = all_counts * enough
            distances[i] = distance.sum()
        if is_count(groups):
            return {"moves": moves, "documents": documents, **clients_in(groups, moves.sum(-2))}
        # Store before sending: a restarted client must know which labels others have sums of.
        self.released.store()
        return {
            "sums": cluster_totals,
            "counts": sizes,
            "distances": distances,
            "documents": documents,
        }

    def moved(
        self,
        groups: GroupRequest,
        clustering: int,
        before: Labels,
        now: Labels,
        n: int,
        owners: NDArray[np.int64] | None,
    ) -> tuple[Labels, Enough, Numbers]:
        """Move documents only in groups; return labels, which clusters are large enough, moves."""
        moves = flows(before, now, n, owners)
        if not self.client.guard.shares(groups):
            allowed, sizes = _settled(moves, self.client.guard.least)
            enough = as_many(sizes, self.client.guard.least)
            labels = np.where(allowed[before, now], now, before)
            return labels, enough, np.diag(persons_by_label(labels, n, owners) * enough)
        if is_count(groups):
            return now, np.ones(n, bool), moves
        moves = groups["counted"]["moves"][clustering]
        allowed, sizes = _settled(moves, groups["least"])
        enough = of_enough_clients(groups, as_many(sizes, groups["least"]), sizes, clustering)
        return np.where(allowed[before, now], now, before), enough, moves

    def forget(self) -> None:
        self.released.forget()

    def rows(self, part: Part) -> Documents:
        """Return the rows of a part of the points; all parts are empty if one is too small."""
        number, parts = part
        if parts not in PARTS or not 0 <= number < parts:
            raise ValueError(f"there is no part {number} of {parts}")
        n = len(self.located)
        if parts == 1:
            return np.arange(n)
        shuffled = self.client.secret.rng("parts").permutation(n)
        rows = [np.sort(shuffled[number::parts]) for number in range(parts)]
        fewest = min(self.client.corpus.n_persons(self.located[part]) for part in rows)
        return rows[number] if fewest >= self.client.min_persons else shuffled[:0]

    def points(self, origin: Numbers) -> Points:
        key = origin.tobytes()
        if self._points[0] != key:
            self._points = key, self.find_points(origin)
        return self._points[1]

    def find_points(self, origin: Numbers) -> Points:
        """Return centred embeddings of unit length."""
        return centred(self.embeddings[self.located], origin)


def _settled(moves: Numbers, least: int) -> tuple[NDArray[np.bool_], Numbers]:
    """Return which moves are made, and of how many persons clusters then are at least."""
    allowed = may_move(moves, least)
    stay = np.diag(moves)
    others = (moves * allowed).sum(0) + (moves * ~allowed).sum(1) - stay
    # A person may have documents that stay and others that come, and counts once.
    return allowed, np.maximum(stay, others)


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
        "number of documents. With secure aggregation, memberships are also summed before that.",
        "sums of embeddings by cluster",
        often=lambda s: (
            Often(before=2 * s.pairs * MOST_ROUNDS, at_most=True)
            if isinstance(s, Clusterings)
            else EACH_ROUND
            if isinstance(s, DiscriminativeSettings)
            else NEVER
        ),
        reply=lambda origin, bias: sums_by_weight(*bias.shape, len(origin)),
        counts_first=lambda bias: of_groups(*bias.shape),
        largest=lambda s, n_words: {
            "origin": unknown(n_dimensions(s, n_words)),
            "bias": unknown(2 * s.separation.finalists, s.most_topics),
        },
        over=A_PART,
    )
    def class_sums(
        self,
        round: int,
        origin: Numbers,
        projection: Numbers,
        directions: Numbers,
        bias: Numbers,
        part: Part,
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Sum points by their memberships in n_starts `Discriminant`s; see `moments` for points."""
        rows = self.rows(part)
        points = self.points(origin)[rows]
        arrays = {"projection": projection, "directions": directions, "bias": bias}
        compute = partial(
            sums_by_class,
            points,
            self.client.settings.temperature,
            self.client.corpus.owners_of(self.located[rows]),
            **arrays,
        )
        return self.by_group(
            groups,
            {"sums": "classes", "origin": origin, "part": part, **arrays},
            compute,
            self.located[rows],
        )

    def by_group(
        self,
        groups: GroupRequest,
        request: dict[str, Any],
        compute: Callable[[], tuple[Numbers, Numbers, dict[str, Numbers]]],
        rows: Documents,
    ) -> Reply:
        """Return the sums of groups of enough persons, and the weights of all groups."""

        def grouped() -> Grouped:
            totals, weights, powers = compute()
            return powers, lambda enough: {
                "sums": totals * enough[..., None],
                "weights": weights,
                "sent": weights * enough,
            }

        return self.client.sums_by_group(groups, request, grouped, rows)

    @published(
        "For two clusterings, the number of pairs of the client's documents that share a cluster "
        "in both, in the first, in the second, and in both by chance. The number of documents.",
        "numbers of pairs of documents",
        often=of_method(Clusterings, lambda s: Often(before=s.pairs, at_most=True)),
        reply=lambda: {"pairs": AgreeingPairs()},
    )
    def agreeing_pairs(
        self,
        origin: Numbers,
        first: dict[str, NDArray[Any]],
        second: dict[str, NDArray[Any]],
    ) -> Reply:
        """Count the pairs of documents that share a cluster, for two `Discriminant`s."""
        return {
            "pairs": agreeing_pairs(
                self.points(origin), self.client.settings.temperature, first, second
            ),
            "documents": self.client.over(self.client.usable),
        }

    def find_points(self, origin: Numbers) -> Points:
        inference = self.client.inference_of()
        return (
            inference.points(origin, self.client.bag[self.located], None)
            if inference.sees_words
            else inference.points(origin, None, self.embeddings[self.located])
        )


class ClusterClient(TopicClient[AnyClusterSettings]):
    exchanges: ClassVar[tuple[type[SharedFunctions], ...]] = (ClusterSums,)
    remembers = True  # the labels of the last reply

    def find_usable(self) -> Documents:
        return (
            np.flatnonzero(self.part(ClusterSums).embeddings.any(1))
            if self.settings.representation == "embedding"
            else super().find_usable()
        )

    @published(
        "The number of documents in each cluster with a probability of at least one half, or zero "
        "if there are too few; the number of documents in no cluster, if there are enough; the "
        "number of all. The model contains each client's numbers: all participants see them.",
        "sizes of clusters",
        often=LAST,
        reply=lambda settings: {
            "sizes": counts(settings.n_components, per_document=1),
            "unclear": counts(per_document=1),
        },
        seen_by_all=True,
    )
    def cluster_sizes(self, weights: dict[str, NDArray[Any]]) -> Reply:
        """Count the documents in each cluster with a probability of at least one half."""
        n = self.n_topics(weights=weights)
        groups = [  # documents without a clear cluster are a group of their own, the last
            np.where(theta.max(1) >= UNCLEAR, theta.argmax(1), n)
            for _, theta in self.thetas(weights=weights)
        ]
        labels = np.concatenate([np.zeros(0, np.int64), *groups])
        sizes = np.bincount(labels, minlength=n + 1) * (
            persons_by_label(labels, n + 1, self.corpus.owners_of(self.usable)) >= self.min_persons
        )
        return {
            "sizes": sizes[:n],
            "unclear": int(sizes[n]),
            "documents": self.over(self.usable),
        }

    def n_topics(self, **model: Any) -> int:
        return len(model["weights"][self.settings.inference.prototypes])

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
        return self.settings.build(
            self.bag.shape[1], n_components=n_clusters or self.settings.n_components
        )
