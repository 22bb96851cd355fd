"""Discriminative clustering at each client: sums of its points by words and by clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.clusters import Consensus, Discriminants, centred
from fedtopics.inference.points import Numbers, blocks, softmax
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.groups import SEEN, Groups
from fedtopics.methods.core.interfaces import Exchanges, leaves
from fedtopics.methods.discriminative import words as by_word
from fedtopics.methods.discriminative.consensus import ROUNDS
from fedtopics.methods.discriminative.separation import MOST_ROUNDS
from fedtopics.methods.kmeans.lloyd import calls_of_start


class ConsensusSums(Exchanges):
    """Sums of points by words, and of memberships in several clusterings."""

    client: DiscriminativeClient

    def __init__(self, client: DiscriminativeClient) -> None:
        super().__init__(client)
        self._members = (b"", np.zeros((0, 0), np.float32))

    def forget(self) -> None:
        self.client.part(ClusterSums).moved_embeddings = None

    @leaves(
        "For each word that enough of the documents have, and that no more frequent one is nearly "
        "always with: the sum of the documents' embeddings, less a common origin and of length 1. "
        "The number of documents with such a word, and of all. Where sums are masked, how many "
        "have each word is also asked before that."
    )
    def point_sums(self, vocabulary: str, origin: Numbers, groups: Groups = SEEN) -> dict[str, Any]:
        """Sum the points of the documents with each word; see `words.distinct_words`."""
        self.client.check(vocabulary)
        client, rows = self.client, self.client.usable

        def compute() -> tuple[Numbers, Numbers]:
            has = (client.bag[rows] > 0).astype(np.float64)
            has.data *= by_word.distinct_words(has, client.guard.least)[has.indices]
            embeddings: Any = client.corpus.embeddings
            return has.T @ centred(embeddings[rows], origin), has.sum(0)

        request = {"sums": "by word", "origin": origin}
        reply = client.part(ClusterSums).by_group(groups, request, compute)
        return reply | {"documents": len(rows)}

    def learn_words(self, vocabulary: str, **words: NDArray[Any]) -> None:
        """Move the embeddings by what is known of words; there is no reply."""
        self.client.check(vocabulary)
        embeddings, inference = self.client.corpus.embeddings, self.client.inference_of()
        if embeddings is not None and isinstance(inference, Consensus):
            moved = inference.mixed(embeddings, self.client.bag, words)
            moved[~embeddings.any(1)] = 0
            self.client.part(ClusterSums).moved_embeddings = moved

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

        def compute() -> tuple[Numbers, Numbers]:
            members = self._memberships(clusters)
            shares: Numbers = members[:, : clusters["bias"].shape[1]].astype(np.float64)
            if "votes" in clusters:
                shares = softmax(members @ clusters["votes"].T + clusters["sizes"])
            return shares.T @ members, shares.sum(0)

        request = {"sums": "of members", **clusters}
        reply = self.client.part(ClusterSums).by_group(groups, request, compute)
        return reply | {"documents": len(self.client.usable)}

    def _memberships(self, clusters: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the memberships in all clusterings, (n, n_memberships); they are cached."""
        key, inference = clusters["projection"].tobytes(), self.client.inference_of()
        if self._members[0] != key and isinstance(inference, Consensus):
            found = np.zeros((len(self.client.usable), clusters["bias"].size), np.float32)
            points = self.client.part(ClusterSums).points(clusters["origin"])
            for rows, block in blocks(points):
                found[rows] = inference.members(clusters, block)
            self._members = key, found
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


def calls_before_separation(settings: DiscriminativeSettings) -> dict[str, str]:
    """Return how often which functions are called before clusters are moved apart."""
    calls, n = calls_of_start(settings.start), len(settings.separation.candidates)
    if n:
        calls = with_call(calls, "moments", "once for each half")
        calls = with_call(calls, "cluster_sums", f"{2 * n} times as often to choose the number")
        calls["class_sums"] = f"at most {2 * n * MOST_ROUNDS} times, before the first round"
        calls["agreeing_pairs"] = f"{n} times, before the first round"
    return calls


def with_call(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    """Return how often functions are called, with more calls of one."""
    before = calls.get(function)
    return {**calls, function: f"{before}, and {often}" if before else often}
