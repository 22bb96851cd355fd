"""Discriminative clustering, federated exactly: our own, cheap, and FSTC's start.

Points are projected to where clusters are furthest apart for their width (Fisher's discriminants),
given memberships; memberships follow from the projected points, and so on. A bias a cluster, found
along the way, keeps clusters of one size: a half-step of optimal transport a round. The server
needs two moments of the points, once, and each round the points summed by their memberships. All
are sums: the clusters do not depend on how documents are spread over clients, nor on how many
there are. `Discriminative` is what the server executes, `DiscriminativeClient` what a client does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import repeat
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.aggregation import Template
from fedtopics.cluster_inference import Discriminants
from fedtopics.clustering import (
    TINY,
    Discriminant,
    Moments,
    Numbers,
    discriminate,
    ranked,
    weighted_sums,
)
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import DiscriminativeFields, DiscriminativeSettings
from fedtopics.methods.clusters import (
    ALL,
    ClusterClient,
    ClusterServer,
    Found,
    check_told,
    find_moments,
    moments_about,
)
from fedtopics.methods.kmeans import Partition, begin_with_kmeans
from fedtopics.methods.server import Agreement

Settings = TypeVar("Settings", bound=DiscriminativeFields)
OnRound = Callable[["Split", int, dict[str, Any]], None]
TRIAL = 20  # rounds after which the best of the finalists goes on alone
CHOICE_ROUNDS = 40  # most rounds of a clustering that is only to tell how many clusters
RAREST = 1e-3  # a cluster's share of an even one, from which on it gets no more help


@dataclass(frozen=True)
class Split:
    """Some clusterings of the same points by their sums.

    Parameters
    ----------
    sums : float64 array of shape (n_starts, n_clusters, n_dimensions)
        Points summed by their memberships.
    weights : float64 array of shape (n_starts, n_clusters)
        Summed memberships.
    bias : float64 array of that shape
    apart : float64 array of shape (n_starts,)
        How far clusters are apart for their width: the trace of S_W^-1 S_B.
    """

    sums: Numbers
    weights: Numbers
    bias: Numbers
    apart: Numbers

    def best(self) -> Split:
        """Return the clustering whose clusters are furthest apart."""
        kept = ranked(-self.apart)[:1]
        return Split(*(array[kept] for array in vars(self).values()))


def separate(
    agreement: Agreement,
    origin: Numbers,
    moments: Moments,
    first: Split,
    settings: DiscriminativeFields,
    rounds: Iterable[int],
    half: int = ALL,
    on_round: OnRound | None = None,
) -> tuple[Split, Directed]:
    """Move clusters apart until they rest.

    Parameters
    ----------
    agreement : Agreement
    origin : float64 array of shape (n_dimensions,)
        Mean embedding.
    moments : Moments
        Of the points.
    first : Split
        Memberships to begin with.
    settings : DiscriminativeFields
    rounds : iterable of int
        Numbers of the rounds, as many as there may be.
    half : {0, 1, 2}
        Of a half of the documents, or of all.
    on_round : function (Split, round, report), optional

    Returns
    -------
    the best clustering, and what finds its clusters
    """
    state = first
    for done, round_ in enumerate(rounds, 1):
        directed = direct(state, moments, settings)
        exchange = partial(_exchange, agreement, origin, directed, round_, half)
        found, report = agreement.clients.round(round_, exchange)
        check_told(found["told"])
        sums = complete(found, state)
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        state = Split(sums, found["weights"], directed.bias, directed.apart)
        if done == TRIAL:
            state = state.best()
        arrived = bool(change < settings.tolerance)
        if on_round is not None:
            on_round(state, round_, {"arrived": arrived, **report})
        if arrived:
            break
    state = state.best()
    return state, direct(state, moments, settings)


def complete(found: Mapping[str, Numbers], before: Split) -> Numbers:
    """Return the clusters' sums, of which clients told those of enough documents.

    What is told of a cluster stands for the rest of it; one that nobody tells of has the mean that
    it had before.
    """
    told = found["told"][..., None]
    mean_before = before.sums / np.maximum(before.weights, TINY)[..., None]
    means = np.where(told > 0, found["sums"] / np.maximum(told, TINY), mean_before)
    sums: Numbers = means * found["weights"][..., None]
    return sums


@dataclass(frozen=True)
class Directed:
    """What memberships follow from, of some clusterings: the arrays of `Discriminant`, stacked."""

    projection: Numbers
    directions: Numbers
    bias: Numbers
    apart: Numbers

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return those of the first clustering, by name."""
        names = ("projection", "directions", "bias")
        return {name: getattr(self, name)[0] for name in names}


