"""What the halves of all methods share that find clusters of documents.

The words of documents are counted as for topics, and say at the end what clusters are about. What
clusters are found by are points: embeddings, or bags of words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, StudyError
from fedtopics.inference.clusters import ClusterInference, ClusterShape
from fedtopics.inference.points import (
    Moments,
    Numbers,
    Points,
    blocks,
    nearest,
    sums_by_label,
)
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement, describe, reach_agreement
from fedtopics.methods.base import Clients, Run
from fedtopics.methods.client import AgreeingClient, Documents
from fedtopics.methods.cluster_settings import ClusterSettings
from fedtopics.methods.released_labels import ToldLabels
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.vocabulary import TextRules, VocabularyLimits

Settings = TypeVar("Settings", bound=ClusterSettings)
UNCLEAR = 0.5  # a document of which no cluster has this probability is of none
SEED = 1  # of what is drawn, besides the study's
ALL = 2  # both halves of the documents


@dataclass(frozen=True)
class Found:
    """What a method found.

    Parameters
    ----------
    weights : mapping of name to array
        By which clusters are found.
    rounds : int
    """

    weights: Mapping[str, NDArray[Any]]
    rounds: int


class ClusterServer(ABC, Generic[Settings]):
    """The server's half, but for how clusters are found.

    Parameters
    ----------
    settings : Settings
    text : TextRules
    limits : VocabularyLimits
    seed : int
    """

    inference: ClassVar[type[ClusterInference]]

    def __init__(
        self, settings: Settings, text: TextRules, limits: VocabularyLimits, seed: int
    ) -> None:
        self.settings = settings
        self.text = text
        self.limits = limits
        self.seed = seed

    @abstractmethod
    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Find the clusters."""

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Agree on words, find clusters, and ask the clients what they are about."""
        agreement = reach_agreement(clients, run, self.limits, 1, self.settings.draw(self.seed))
        found = self.cluster(agreement, run)
        work = partial(self._model, agreement, found)
        return clients.round(found.rounds + 1, work)[0]

    def _model(self, agreement: Agreement, found: Found) -> TopicModel:
        n_clusters = len(found.weights[self.inference.prototypes])
        settings = self.settings.model_copy(update={"n_components": n_clusters})
        template: Template = {"sizes": (n_clusters,), "unclear": ()}
        sizes = agreement.call("sizes", template, weights=found.weights)
        info = {
            "method": settings.title,
            "rounds": found.rounds,
            "seed": self.seed,
            "sizes": {name: reply["sizes"].tolist() for name, reply in sizes.items()},
            "unclear": {name: reply["unclear"] for name, reply in sizes.items()},
        }
        make = partial(self._make, settings, found.weights, info)
        return describe(agreement, settings, {"weights": found.weights}, make)

    def _make(
        self,
        settings: Settings,
        weights: Mapping[str, NDArray[Any]],
        info: Mapping[str, Any],
        **told: Any,
    ) -> TopicModel:
        shape = self.shape(settings)
        inference = self.inference(len(told["vocabulary"]), shape)
        with_words = inference.with_words(weights, told["word_sums"])
        return TopicModel(
            inference=inference, weights=with_words, shared={}, text=self.text, info=info, **told
        )

    def shape(self, settings: Settings) -> Any:
        """Return what a model keeps of the settings."""
        return ClusterShape(**settings.model_dump(include=set(ClusterShape.model_fields)))


class ClusterClient(AgreeingClient[Settings]):
    """A client's documents as points.

    A cluster in which fewer of its documents are than its policy asks for is not summed: of one
    document, the sum is its embedding.
    """

    inference: ClassVar[type[ClusterInference]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._points: tuple[bytes, Points] = (b"", np.zeros((0, 0)))
        self._told = ToldLabels(self.min_documents, self.workplace.folder)

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Say how often a study with these settings calls which function."""
        return super().schedule(settings) | {"sizes": "once, at the end"}

    def seen(self) -> Documents:
        """Return the rows of documents of which something is known."""
        if self.settings.representation != "embedding":
            return super().seen()
        return np.flatnonzero(self._embeddings.any(1))

    @property
    def _embeddings(self) -> NDArray[np.float32]:
        embeddings: NDArray[np.float32] | None = self._corpus.embeddings
        if embeddings is None:
            raise DataError("the documents have no embeddings, by which clusters are found.")
        return embeddings

    def means(self, vocabulary: str) -> dict[str, Any]:
        """Sum the embeddings of all documents.

        Leaves the client
            The sum of the documents' embeddings, and their number.
        """
        self.check(vocabulary)
        total = np.zeros(self._embeddings.shape[1])
        for _, block in blocks(self._embeddings[self.known]):
            total += block.sum(0)
        return {"embeddings": total, "documents": len(self.known)}

    def moments(self, vocabulary: str, origin: Numbers, half: int) -> dict[str, Any]:
        """Sum the embeddings, less their mean and of unit length, and their outer products.

        Parameters
        ----------
        vocabulary : str
        origin : float64 array of shape (n_dimensions,)
            Mean embedding of all clients.
        half : {0, 1, 2}
            Of the first, the second half of the documents alone, or of all.

        Leaves the client
            The sum of the points, the sum of their outer products (of fewer documents than
            dimensions, it tells which space they span), and their number.
        """
        self.check(vocabulary)
        points = self.points(origin)[self.rows(half)]
        total, products = np.zeros(points.shape[1]), np.zeros((points.shape[1],) * 2)
        for _, block in blocks(points):
            total += block.sum(0)
            products += block.T @ block
        return {"points": total, "products": products, "documents": len(points)}

    def cluster_sums(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        origin: Numbers,
        centres: Numbers,
        starts: list[int],
        half: int,
    ) -> dict[str, Any]:
        """Sum the points that are nearest to each centre (k-means).

        From one reply to the next about the same clustering, documents go from one cluster to
        another only in groups of as many as the policy asks for in a reply: what a sum changes by
        is not one document's embedding.

        Parameters
        ----------
        vocabulary : str
        round : int
        origin : float64 array of shape (n_dimensions,)
        centres : float64 array of shape (n_starts, n_clusters, n_dimensions)
            Some clusterings at once.
        starts : list of int, length n_starts
            Which clustering each goes on from: later there are fewer.
        half : {0, 1, 2}
            Of the first, the second half of the documents alone, or of all.

        Leaves the client
            For each clustering: of each cluster with enough of the documents, their sum and their
            number; the sum of squared distances to the nearest centre. The number of documents.
        """
        self.check(vocabulary)
        self.expect(centres, (len(starts), None, self.n_dimensions), round)
        points = self.points(origin)[self.rows(half)]
        sums, counts = np.zeros(centres.shape), np.zeros(centres.shape[:2])
        distances = np.zeros(len(centres))
        for start, own in enumerate(centres):
            labels, apart = nearest(points, own)
            labels = self._told.together((starts[start], len(own), half), labels)
            sums[start], counts[start] = self.told(*sums_by_label(points, labels, len(own)))
            distances[start] = apart.sum()
        self._told.keep()
        told = {"sums": sums, "counts": counts, "distances": distances}
        return told | {"documents": points.shape[0]}

    def vocabulary(self) -> dict[str, Any]:
        """Begin anew: nothing of these documents was told yet; see `AgreeingClient.vocabulary`.

        Leaves the client
            Words with their document frequencies and occurrences; the number of documents.
        """
        self._told.forget()
        return super().vocabulary()

    def rows(self, half: int) -> Documents | slice:
        """Return which points are of a half of the documents, or all of them.

        Where one of the halves has fewer documents than the policy asks for in a reply, neither
        has any: what is told of all less what is told of one is the other.
        """
        return self._halves[half] if half in (0, 1) else slice(None)

    @cached_property
    def _halves(self) -> list[Documents]:
        shuffled = np.random.default_rng([*self._seed, SEED]).permutation(len(self.known))
        halves = [np.sort(shuffled[half::2]) for half in (0, 1)]
        return halves if len(halves[1]) >= self.min_documents else [rows[:0] for rows in halves]

    def sizes(self, vocabulary: str, weights: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """Count the documents that are of each cluster with at least half a probability.

        Leaves the client
            The number of such documents of each cluster that has enough of them, else zero;
            the number of those of which no cluster has at least half a probability, if enough;
            the number of all.
        """
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
            "documents": len(self.known),
        }

    def n_topics(self, **model: Any) -> int:
        """Return the number of clusters of the server's model."""
        return len(self.checked(model["weights"])[self.inference.prototypes])

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        """Find the probabilities of all documents, some at a time."""
        weights = self.checked(model["weights"])
        points = self.points(weights["origin"])
        inference = self._inference(len(weights[self.inference.prototypes]))
        for rows, theta in inference.memberships(weights, points):
            yield self.known[rows], theta

    def points(self, origin: Numbers) -> Points:
        """Return what represents the documents of `known`; the last are kept."""
        self.expect(origin, (self.n_dimensions,), 0)
        key = origin.tobytes()
        if self._points[0] != key:
            inference = self._inference()
            embeddings = None if inference.sees_words else self._embeddings[self.known]
            # Of the words that enough documents here have: a centre names the others as well.
            words = self.frequent()[self.known] if inference.sees_words else None
            self._points = key, inference.points(origin, words, embeddings)
        return self._points[1]

    @property
    def n_dimensions(self) -> int:
        """Length of a point."""
        return self._inference().n_dimensions

    def expect(self, array: Any, shape: tuple[int | None, ...], round_: int) -> None:
        """Refuse an array of another shape or kind; None is any length.

        Raises
        ------
        StudyError
            If it is none of numbers, of another shape, or has NaN.
        """
        given = getattr(array, "shape", ())
        fits = len(given) == len(shape) and all(
            want in (None, length) for want, length in zip(shape, given, strict=True)
        )
        if not fits or array.dtype != np.float64 or not np.isfinite(array).all():
            raise StudyError(
                f"Client {self.name!r} was sent clusters that are none in round {round_}; find out "
                "what the server runs."
            )

    def told(self, sums: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
        """Leave out the sums of clusters that are of too few documents.

        Where one document is enough a part of one is as well: nothing is left out.
        """
        enough = weights >= (self.min_documents if self.min_documents > 1 else 0)
        return sums * enough[..., None], weights * enough

    def checked(
        self, weights: Any, kind: type[ClusterInference] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Refuse what is no model of this method.

        Raises
        ------
        StudyError
            If names, shapes or kinds of the arrays are others, or numbers are none.
        """
        kind = kind or self.inference
        prototypes = weights.get(kind.prototypes) if isinstance(weights, dict) else None
        rows = len(prototypes) if isinstance(prototypes, np.ndarray) and prototypes.ndim else 0
        wanted = self._inference(max(rows, 1), kind).shapes()
        if not isinstance(weights, dict) or not rows or {
            name: getattr(array, "shape", None) for name, array in weights.items()
        } != wanted or not all(
            array.dtype.kind == "f" and np.isfinite(array).all() for array in weights.values()
        ):  # fmt: skip
            raise StudyError(
                f"Client {self.name!r} was sent clusters that are none; find out what the server "
                "runs."
            )
        return weights

    def _inference(
        self, n_clusters: int | None = None, kind: type[ClusterInference] | None = None
    ) -> ClusterInference:
        number = n_clusters or self.settings.n_components
        shape = self.settings.model_copy(update={"n_components": number})
        return (kind or self.inference)(self.bag.shape[1], shape)


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


def check_told(weights: Numbers) -> None:
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
