"""Discriminative clustering as the server sees it: clusters are moved apart, from sums.

What the method `discriminative` finds its clusters by, and FSTC its first labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import TINY, Moments, Numbers, discriminate, ranked
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.cluster_client import ALL
from fedtopics.methods.clusters import check_enough
from fedtopics.methods.discriminative.settings import SeparationSettings
from fedtopics.methods.kmeans.lloyd import Partition
from fedtopics.methods.training import Step

TRIAL = 20  # rounds after which the best of the finalists goes on alone
LITTLE = 1e-6  # of a document
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
    rounds : int
        By which it was made.
    """

    sums: Numbers
    weights: Numbers
    bias: Numbers
    apart: Numbers
    rounds: int = 0

    @classmethod
    def of(cls, clusters: Partition) -> Split:
        """Return what k-means found, before any bias.

        A cluster that nobody is in is as if a little of a document were at its centre: two of them
        would be the same otherwise, and stay so.
        """
        none = np.zeros_like(clusters.counts)
        counts = np.where(clusters.counts > 0, clusters.counts, LITTLE)
        empty = clusters.counts[..., None] == 0
        sums = np.where(empty, LITTLE * clusters.centres, clusters.sums)
        return cls(sums, counts, none, np.zeros(len(none)))

    def best(self) -> Split:
        """Return the clustering whose clusters are furthest apart."""
        kept = ranked(-self.apart)[:1]
        kept_arrays = {name: array[kept] for name, array in self.arrays().items()}
        return Split(**kept_arrays, rounds=self.rounds)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in ("sums", "weights", "bias", "apart")}


@dataclass(frozen=True)
class Separation:
    """Rounds that move clusters apart.

    Parameters
    ----------
    settings : SeparationSettings
    origin : float64 array of shape (n_dimensions,)
        Mean embedding.
    moments : Moments
        Of the points.
    half : {0, 1, 2}
        Of a half of the documents, or of all.
    """

    settings: SeparationSettings
    origin: Numbers
    moments: Moments
    half: int = ALL

    @property
    def stops(self) -> Mapping[str, float]:
        """Stop rules by name, with their numbers."""
        return {"tolerance": self.settings.tolerance}

    def exchange(
        self, agreement: Agreement, state: Split, round_: int
    ) -> tuple[Directed, dict[str, Any]]:
        """Ask for the points summed by the memberships that projections and biases give."""
        directed = self.direct(state)
        shape = directed.bias.shape
        template: Template = {
            "sums": (*shape, len(self.origin)),
            "weights": shape,
            "sent": shape,
        }
        payload = {name: getattr(directed, name) for name in ("projection", "directions", "bias")}
        payload |= {"origin": self.origin, "half": self.half}
        return directed, agreement.sum("class_sums", template, round=round_, **payload)

    def step(
        self,
        agreement: Agreement,
        state: Split,
        found: tuple[Directed, dict[str, Any]],
        round_: int,
    ) -> Step[Split]:
        """Make the sums those of the new memberships."""
        directed, reply = found
        check_enough(reply["sent"])
        kept = agreement.keep(round_)
        sums = complete(reply, state) + kept * state.sums
        weights = reply["weights"] + kept * state.weights
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        after = Split(sums, weights, directed.bias, directed.apart, state.rounds + 1)
        loss, documents = -float(after.apart.max()), int(self.moments.count)
        if after.rounds == TRIAL:
            after = after.best()
        return Step(after, {"loss": loss, "documents": documents}, float(change))

    def direct(self, state: Split) -> Directed:
        """Find each clustering's projection from its sums, and bring its clusters to one size."""
        return direct(state, self.moments, self.settings)


def complete(reply: Mapping[str, Numbers], before: Split) -> Numbers:
    """Return the clusters' sums, of which clients send those of enough documents.

    What is sent of a cluster stands for the rest of it; one that nobody sends has the mean that it
    had before.
    """
    sent = reply["sent"][..., None]
    mean_before = before.sums / np.maximum(before.weights, TINY)[..., None]
    means = np.where(sent > 0, reply["sums"] / np.maximum(sent, TINY), mean_before)
    sums: Numbers = means * reply["weights"][..., None]
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


def direct(state: Split, moments: Moments, settings: SeparationSettings) -> Directed:
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