def direct(state: Split, moments: Moments, settings: DiscriminativeFields) -> Directed:
    """Find each clustering's projection from its sums, and bring its clusters to one size."""
    found = [
        discriminate(sums, weights, moments, settings.shrinkage)
        for sums, weights in zip(state.sums, state.weights, strict=True)
    ]
    projections, directions, apart = (np.stack(arrays) for arrays in zip(*found, strict=True))
    bias = state.bias
    if settings.sizes == "even":
        even = state.weights.sum(1, keepdims=True) / state.weights.shape[1]
        bias = bias - np.log(np.maximum(state.weights / np.maximum(even, TINY), RAREST))
    return Directed(projections, directions, bias, apart)


def _exchange(
    agreement: Agreement,
    origin: Numbers,
    directed: Directed,
    round_: int,
    half: int,
) -> dict[str, Any]:
    shape = directed.bias.shape
    template: Template = {"sums": (*shape, len(origin)), "weights": shape, "told": shape}
    given = {name: getattr(directed, name) for name in ("projection", "directions", "bias")}
    return agreement.sum("class_sums", template, round=round_, origin=origin, half=half, **given)


@dataclass(frozen=True)
class Start:
    """What discriminative clustering begins with."""

    origin: Numbers
    moments: Moments
    split: Split


def with_number(
    agreement: Agreement,
    settings: Settings,
    origin: Numbers,
    seed: int,
    tell: Callable[..., None],
) -> Settings:
    """Choose the number of clusters by how well those of two halves of the documents agree.

    Each half is clustered by itself; both clusterings then sort all documents, and their agreement
    is the adjusted Rand index over pairs of documents of one client: sums of four numbers.

    Parameters
    ----------
    tell : function ("candidate", n_components=, agreement=)
        Told the agreement of each number, from 0 (by chance) to 1.

    Returns
    -------
    the settings with that number, or as they are where there is nothing to choose from

    References
    ----------
    Hubert and Arabie, Comparing Partitions, 1985. Tibshirani and Walther, Cluster Validation by
    Prediction Strength, 2005.
    """
    scores: dict[int, float] = {}
    halves = [moments_about(agreement, origin, half) for half in (0, 1) if settings.candidates]
    for number in settings.candidates:
        own = settings.model_copy(update={"n_components": number})
        found = []
        for half, moments in enumerate(halves):
            given = agreement, own, origin, moments, seed
            clusters = begin_with_kmeans(*given, settings.finalists, half)
            rounds = repeat(0, CHOICE_ROUNDS)
            given_too = agreement, origin, moments, _split(clusters), own, rounds, half
            found.append(separate(*given_too)[1].weights())
        scores[number] = _agreement(agreement, origin, *found)
        tell("candidate", n_components=number, agreement=scores[number])
    best = max(scores, key=lambda number: scores[number], default=settings.n_components)
    return settings.model_copy(update={"n_components": best})


def _agreement(
    agreement: Agreement,
    origin: Numbers,
    first: dict[str, NDArray[Any]],
    second: dict[str, NDArray[Any]],
) -> float:
    """Return how well two clusterings agree: the adjusted Rand index, within clients."""
    template = dict.fromkeys(("together", "first", "second", "chance"), ())
    given = {"origin": origin, "first": first, "second": second}
    work = partial(agreement.sum, "agreeing_pairs", template, **given)
    pairs = agreement.clients.round(0, work)[0]
    most = (pairs["first"] + pairs["second"]) / 2
    return float((pairs["together"] - pairs["chance"]) / max(most - pairs["chance"], TINY))


def begin(
    agreement: Agreement, settings: DiscriminativeFields, seed: int, tell: Callable[..., None]
) -> Start:
    """Find the moments of the points, the number of clusters if need be, and k-means clusters."""
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    settings = with_number(agreement, settings, origin, seed, tell)
    clusters = begin_with_kmeans(agreement, settings, origin, moments, seed, settings.finalists)
    return Start(origin, moments, _split(clusters))


def _split(clusters: Partition) -> Split:
    none = np.zeros_like(clusters.counts)
    return Split(clusters.sums, clusters.counts, none, np.zeros(len(none)))


