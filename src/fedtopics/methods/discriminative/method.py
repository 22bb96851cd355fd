"""Discriminative clustering, federated exactly: our own, cheap, and FSTC's start.

Points are projected to where clusters are furthest apart for their width (Fisher's discriminants),
given memberships; memberships follow from the projected points, and so on. A bias a cluster, found
along the way, keeps clusters of one size: a half-step of optimal transport a round. The server
needs two moments of the points, once, and each round the points summed by their memberships. All
are sums: the clusters do not depend on how documents are spread over clients, nor on how many
there are. `Discriminative` is what the server executes, `DiscriminativeClient` what a client does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.clusters import Discriminants
from fedtopics.inference.points import Discriminant, Moments, Numbers, weighted_sums
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import DiscriminativeFields, DiscriminativeSettings
from fedtopics.methods.clusters import ClusterClient, ClusterServer, Found, find_moments
from fedtopics.methods.discriminative.cluster_number import MOST_ROUNDS, with_number
from fedtopics.methods.discriminative.separation import Split, Start, separate
from fedtopics.methods.kmeans.method import before_rounds, begin_with_kmeans

Settings = TypeVar("Settings", bound=DiscriminativeFields)


def begin(
    agreement: Agreement, settings: DiscriminativeFields, seed: int, tell: Callable[..., None]
) -> Start:
    """Find the moments of the points, the number of clusters if need be, and k-means clusters."""
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    settings = with_number(agreement, settings, origin, seed, tell)
    clusters = begin_with_kmeans(agreement, settings, origin, moments, seed, settings.finalists)
    return Start(origin, moments, Split.of(clusters))


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
        directed = separate(agreement, start, self.settings, rounds, on_round=note)
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
        return also(before_separating(settings), "class_sums", "each round")

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


def before_separating(settings: DiscriminativeFields) -> dict[str, str]:
    """Say which functions are called before clusters are moved apart, and how often."""
    calls = before_rounds(settings)
    if not settings.candidates:
        return calls
    candidates, halves = len(settings.candidates), 2 * len(settings.candidates)
    return {
        "means": calls["means"],
        "moments": "three times, before the first round",
        "cluster_sums": f"{calls['cluster_sums']}, and {halves} times as often to choose the "
        "number of clusters",
        "class_sums": f"at most {halves * MOST_ROUNDS} times, before the first round",
        "agreeing_pairs": f"{candidates} times, before the first round",
    }


def also(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    """Add to how often a function is called."""
    known = calls.get(function)
    return {**calls, function: f"{known}, and {often}" if known else often}
