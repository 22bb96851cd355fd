"""Rounds of discriminative clustering by sums, a consensus, and how many clusters there are.

The method `discriminative` and the start of FSTC use it.

References
----------
For the number of clusters: Hubert and Arabie, Comparing Partitions, 1985. Tibshirani and Walther,
Cluster Validation by Prediction Strength, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.points import TINY, Moments, Numbers, discriminate, ranked
from fedtopics.methods.clusters.program import check_enough, moments_about
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.events import Candidate, Event
from fedtopics.methods.core.final import ALL
from fedtopics.methods.core.replies import AgreeingPairs, Field, sums
from fedtopics.methods.core.training import Arrays, RoundResult, iterate
from fedtopics.methods.kmeans.lloyd import Partition, chosen, start_with_kmeans

TRIAL = 20  # rounds after which only the best of the finalists continues
LEAST_COUNT = 1e-6  # of a document
RAREST = 1e-3  # share of an even size below which a cluster's bias stops growing


@dataclass(frozen=True)
class Split:
    """Several clusterings of the same points, by their sums."""

    sums: Numbers  # of points by their memberships, shape (n_starts, n_clusters, n_dimensions)
    weights: Numbers  # summed memberships, shape (n_starts, n_clusters)
    bias: Numbers  # of that shape
    apart: Numbers  # trace of S_W^-1 S_B of each clustering: its clusters' distance for their width
    even: NDArray[np.bool_]  # which clusterings have clusters of one size
    rounds: int = 0

    @classmethod
    def of(cls, clusters: Partition, sizes: str) -> Split:
        """Return the clusters of k-means, with no bias; with both sizes twice.

        An empty cluster gets a tiny part of a document at its centre: two of them would be, and
        stay, the same otherwise.
        """
        no_bias = np.zeros_like(clusters.counts)
        counts = np.where(clusters.counts > 0, clusters.counts, LEAST_COUNT)
        empty = clusters.counts[..., None] == 0
        sums = np.where(empty, LEAST_COUNT * clusters.centres, clusters.sums)
        even = np.repeat([True, False] if sizes == "both" else [sizes == "even"], len(counts))
        found = cls(sums, counts, no_bias, np.zeros(len(counts)), even[: len(counts)])
        return replace(chosen(found, np.arange(len(even)) % len(counts)), even=even)

    def best(self) -> Split:
        return chosen(self, ranked(-self.apart)[:1])


@dataclass(frozen=True)
class Separation:
    """Rounds that separate clusters of points with these moments, measured from an origin."""

    settings: DiscriminativeSettings
    origin: Numbers
    moments: Moments
    part: int = ALL  # of the documents: the first (0), the second (1) or both

    def exchange(
        self, agreement: Agreement, state: Split, round_: int
    ) -> tuple[Directed, dict[str, Any]]:
        directed = self.direct(state)
        shape = *directed.bias.shape, len(self.origin)
        payload = {"round": round_, "origin": self.origin, "part": self.part, **directed.arrays}
        return directed, sum_by_group(agreement, "class_sums", shape, **payload)

    def step(
        self, agreement: Agreement, state: Split, reply: tuple[Directed, dict[str, Any]],
        round_: int,
    ) -> RoundResult[Split]:  # fmt: skip
        directed, new = reply
        check_enough(new["sent"])
        kept = agreement.share_kept(round_)
        sums, weights = complete(new, state.sums, state.weights)
        sums, weights = sums + kept * state.sums, weights + kept * state.weights
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        after = Split(sums, weights, directed.bias, directed.apart, state.even, state.rounds + 1)
        loss, documents = -float(after.apart.max()), int(self.moments.count)
        if after.rounds == TRIAL and len(set(state.even.tolist())) == 1:
            after = after.best()
        return RoundResult(after, {"loss": loss, "documents": documents}, float(change))

    def iterate(self, agreement: Agreement, state: Split, most: int) -> Split:
        """Run at most `most` rounds before the first round; return the best clustering."""
        stops = {"tolerance": self.settings.separation.tolerance}
        return iterate(agreement, self, state, repeat(0, most), stops).best()

    def direct(self, state: Split) -> Directed:
        """Compute each clustering's projection from its sums; update the biases for even sizes."""
        results = [
            discriminate(sums, weights, self.moments, self.settings.separation.shrinkage)
            for sums, weights in zip(state.sums, state.weights, strict=True)
        ]
        projections, directions, apart = (np.stack(arrays) for arrays in zip(*results, strict=True))
        even = state.weights.sum(1, keepdims=True) / state.weights.shape[1]
        larger = np.log(np.maximum(state.weights / np.maximum(even, TINY), RAREST))
        bias = state.bias - larger * state.even[:, None]
        return Directed(projections, directions, bias, apart)


def sum_by_group(
    agreement: Agreement, function: str, shape: tuple[int, ...], **payload: Any
) -> dict[str, Any]:
    """Sum vectors of length 1 at most, of documents by their weight in groups; `complete` them."""
    weights = sums(*shape[:-1], each=1)
    template = {"sums": Field(shape, each=1), "weights": weights, "sent": weights}
    return agreement.sum_groups(function, template, {"counts": weights}, **payload)


