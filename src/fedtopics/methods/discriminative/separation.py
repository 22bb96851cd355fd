"""Rounds of discriminative clustering by sums over documents, and the choice of n_components.

References
----------
For the number of clusters: Hubert and Arabie, Comparing Partitions, 1985. Tibshirani and Walther,
Cluster Validation by Prediction Strength, 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from fedtopics.methods.core.replies import AgreeingPairs, Field, Template, sums
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
    bias: Numbers  # of the same shape
    apart: Numbers  # trace of S_W^-1 S_B of each clustering, a measure of separation
    rounds: int = 0

    @classmethod
    def of(cls, clusters: Partition) -> Split:
        """Return the clusters of k-means; a tiny weight keeps two empty ones from being equal."""
        no_bias = np.zeros_like(clusters.counts)
        counts = np.where(clusters.counts > 0, clusters.counts, LEAST_COUNT)
        empty = clusters.counts[..., None] == 0
        sums = np.where(empty, LEAST_COUNT * clusters.centres, clusters.sums)
        return cls(sums, counts, no_bias, np.zeros(len(no_bias)))

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
        shape = directed.bias.shape
        n_dimensions = len(self.origin)
        template: Template = {  # points have unit length
            "sums": Field((*shape, n_dimensions), each=1), "weights": sums(*shape, each=1),
            "sent": sums(*shape, each=1),
        }  # fmt: skip
        payload = {name: getattr(directed, name) for name in ("projection", "directions", "bias")}
        payload |= {"origin": self.origin, "part": self.part}
        counted: Template = {"counts": template["weights"]}
        return directed, agreement.sum_groups(
            "class_sums", template, counted, round=round_, **payload
        )

    def step(
        self, agreement: Agreement, state: Split, reply: tuple[Directed, dict[str, Any]],
        round_: int,
    ) -> RoundResult[Split]:  # fmt: skip
        directed, new = reply
        check_enough(new["sent"])
        kept = agreement.share_kept(round_)
        sums, weights = complete(new, state)
        sums, weights = sums + kept * state.sums, weights + kept * state.weights
        change = np.linalg.norm(sums - state.sums) / (np.linalg.norm(state.sums) + TINY)
        after = Split(sums, weights, directed.bias, directed.apart, state.rounds + 1)
        loss, documents = -float(after.apart.max()), int(self.moments.count)
        if after.rounds == TRIAL:
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
        bias = state.bias
        if self.settings.separation.sizes == "even":
            even = state.weights.sum(1, keepdims=True) / state.weights.shape[1]
            bias = bias - np.log(np.maximum(state.weights / np.maximum(even, TINY), RAREST))
        return Directed(projections, directions, bias, apart)


def complete(reply: Mapping[str, Numbers], before: Split) -> tuple[Numbers, Numbers]:
    """Return sums and weights over all documents; the mean of those sent represents the rest."""
    sent = reply["sent"][..., None]
    mean_before = before.sums / np.maximum(before.weights, TINY)[..., None]
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

    def weights(self) -> dict[str, NDArray[Any]]:
        names = ("projection", "directions", "bias")
        return {name: getattr(self, name)[0] for name in names}


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
            split = separation.iterate(agreement, Split.of(first), MOST_ROUNDS)
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
