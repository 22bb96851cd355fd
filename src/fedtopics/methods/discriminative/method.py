"""Discriminative clustering, federated exactly: our own, cheap, and FSTC's start.

Points are projected to where clusters are furthest apart for their width (Fisher's discriminants),
given memberships; memberships follow from the projected points, and so on. A bias a cluster, found
along the way, keeps clusters of one size: a half-step of optimal transport a round. The server
needs two moments of the points, once, and each round the points summed by their memberships. All
are sums: the clusters do not depend on how documents are spread over clients, nor on how many
there are. `Discriminative` is what the server executes; `client` has what a client does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtopics.inference.clusters import Discriminants
from fedtopics.inference.points import Moments
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Run
from fedtopics.methods.clusters import ClusterProgram, find_moments
from fedtopics.methods.discriminative.cluster_number import with_number
from fedtopics.methods.discriminative.separation import TRIAL, Separation, Split
from fedtopics.methods.discriminative.settings import DiscriminativeSettings, SeparationSettings
from fedtopics.methods.events import Event
from fedtopics.methods.kmeans.lloyd import start_with_kmeans
from fedtopics.methods.training import Arrays, Step


@dataclass(frozen=True)
class DiscriminativeState:
    """Clusterings, and the rounds that move them apart."""

    separation: Separation
    split: Split


def start_separation(
    agreement: Agreement, settings: SeparationSettings, seed: int, notify: Callable[[Event], None]
) -> DiscriminativeState:
    """Find the moments of the points, the number of clusters if need be, and k-means clusters."""
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    settings = with_number(agreement, settings, origin, seed, notify)
    clusters = start_with_kmeans(agreement, settings, origin, moments, seed, settings.finalists)
    return DiscriminativeState(Separation(settings, origin, moments), Split.of(clusters))


class Discriminative(ClusterProgram[DiscriminativeSettings, DiscriminativeState]):
    """The server's half."""

    inference = Discriminants

    def first_state(self, agreement: Agreement, run: Run) -> DiscriminativeState:
        """Start from k-means clusters."""
        return start_separation(agreement, self.settings, self.plan.seed, run.event)

    def exchange(self, agreement: Agreement, state: DiscriminativeState, round_: int) -> Any:
        """Ask for the points summed by their memberships."""
        return state.separation.exchange(agreement, state.split, round_)

    def step(
        self, agreement: Agreement, state: DiscriminativeState, found: Any, round_: int
    ) -> Step[DiscriminativeState]:
        """Move the clusters apart."""
        step = state.separation.step(agreement, state.split, found, round_)
        return Step(DiscriminativeState(state.separation, step.state), step.facts, step.change)

    def save(self, state: DiscriminativeState) -> Arrays | None:
        """Turn a state into named arrays; with several starts, the run begins anew."""
        if len(state.split.bias) > 1:
            return None
        moments = state.separation.moments
        arrays = {"origin": state.separation.origin, "count": np.array(moments.count)}
        arrays |= {"mean": moments.mean, "scatter": moments.scatter}
        return arrays | {f"split/{name}": array for name, array in state.split.arrays().items()}

    def load(self, agreement: Agreement, arrays: Arrays) -> DiscriminativeState:
        """Turn back."""
        moments = Moments(int(arrays["count"]), arrays["mean"], arrays["scatter"])
        separation = Separation(self.settings, arrays["origin"], moments)
        names = ("sums", "weights", "bias", "apart")
        sums, weights, bias, apart = (arrays[f"split/{name}"] for name in names)
        return DiscriminativeState(separation, Split(sums, weights, bias, apart, TRIAL))

    def weights(self, agreement: Agreement, state: DiscriminativeState, rounds: int) -> Arrays:
        """Return projection, directions and biases of the clusters furthest apart."""
        directed = state.separation.direct(state.split.best())
        return {"origin": state.separation.origin, **directed.weights()}
