"""Discriminative clustering, federated exactly: our own, cheap, and FSTC's start.

Points are projected to where clusters are furthest apart for their width (Fisher's discriminants),
given memberships; memberships follow from the projected points, and so on. A bias a cluster, found
along the way, keeps clusters of one size: a half-step of optimal transport a round. The server
needs two moments of the points, once, and each round the points summed by their memberships. All
are sums: the clusters do not depend on how documents are spread over clients, nor on how many
there are. `Discriminative` is what the server executes, `DiscriminativeClient` what a client does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.aggregation import Template
from fedtopics.cluster_inference import Discriminants
from fedtopics.clustering import TINY, Discriminant, Moments, Numbers, discriminate, weighted_sums
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import DiscriminativeFields, DiscriminativeSettings
from fedtopics.methods.clusters import ClusterClient, ClusterServer, Found, find_moments
from fedtopics.methods.kmeans import begin_with_kmeans
from fedtopics.methods.server import Agreement

Settings = TypeVar("Settings", bound=DiscriminativeFields)
OnRound = Callable[["Split", int, dict[str, Any]], None]
TRIAL = 20  # rounds after which the best of the finalists goes on alone
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
        kept = [int(self.apart.argmax())]
        return Split(*(array[kept] for array in vars(self).values()))


def separate(
    agreement: Agreement,
    origin: Numbers,
    moments: Moments,
    first: Split,
    settings: DiscriminativeFields,
    rounds: Iterable[int],
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
    on_round : function (Split, round, report), optional

    Returns
    -------
    the best clustering, and what finds its clusters
    """
    state = first
    for done, round_ in enumerate(rounds, 1):
        directed = direct(state, moments, settings)
        exchange = partial(_exchange, agreement, origin, directed, settings, round_)
        found, report = agreement.clients.round(round_, exchange)
        change = np.linalg.norm(found["sums"] - state.sums) / (np.linalg.norm(state.sums) + TINY)
        state = Split(found["sums"], found["weights"], directed.bias, directed.apart)
        if done == TRIAL:
            state = state.best()
        if on_round is not None:
            on_round(state, round_, report)
        if change < settings.tolerance:
            break
    state = state.best()
    return state, direct(state, moments, settings)


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
    settings: DiscriminativeFields,
    round_: int,
) -> dict[str, Any]:
    shape = directed.bias.shape
    template: Template = {"sums": (*shape, len(origin)), "weights": shape}
    given = {name: getattr(directed, name) for name in ("projection", "directions", "bias")}
    return agreement.sum("class_sums", template, round=round_, origin=origin, **given)


@dataclass(frozen=True)
class Start:
    """What discriminative clustering begins with."""

    origin: Numbers
    moments: Moments
    split: Split


def begin(agreement: Agreement, settings: DiscriminativeFields, seed: int) -> Start:
    """Find the moments of the points, and k-means clusters to begin with."""
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    clusters = begin_with_kmeans(agreement, settings, origin, moments, seed, settings.finalists)
    none = np.zeros_like(clusters.counts)
    split = Split(clusters.sums, clusters.counts, none, np.zeros(len(none)))
    return Start(origin, moments, split)


class Discriminative(ClusterServer[DiscriminativeSettings]):
    """The server's half."""

    inference = Discriminants

    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Find projections, directions and biases."""
        saved = run.restore()
        if saved is None:
            start, done = begin(agreement, self.settings, self.seed), 0
        else:
            start, done = _restored(saved), saved.round
        last = done

        def note(state: Split, round_: int, report: dict[str, Any]) -> None:
            nonlocal last
            last = round_
            n, loss = int(start.moments.count), -float(state.apart.max())
            run.event("round", round=round_, loss=loss, documents=n, **report)
            if run.due(round_) and len(state.bias) == 1:  # before that, it is begun anew
                run.checkpoint(_checkpoint(replace(start, split=state), round_))

        rounds = run.rounds(done, self.settings.max_rounds)
        given = agreement, start.origin, start.moments, start.split, self.settings, rounds
        _, directed = separate(*given, note)
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
        "vocabulary", "adopt", "means", "moments", "cluster_sums", "class_sums", "sizes", "shares",
        "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: DiscriminativeFields) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        return before_rounds(settings) | {"class_sums": "each round"}

    def class_sums(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        origin: Numbers,
        projection: Numbers,
        directions: Numbers,
        bias: Numbers,
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

        Leaves the client
            For each clustering: of each cluster that the documents are members of with enough
            weight, their sum by membership, and that weight. The number of documents.
        """
        self.check(vocabulary)
        self.expect(projection, (len(bias), self.n_dimensions, None), round)
        self.expect(directions, (*bias.shape, projection.shape[2]), round)
        points = self.points(origin)
        sums, weights = np.zeros((*bias.shape, points.shape[1])), np.zeros(bias.shape)
        for start, own in enumerate(zip(projection, directions, bias, strict=True)):
            members = Discriminant(*own, self.settings.temperature).memberships(points)
            found = weighted_sums(points, members, bias.shape[1])
            sums[start], weights[start] = self.told(*found)
        return {"sums": sums, "weights": weights, "documents": len(self.known)}


def before_rounds(settings: DiscriminativeFields) -> dict[str, str]:
    """Say which functions are called before the first round, and how often."""
    calls = dict.fromkeys(("means", "moments"), "once, before the first round")
    often = f"at most {settings.start_rounds} times, before the first round"
    return calls | {"cluster_sums": often}
