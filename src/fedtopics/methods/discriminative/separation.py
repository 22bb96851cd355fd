"""Rounds of discriminative clustering by sums, and a consensus of several clusterings.

The method `discriminative` and the start of FSTC use this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.clusters.client import ClusterSums
from fedtopics.methods.clusters.program import check_enough
from fedtopics.methods.clusters.settings import WHOLE, DiscriminativeSettings, Part
from fedtopics.methods.clusters.sums import Moments, discriminate, ranked
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult, iterate
from fedtopics.methods.discriminative.client import CONSENSUS_ROUNDS, ConsensusSums
from fedtopics.methods.kmeans.lloyd import Partition, chosen_start

TRIAL = 20  # rounds after which only the best of the remaining starts continues
LEAST_COUNT = 1e-6  # least weight of a cluster, in documents
RAREST = 1e-3  # size, relative to even sizes, below which a cluster's bias stops growing


@dataclass(frozen=True)
class Split:
    """Several clusterings of the same points, given by sums."""

    sums: Numbers  # points summed by memberships, shape (n_starts, n_clusters, n_dimensions)
    weights: Numbers  # summed memberships, shape (n_starts, n_clusters)
    bias: Numbers  # of the same shape as weights
    apart: Numbers  # trace of S_W^-1 S_B: distance of a clustering's clusters relative to widths
    even: NDArray[np.bool_]  # which clusterings have clusters of equal sizes
    rounds: int = 0

    @classmethod
    def of(cls, clusters: Partition, sizes: str) -> Split:
        """Return the clusters of k-means, without bias; twice if `sizes` is "both".

        An empty cluster gets a tiny part of a document at its centre. Otherwise, two empty clusters
        would be the same, and stay the same.
        """
        counts = np.where(clusters.counts > 0, clusters.counts, LEAST_COUNT)
        empty = clusters.counts[..., None] == 0
        even = np.repeat([True, False] if sizes == "both" else [sizes == "even"], len(counts))
        split = cls(
            sums=np.where(empty, LEAST_COUNT * clusters.centres, clusters.sums),
            weights=counts,
            bias=np.zeros_like(clusters.counts),
            apart=np.zeros(len(counts)),
            even=even[: len(counts)],
        )
        return replace(chosen_start(split, np.arange(len(even)) % len(counts)), even=even)

    def best(self) -> Split:
        return chosen_start(self, ranked(-self.apart)[:1])


@dataclass(frozen=True)
class Separation:
    """Rounds that separate clusters of points that have given moments relative to an origin."""

    settings: DiscriminativeSettings
    origin: Numbers
    moments: Moments
    part: Part = WHOLE  # of the documents

    def exchange(
        self, agreement: Agreement, state: Split, round_: int
    ) -> tuple[Directed, dict[str, Any]]:
        directed = self.direct(state)
        reply = agreement.ask(
            ClusterSums.class_sums,
            round=round_,
            origin=self.origin,
            part=self.part,
            projection=directed.projection,
            directions=directed.directions,
            bias=directed.bias,
        )
        return directed, reply

    def step(
        self,
        agreement: Agreement,
        state: Split,
        reply: tuple[Directed, dict[str, Any]],
        round_: int,
    ) -> RoundResult[Split]:
        directed, new = reply
        check_enough(new["sent"])
        earlier_weight = agreement.weight_of_earlier_sums(round_)
        sums, weights = complete(new, state.sums, state.weights)
        sums = sums + earlier_weight * state.sums
        weights = weights + earlier_weight * state.weights
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        after = Split(
            sums=sums,
            weights=weights,
            bias=directed.bias,
            apart=directed.apart,
            even=state.even,
            rounds=state.rounds + 1,
        )
        loss = -float(after.apart.max())
        # With both even and free sizes, all starts continue: the consensus needs them.
        if after.rounds == TRIAL and len(set(state.even.tolist())) == 1:
            after = after.best()
        return RoundResult(
            after, {"loss": loss, "documents": int(self.moments.count)}, float(change)
        )

    def iterate(self, agreement: Agreement, state: Split, most: int) -> Split:
        """Run at most `most` rounds before the study's first round; return the best clustering."""
        return iterate(agreement, self, state, repeat(0, most), self.settings.stops).best()

    def direct(self, state: Split) -> Directed:
        """Compute each clustering's projection from its sums; update the biases for even sizes."""
        results = [
            discriminate(sums, weights, self.moments, self.settings.separation.shrinkage)
            for sums, weights in zip(state.sums, state.weights, strict=True)
        ]
        projections, directions, apart = (np.stack(arrays) for arrays in zip(*results, strict=True))
        even = state.weights.sum(1, keepdims=True) / state.weights.shape[1]
        larger = np.log(np.maximum(state.weights / np.maximum(even, TINY), RAREST))
        return Directed(projections, directions, state.bias - larger * state.even[:, None], apart)