def complete(
    reply: Mapping[str, Numbers], sums: Numbers, weights: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the clusters' sums over all documents and their weights, of the sums before.

    Clients send sums of enough documents alone. Their mean stands for the rest of a cluster; if
    nothing is sent, its last mean does, which a cluster that nothing is left of keeps as well: two
    of them would be, and stay, the same otherwise.
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
        """Those that memberships follow from, by name."""
        return {name: array for name, array in vars(self).items() if name != "apart"}

    def weights(self) -> Arrays:
        """Return those of the first clustering, by name."""
        return {name: array[0] for name, array in self.arrays.items()}


CONSENSUS_ROUNDS, TOLERANCE = (
    30,
    1e-3,
)  # at most so many; until fewer documents than this share move
UNSEEN = 0.01  # documents of each cluster in each of a clustering, so that none is impossible
Members = tuple[Numbers, Numbers]
"""By cluster of the consensus: sums of memberships, (n_clusters, n_memberships), and weights."""


@dataclass(frozen=True)
class ConsensusRounds:
    """Rounds of a consensus of clusterings; in the first, clusters are those of the first one.

    A cluster is a distribution over the clusters of each clustering, found by
    expectation-maximisation from sums of memberships.
    """

    arrays: Arrays  # of `Discriminant`s, and the origin of points
    documents: int

    def exchange(self, agreement: Agreement, state: Members, round_: int) -> dict[str, Any]:
        """Ask for the memberships, summed by cluster of the consensus."""
        clusters = self.arrays | (votes_of(*state) if state[1].any() else {})
        return sum_by_group(agreement, "member_sums", state[0].shape, clusters=clusters)

    def step(
        self, agreement: Agreement, state: Members, reply: dict[str, Any], round_: int
    ) -> RoundResult[Members]:
        """Replace the sums; a cluster of too few documents keeps its mean."""
        check_enough(reply["sent"])
        after = complete(reply, *state)
        return RoundResult(after, {}, float(np.abs(after[1] - state[1]).sum() / self.documents))


def votes_of(sums: Numbers, weights: Numbers) -> Arrays:
    """Return how probable each membership is of each cluster, and each cluster, as logarithms."""
    k, n = sums.shape
    seen, sizes = (sums + UNSEEN).reshape(k, n // k, k), weights + UNSEEN
    votes = np.log(seen / seen.sum(2, keepdims=True)).reshape(k, n)
    return {"votes": votes, "sizes": np.log(sizes / sizes.sum())}


def agree_on_clusters(agreement: Agreement, separation: Separation, split: Split) -> Arrays:
    """Find the consensus of clusterings; return the weights that infer it, less those of words.

    It begins with the clustering of even sizes whose clusters are furthest apart.
    """
    directed = separation.direct(split)
    order = ranked(-np.where(split.even | ~split.even.any(), directed.apart, 0))
    arrays = {"origin": separation.origin, **chosen(directed, order).arrays}
    n_starts, k = split.weights.shape
    rounds = ConsensusRounds(arrays, int(separation.moments.count))
    first = np.zeros((k, n_starts * k)), np.zeros(k)
    stops = {"tolerance": TOLERANCE}
    return arrays | votes_of(*iterate(agreement, rounds, first, repeat(0, CONSENSUS_ROUNDS), stops))


MOST_ROUNDS = 40  # of a clustering that only serves to choose the number of clusters


def with_number(
    agreement: Agreement, settings: DiscriminativeSettings, origin: Numbers, seed: int,
    notify: Callable[[Event], None],
) -> DiscriminativeSettings:  # fmt: skip
    """Choose the number of clusters for which clusterings of two halves of the documents agree.

    Their agreement is the adjusted Rand index over pairs of documents of one client.
    """
    scores: dict[int, float] = {}
    how = settings.separation
    halves = [moments_about(agreement, origin, part) for part in (0, 1) if how.candidates]
    for number in how.candidates:
        clusterings = []
        for part, moments in enumerate(halves):
            separation = Separation(settings, origin, moments, part)
            first = start_with_kmeans(
                agreement, settings.start, number, origin, moments, seed, how.finalists, part
            )
            sizes = "free" if how.sizes == "free" else "even"
            split = separation.iterate(agreement, Split.of(first, sizes), MOST_ROUNDS)
            clusterings.append(separation.direct(split).weights())
        scores[number] = _agreement(agreement, origin, *clusterings)
        notify(Candidate(number, scores[number]))
    best = max(scores, key=lambda number: scores[number], default=settings.n_components)
    return settings.model_copy(update={"n_components": best})


def _agreement(agreement: Agreement, origin: Numbers, first: Arrays, second: Arrays) -> float:
    template = {"pairs": AgreeingPairs()}
    payload = {"origin": origin, "first": first, "second": second}
    work = partial(agreement.sum, "agreeing_pairs", template, **payload)
    pairs = agreement.clients.round(0, work)[0]["pairs"]
    most = (pairs["first"] + pairs["second"]) / 2
    return float((pairs["together"] - pairs["chance"]) / max(most - pairs["chance"], TINY))
