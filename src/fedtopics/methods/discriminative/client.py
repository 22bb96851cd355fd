"""Discriminative clustering at each client: sums of its points by words and by clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.clusters import Consensus, Discriminants, centred
from fedtopics.inference.points import Numbers, blocks, softmax
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums, of_enough
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.aggregation import digest_of
from fedtopics.methods.core.groups import SEEN, Enough, Grouped, Groups, Thetas, as_many
from fedtopics.methods.core.interfaces import Exchanges, leaves
from fedtopics.methods.discriminative import words as by_word
from fedtopics.methods.discriminative.consensus import ROUNDS
from fedtopics.methods.discriminative.separation import MOST_ROUNDS
from fedtopics.methods.kmeans.lloyd import calls_of_start

WORDS = "word_origin", "word_means", "rarity"  # weights of `Consensus` that words are known by


class ConsensusSums(Exchanges):
    """Sums of points by words, and of memberships in several clusterings."""

    client: DiscriminativeClient

    def __init__(self, client: DiscriminativeClient) -> None:
        super().__init__(client)
        self._known: Mapping[str, NDArray[Any]] = {}
        self._members = ("", np.zeros((0, 0), np.float32))

    def forget(self) -> None:
        self._known = {}
        self.client.part(ClusterSums).moved_embeddings = None

    @leaves(
        "For each word that enough of the documents have, and that no more frequent one is nearly "
        "always with: the sum of the documents' embeddings, less a common origin and of length 1, "
        "and their number. The number of all. Where sums are masked, before that: the documents "
        "with each word."
    )
    def point_sums(self, vocabulary: str, origin: Numbers, groups: Groups = SEEN) -> dict[str, Any]:
        """Sum the points of the documents with each word; see `words.distinct_words`."""
        self.client.check(vocabulary)
        usable = self.client.usable

        def compute() -> Grouped:
            bag = self.client.bag[usable]
            kept = by_word.distinct_words(bag, self.client.guard.least)
            embeddings: Any = self.client.corpus.embeddings
            there = (bag > 0).astype(np.float64)
            sums = there.T @ centred(embeddings[usable], origin)
            counts = there.sum(0) * kept

            def summed(enough: Enough) -> dict[str, Any]:
                of, sent = of_enough(enough & kept, sums, counts)
                return {"sums": of, "counts": sent}

            return {"counts": counts}, summed

        request = {"sums": "by word", "origin": origin}
        return self.client.guard.sums(groups, request, as_many, compute) | {
            "documents": len(usable)
        }

    def learn_words(self, vocabulary: str, **words: NDArray[Any]) -> None:
        """Move the embeddings by what is known of words; there is no reply."""
        self.client.check(vocabulary)
        known = self._known.keys() == words.keys()
        if known and all(np.array_equal(self._known[name], words[name]) for name in words):
            return
        client, self._known = self.client, words
        embeddings: Any = client.corpus.embeddings
        moved = np.zeros_like(embeddings, np.float32)
        inference: Any = client.inference_of()
        rows = client.usable
        moved[rows] = inference.mixed(embeddings[rows], client.bag[rows], words)
        client.part(ClusterSums).moved_embeddings = moved

    @leaves(
        "With how much weight the documents are members of each cluster of a consensus; of each "
        "with enough weight, the sum of their memberships in all clusterings. The number of "
        "documents. Where sums are masked, the weights are also asked before that."
    )
    def member_sums(
        self, vocabulary: str, clusters: dict[str, NDArray[Any]], groups: Groups = SEEN
    ) -> dict[str, Any]:
        """Sum memberships by cluster of the consensus: at first that of the first clustering."""
        self.client.check(vocabulary)

        def compute() -> Grouped:
            members = self._memberships(clusters)
            if "votes" in clusters:
                shares = softmax(members @ clusters["votes"].T + clusters["sizes"])
            else:
                shares = members[:, : clusters["bias"].shape[1]].astype(np.float64)
            sums, weights = shares.T @ members, shares.sum(0)

            def summed(enough: Enough) -> dict[str, Any]:
                of, sent = of_enough(enough, sums, weights)
                return {"sums": of, "weights": weights, "sent": sent}

            return {"counts": weights}, summed

        request = {"sums": "of members", **clusters}
        reply = self.client.guard.sums(groups, request, as_many, compute)
        return reply | {"documents": len(self.client.usable)}

    def _memberships(self, clusters: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the memberships in all clusterings, (n, n_memberships); they are cached."""
        client = self.client
        weights = {name: clusters[name] for name in ("origin", "projection", "directions", "bias")}
        digest = digest_of(weights)
        if self._members[0] != digest:
            points = client.part(ClusterSums).points(weights["origin"])
            inference: Any = client.inference_of()
            parts = [inference.members(weights, block) for _, block in blocks(points)]
            width = weights["bias"].size
            found = np.concatenate([np.zeros((0, width)), *parts]).astype(np.float32)
            self._members = digest, found
        return self._members[1]


class DiscriminativeClient(ClusterClient[DiscriminativeSettings]):
    """Sums of points by words and by clusters, and of memberships."""

    exchanges = (ClusterSums, ConsensusSums)

    @property
    def inference(self) -> type[Consensus] | type[Discriminants]:  # type: ignore[override]
        return self.settings.inference

    @staticmethod
    def rounds(settings: DiscriminativeSettings) -> dict[str, str]:
        calls = with_call(calls_before_separation(settings), "class_sums", "each round")
        if settings.word_weight:
            calls = with_call(calls, "means", "once after words are known")
            calls["point_sums"] = "once, before the first round"
        if settings.inference is Consensus:
            calls["member_sums"] = f"at most {ROUNDS} times, at the end"
        return calls

    def thetas(self, **model: Any) -> Thetas:
        weights = model["weights"]
        if WORDS[0] in weights:
            known = {name: weights[name] for name in WORDS}
            self.part(ConsensusSums).learn_words(self._fingerprint, **known)
        return super().thetas(**model)


def calls_before_separation(settings: DiscriminativeSettings) -> dict[str, str]:
    """Return how often which functions are called before clusters are moved apart."""
    calls, n = calls_of_start(settings.start), len(settings.separation.candidates)
    if not n:
        return calls
    return {
        "means": calls["means"],
        "moments": "three times, before the first round",
        "cluster_sums": f"{calls['cluster_sums']}, and {2 * n} times as often to choose the "
        "number of clusters",
        "class_sums": f"at most {2 * n * MOST_ROUNDS} times, before the first round",
        "agreeing_pairs": f"{n} times, before the first round",
    }


def with_call(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    """Return how often functions are called, with more calls of one."""
    before = calls.get(function)
    return {**calls, function: f"{before}, and {often}" if before else often}