def complete(
    reply: Mapping[str, Numbers], sums: Numbers, weights: Numbers
) -> tuple[Numbers, Numbers]:
    """Estimate the clusters' sums over all documents, and their weights, from a reply.

    Clients send only sums over enough documents. The mean of these sums stands for all documents of
    a cluster. If nothing is sent, its last mean (from `sums` and `weights`) is used, also if it has
    become empty: otherwise two empty clusters would be the same, and stay the same.
    """
    sent = reply["sent"][..., None]
    mean_before = sums / np.maximum(weights, TINY)[..., None]
    means = np.where(sent > 0, reply["sums"] / np.maximum(sent, TINY), mean_before)
    weights = np.maximum(reply["weights"], LEAST_COUNT)
    return means * weights[..., None], weights


@dataclass(frozen=True)
class Directed:
    """The arrays of a `Discriminant` for each of several clusterings, stacked."""

    projection: Numbers
    directions: Numbers
    bias: Numbers
    apart: Numbers

    @property
    def arrays(self) -> Arrays:
        """The arrays from which memberships follow, by name."""
        return {name: array for name, array in vars(self).items() if name != "apart"}

    def weights(self) -> Arrays:
        """Return the arrays of the first clustering, by name."""
        return {name: array[0] for name, array in self.arrays.items()}


TOLERANCE = 1e-3  # rounds end when a smaller share of documents moves
UNSEEN = 0.01  # documents added to each pair of clusters, so that no pair is impossible
Members = tuple[Numbers, Numbers]
"""Sums of memberships, (n_clusters, n_memberships), and weights, by cluster of the consensus."""


@dataclass(frozen=True)
class ConsensusRounds:
    """Rounds of a consensus of clusterings, which begin with the clusters of the first clustering.

    A cluster is a distribution over the clusters of each clustering, found by
    expectation-maximisation from sums of memberships.
    """

    arrays: Arrays  # the arrays of `Discriminant`s, and the origin of points
    documents: int

    def exchange(self, agreement: Agreement, state: Members, round_: int) -> dict[str, Any]:
        """Request the memberships, summed by cluster of the consensus."""
        sums, weights = state
        # Without sums, clients take the clusters of the first clustering.
        clusters = self.arrays | (votes_of(sums, weights) if weights.any() else {})
        return agreement.ask(ConsensusSums.membership_sums, clusters=clusters)

    def step(
        self, agreement: Agreement, state: Members, reply: dict[str, Any], round_: int
    ) -> RoundResult[Members]:
        """Replace the sums; a cluster with too few documents keeps its mean."""
        check_enough(reply["sent"])
        after = complete(reply, sums=state[0], weights=state[1])
        return RoundResult(after, {}, float(np.abs(after[1] - state[1]).sum() / self.documents))


def votes_of(sums: Numbers, weights: Numbers) -> Arrays:
    """Return log probabilities of each membership given the cluster, and of each cluster."""
    k, n = sums.shape
    seen = (sums + UNSEEN).reshape(k, n // k, k)
    sizes = weights + UNSEEN
    return {
        "votes": np.log(seen / seen.sum(2, keepdims=True)).reshape(k, n),
        "sizes": np.log(sizes / sizes.sum()),
    }


def agree_on_clusters(agreement: Agreement, separation: Separation, split: Split) -> Arrays:
    """Find the consensus of clusterings; return the weights that infer it, except those of words.

    The rounds begin with the clustering of even sizes whose clusters are furthest apart.
    """
    directed = separation.direct(split)
    order = ranked(-np.where(split.even | ~split.even.any(), directed.apart, 0))
    arrays = {"origin": separation.origin, **chosen_start(directed, order).arrays}
    n_starts, k = split.weights.shape
    rounds = ConsensusRounds(arrays, int(separation.moments.count))
    first = np.zeros((k, n_starts * k)), np.zeros(k)
    sums, weights = iterate(
        agreement, rounds, first, repeat(0, CONSENSUS_ROUNDS), {"tolerance": TOLERANCE}
    )
    return arrays | votes_of(sums, weights)
