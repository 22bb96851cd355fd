"""Federated discriminative clustering, a method of our own, which also gives FSTC's first labels.

Two steps alternate: Fisher's discriminant analysis finds the projection that separates the present
clusters best, and softmax memberships follow from the projected points. A bias per cluster, updated
like one column scaling of Sinkhorn's algorithm, keeps sizes even. Both steps need only sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedtopics.inference.clusters import Discriminants
from fedtopics.inference.points import Moments
from fedtopics.methods.clusters.program import ClusterProgram, find_moments
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.events import Event
from fedtopics.methods.core.interfaces import Run
from fedtopics.methods.core.training import Arrays, RoundResult, with_prefix, without_prefix
from fedtopics.methods.discriminative.client import DiscriminativeClient
from fedtopics.methods.discriminative.separation import TRIAL, Separation, Split, with_number
from fedtopics.methods.kmeans.lloyd import arrays_of, start_with_kmeans
from fedtopics.methods.registry import Method


@dataclass(frozen=True)
class DiscriminativeState:
    separation: Separation
    split: Split


def start_separation(
    agreement: Agreement, settings: DiscriminativeSettings, seed: int,
    notify: Callable[[Event], None],
) -> DiscriminativeState:  # fmt: skip
    origin, moments = find_moments(agreement, settings.embedding.dimension)
    settings = with_number(agreement, settings, origin, seed, notify)
    start, k, finalists = settings.start, settings.n_components, settings.separation.finalists
    clusters = start_with_kmeans(agreement, start, k, origin, moments, seed, finalists)
    return DiscriminativeState(Separation(settings, origin, moments), Split.of(clusters))


class Discriminative(ClusterProgram[DiscriminativeSettings, DiscriminativeState]):
    inference = Discriminants

    def first_state(self, agreement: Agreement, run: Run) -> DiscriminativeState:
        return start_separation(agreement, self.settings, self.plan.seed, run.event)

    def exchange(self, agreement: Agreement, state: DiscriminativeState, round_: int) -> Any:
        return state.separation.exchange(agreement, state.split, round_)

    def step(
        self, agreement: Agreement, state: DiscriminativeState, reply: Any, round_: int
    ) -> RoundResult[DiscriminativeState]:
        step = state.separation.step(agreement, state.split, reply, round_)
        return RoundResult(
            DiscriminativeState(state.separation, step.state), step.facts, step.change
        )

    def save(self, state: DiscriminativeState) -> Arrays | None:
        """Return the arrays; while several starts remain, a run cannot be resumed."""
        if len(state.split.bias) > 1:
            return None
        moments = state.separation.moments
        arrays = {"origin": state.separation.origin, "count": np.array(moments.count)}
        arrays |= {"mean": moments.mean, "scatter": moments.scatter}
        return arrays | with_prefix("split", arrays_of(state.split))

    def load(self, agreement: Agreement, arrays: Arrays) -> DiscriminativeState:
        moments = Moments(int(arrays["count"]), arrays["mean"], arrays["scatter"])
        separation = Separation(self.settings, arrays["origin"], moments)
        split = Split(**without_prefix("split", arrays), rounds=TRIAL)
        return DiscriminativeState(separation, split)

    def weights(self, agreement: Agreement, state: DiscriminativeState, rounds: int) -> Arrays:
        directed = state.separation.direct(state.split.best())
        return {"origin": state.separation.origin, **directed.weights()}


METHOD = Method(
    "discriminative", "discriminative clustering", DiscriminativeSettings, Discriminative,
    DiscriminativeClient, version=3, shows="clusters", inferences=(Discriminants,),
)  # fmt: skip
