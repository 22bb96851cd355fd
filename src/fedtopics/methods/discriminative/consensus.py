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
from fedtopics.methods.core.replies import Template, sums
from fedtopics.methods.core.training import Arrays, RoundResult, iterate
from fedtopics.methods.discriminative.separation import Separation, Split, complete
from fedtopics.methods.kmeans.lloyd import chosen

ROUNDS, TOLERANCE = 30, 1e-3  # at most so many; until fewer documents than this share move
UNSEEN = 0.01  # documents of each cluster in each of a clustering, so that none is impossible


@dataclass(frozen=True)
class Members:
    """The clusters of a consensus: sums of memberships, (n_clusters, n_memberships), and sizes."""

    sums: Numbers
    weights: Numbers


@dataclass(frozen=True)
class Consensus:
    """Rounds of a consensus of clusterings; in the first, clusters are those of the first one."""

    arrays: Arrays  # of `Discriminant`s for points measured from the origin
    documents: int

    def exchange(self, agreement: Agreement, state: Members, round_: int) -> dict[str, Any]:
        """Ask for the memberships, summed by cluster of the consensus."""
        template: Template = {
            "sums": sums(*state.sums.shape, each=1), "weights": sums(*state.weights.shape, each=1),
            "sent": sums(*state.weights.shape, each=1),
        }  # fmt: skip
        counted: Template = {"counts": template["weights"]}
        payload = self.arrays | (votes_of(state) if state.weights.any() else {})
        return agreement.sum_groups("member_sums", template, counted, clusters=payload)

    def step(
        self, agreement: Agreement, state: Members, reply: dict[str, Any], round_: int
    ) -> RoundResult[Members]:
        """Replace the sums; a cluster of too few documents keeps its mean."""
        check_enough(reply["sent"])
        after = Members(*complete(reply, state))
        change = np.abs(after.weights - state.weights).sum() / self.documents
        return RoundResult(after, {}, float(change))


def votes_of(state: Members) -> Arrays:
    """Return how probable each membership is of each cluster, and each cluster, as logarithms."""
    k, n = state.sums.shape
    seen = (state.sums + UNSEEN).reshape(k, n // k, k)
    sizes = state.weights + UNSEEN
    votes = np.log(seen / seen.sum(2, keepdims=True)).reshape(k, n)
    return {"votes": votes, "sizes": np.log(sizes / sizes.sum())}


def agree_on_clusters(agreement: Agreement, separation: Separation, split: Split) -> Arrays:
    """Find the consensus of clusterings; return the weights it is inferred by, less the words'.

    It begins with the clustering of even sizes whose clusters are furthest apart.
    """
    first = separation.direct(split)
    order = ranked(-np.where(split.even | ~split.even.any(), first.apart, 0))
    found = vars(chosen(first, order))
    arrays = {name: found[name] for name in ("projection", "directions", "bias")}
    arrays["origin"] = separation.origin
    n_starts, k = split.weights.shape
    nothing = Members(np.zeros((k, n_starts * k)), np.zeros(k))
    rounds = Consensus(arrays, int(separation.moments.count))
    numbers = repeat(0, ROUNDS)
    last = iterate(agreement, rounds, nothing, numbers, {"tolerance": TOLERANCE})
    return arrays | votes_of(last)
