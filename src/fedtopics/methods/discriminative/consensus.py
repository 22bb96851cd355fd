"""A consensus of several clusterings of the same points, by sums of memberships.

A cluster of the consensus is a distribution over the clusters of each clustering. Documents are its
members by how probable their memberships in all clusterings are (expectation-maximisation).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from fedtopics.inference.points import Numbers, ranked
from fedtopics.methods.clusters.program import check_enough
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays, RoundResult, iterate
from fedtopics.methods.discriminative.separation import Separation, Split, complete, sum_by_group
from fedtopics.methods.kmeans.lloyd import chosen

ROUNDS, TOLERANCE = 30, 1e-3  # at most so many; until fewer documents than this share move
UNSEEN = 0.01  # documents of each cluster in each of a clustering, so that none is impossible
Members = tuple[Numbers, Numbers]
"""By cluster of the consensus: sums of memberships, (n_clusters, n_memberships), and weights."""


@dataclass(frozen=True)
class Consensus:
    """Rounds of a consensus of clusterings; in the first, clusters are those of the first one."""

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
    rounds = Consensus(arrays, int(separation.moments.count))
    first = np.zeros((k, n_starts * k)), np.zeros(k)
    stops = {"tolerance": TOLERANCE}
    return arrays | votes_of(*iterate(agreement, rounds, first, repeat(0, ROUNDS), stops))
