"""Discriminative clustering as the server sees it: clusters are moved apart, from sums.

What the method `discriminative` finds its clusters by, and FSTC its first labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import TINY, Moments, Numbers, discriminate, ranked
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.cluster_settings import DiscriminativeFields
from fedtopics.methods.clusters import ALL, check_told
from fedtopics.methods.kmeans.method import Partition

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

    @classmethod
    def of(cls, clusters: Partition) -> Split:
        """Return what k-means found, before any bias."""
        none = np.zeros_like(clusters.counts)
        return cls(clusters.sums, clusters.counts, none, np.zeros(len(none)))

    def best(self) -> Split:
        """Return the clustering whose clusters are furthest apart."""
        kept = ranked(-self.apart)[:1]
        return Split(*(array[kept] for array in vars(self).values()))


@dataclass(frozen=True)
class Start:
    """What clusters are moved apart from.

    Parameters
    ----------
    origin : float64 array of shape (n_dimensions,)
        Mean embedding.
    moments : Moments
        Of the points.
    split : Split
        Memberships to begin with.
    """

    origin: Numbers
    moments: Moments
    split: Split


def separate(
    agreement: Agreement,
    start: Start,
    settings: DiscriminativeFields,
    rounds: Iterable[int],
    half: int = ALL,
    on_round: OnRound | None = None,
) -> Directed:
    """Move clusters apart until they rest.

    Parameters
    ----------
    agreement : Agreement
    start : Start
    settings : DiscriminativeFields
    rounds : iterable of int
        Numbers of the rounds, as many as there may be.
    half : {0, 1, 2}
        Of a half of the documents, or of all.
    on_round : function (Split, round, report), optional

    Returns
    -------
    what finds the clusters of the clustering whose clusters are furthest apart
    """
    state = start.split
    for done, round_ in enumerate(rounds, 1):
        directed = direct(state, start.moments, settings)
        exchange = partial(_exchange, agreement, start.origin, directed, round_, half)
        found, report = agreement.round(round_, exchange)
        check_told(found["told"])
        kept = agreement.keep(round_)
        sums = complete(found, state) + kept * state.sums
        weights = found["weights"] + kept * state.weights
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        state = Split(sums, weights, directed.bias, directed.apart)
        if done == TRIAL:
            state = state.best()
        arrived = bool(change < settings.tolerance)
        if on_round is not None:
            on_round(state, round_, {"arrived": arrived, **report})
        if arrived:
            break
    return direct(state.best(), start.moments, settings)


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