class Discriminative(ClusterServer[DiscriminativeSettings]):
    """The server's half."""

    inference = Discriminants

    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Find projections, directions and biases."""
        saved = run.restore()
        if saved is None:
            start, done = begin(agreement, self.settings, self.seed, run.event), 0
        else:
            start, done = _restored(saved), saved.round
        last = done

        def note(state: Split, round_: int, report: dict[str, Any]) -> None:
            nonlocal last
            last = round_
            n, loss = int(start.moments.count), -float(state.apart.max())
            run.event("round", round=round_, loss=loss, documents=n, **report)
            # Before one start is left it is begun anew; after what arrived there is no round.
            if run.due(round_) and len(state.bias) == 1 and not report["arrived"]:
                run.checkpoint(_checkpoint(replace(start, split=state), round_))

        rounds = run.rounds(done, self.settings.max_rounds)
        given = agreement, start.origin, start.moments, start.split, self.settings, rounds
        _, directed = separate(*given, on_round=note)
        return Found({"origin": start.origin, **directed.weights()}, last)


def _checkpoint(start: Start, round_: int) -> Checkpoint:
    arrays = {"origin": start.origin, "mean": start.moments.mean, "scatter": start.moments.scatter}
    arrays |= {f"split/{name}": array for name, array in vars(start.split).items()}
    return Checkpoint(round_, arrays, {"count": start.moments.count})


def _restored(saved: Checkpoint) -> Start:
    arrays = saved.arrays
    moments = Moments(int(saved.numbers["count"]), arrays["mean"], arrays["scatter"])
    split = Split(*(arrays[f"split/{field.name}"] for field in fields(Split)))
    return Start(arrays["origin"], moments, split)


class DiscriminativeClient(ClusterClient[Settings]):
    """The client's half."""

    method = "discriminative"
    version = 1
    inference = Discriminants
    published: ClassVar[tuple[str, ...]] = (
        "vocabulary", "adopt", "means", "moments", "cluster_sums", "class_sums", "agreeing_pairs",
        "sizes", "shares", "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: DiscriminativeFields) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        calls = before_rounds(settings)
        often = [calls.get("class_sums"), "each round"]
        return calls | {"class_sums": ", and ".join(filter(None, often))}

    def class_sums(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        origin: Numbers,
        projection: Numbers,
        directions: Numbers,
        bias: Numbers,
        half: int,
    ) -> dict[str, Any]:
        """Sum the points by their memberships.

        Parameters
        ----------
        vocabulary : str
        round : int
        origin : float64 array of shape (n_dimensions,)
        projection : float64 array of shape (n_starts, n_dimensions, n_directions)
        directions : float64 array of shape (n_starts, n_clusters, n_directions)
        bias : float64 array of shape (n_starts, n_clusters)
        half : {0, 1, 2}
            Of the first, the second half of the documents alone, or of all.

        Leaves the client
            For each clustering: with how much weight the documents are members of each cluster;
            of each with enough weight, their sum by membership. The number of documents.
        """
        self.check(vocabulary)
        self.expect(bias, (None, None), round)
        self.expect(projection, (len(bias), self.n_dimensions, None), round)
        self.expect(directions, (*bias.shape, projection.shape[2]), round)
        points = self.points(origin)[self.rows(half)]
        sums, weights = np.zeros((*bias.shape, points.shape[1])), np.zeros(bias.shape)
        told = np.zeros(bias.shape)
        for start, own in enumerate(zip(projection, directions, bias, strict=True)):
            members = Discriminant(*own, self.settings.temperature).memberships(points)
            found = weighted_sums(points, members, bias.shape[1])
            weights[start] = found[1]
            sums[start], told[start] = self.told(*found)
        return {"sums": sums, "weights": weights, "told": told, "documents": len(points)}

    def agreeing_pairs(
        self,
        vocabulary: str,
        origin: Numbers,
        first: dict[str, NDArray[Any]],
        second: dict[str, NDArray[Any]],
    ) -> dict[str, Any]:
        """Count pairs of documents that two clusterings agree to have together.

        Parameters
        ----------
        vocabulary : str
        origin : float64 array of shape (n_dimensions,)
        first, second : mappings of name to array
            What finds the clusters.

        Leaves the client
            How many pairs of its documents are in one cluster of both clusterings, of the first,
            of the second, and of both by chance; the number of documents.
        """
        self.check(vocabulary)
        labels = [self._labels_by({"origin": origin, **given}) for given in (first, second)]
        table = np.zeros((labels[0].max(initial=0) + 1, labels[1].max(initial=0) + 1))
        np.add.at(table, tuple(labels), 1)
        together, one, other, all_ = (
            float((counts * (counts - 1) / 2).sum())
            for counts in (table, table.sum(1), table.sum(0), table.sum())
        )
        return {
            "together": together,
            "first": one,
            "second": other,
            "chance": one * other / max(all_, 1.0),
            "documents": len(self.known),
        }

    def _labels_by(self, weights: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
        found = self.checked(weights, Discriminants)
        points = self.points(found["origin"])
        inference = Discriminants(self.bag.shape[1], self.settings)
        labels = (shares.argmax(1) for _, shares in inference.memberships(found, points))
        return np.concatenate([np.zeros(0, np.int64), *labels])


def before_rounds(settings: DiscriminativeFields) -> dict[str, str]:
    """Say which functions are called before the first round, and how often."""
    calls = dict.fromkeys(("means", "moments"), "once, before the first round")
    often = f"at most {settings.start_rounds} times, before the first round"
    if settings.candidates:
        choices = 2 * len(settings.candidates)
        often = f"{often}, and {choices} times as often to choose the number of clusters"
        calls["agreeing_pairs"] = f"{len(settings.candidates)} times, before the first round"
        calls["moments"] = "three times, before the first round"
        calls["class_sums"] = f"at most {choices * CHOICE_ROUNDS} times, before the first round"
    return calls | {"cluster_sums": often}
