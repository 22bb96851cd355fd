"""Discriminative clustering at each client: sums of its points by words and by clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.inference.clusters import Consensus, Discriminants, centred
from fedtopics.inference.vectors import Numbers, blocks
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.settings import PARTS, DiscriminativeSettings
from fedtopics.methods.core.final_model import document_frequency
from fedtopics.methods.core.groups import SEEN, GroupRequest
from fedtopics.methods.discriminative.number import MOST_PAIRS, MOST_ROUNDS, START
from fedtopics.methods.discriminative.separation import CONSENSUS_ROUNDS
from fedtopics.methods.kmeans.lloyd import calls_of_start
from fedtopics.methods.nmf.client import WordProducts
from fedtopics.methods.nmf.factorisation import PASSES

COLUMNS = 256  # number of words that are compared with all others at a time
PER_WORD = 3  # documents, at least


class ConsensusSums(SharedFunctions):
    """Sums of points by words, and of memberships in several clusterings."""

    client: DiscriminativeClient

    def forget(self) -> None:
        self.client.part(ClusterSums).moved_embeddings = None

    @published(
        "For each word that enough of the documents contain, except those that nearly always occur "
        "with a more frequent word: the sum of the documents' embeddings (less a common origin, of "
        "length 1). The numbers of documents with such a word, and of all documents. With secure "
        "aggregation, first: how many documents contain each word."
    )
    def point_sums(
        self, vocabulary: str, origin: Numbers, groups: GroupRequest = SEEN
    ) -> dict[str, Any]:
        """Sum the points of the documents with each word; see `distinct_words`."""
        self.client.check(vocabulary)
        client = self.client
        rows = client.usable

        def compute() -> tuple[Numbers, Numbers]:
            has = (client.bag[rows] > 0).astype(np.float64)
            has.data *= distinct_words(has, client.guard.least)[has.indices]
            embeddings: Any = client.corpus.embeddings
            return has.T @ centred(embeddings[rows], origin), has.sum(0)

        request = {"sums": "by word", "origin": origin}
        reply = client.part(ClusterSums).by_group(groups, request, compute)
        return reply | {"documents": len(rows)}

    def learn_words(self, vocabulary: str, **words: NDArray[Any]) -> None:
        """Move the embeddings towards the mean points of their words; no data is sent."""
        self.client.check(vocabulary)
        embeddings: Any = self.client.corpus.embeddings
        inference: Any = self.client.inference_of()
        moved = inference.mixed(embeddings, self.client.bag, words)
        moved[~embeddings.any(1)] = 0  # documents without an embedding
        self.client.part(ClusterSums).moved_embeddings = moved

    @published(
        "The sum of the documents' memberships in each cluster of a consensus; for each cluster "
        "where that sum is large enough, the sum of its documents' memberships in all clusterings. "
        "The number of documents. With secure aggregation, memberships are also summed first."
    )
    def member_sums(
        self, vocabulary: str, clusters: dict[str, NDArray[Any]], groups: GroupRequest = SEEN
    ) -> dict[str, Any]:
        """Sum memberships by the consensus' clusters, at first those of the first clustering."""
        self.client.check(vocabulary)

        points = self.client.part(ClusterSums).points(clusters["origin"])
        bias = clusters["bias"]
        inference: Any = self.client.inference_of()

        def compute() -> tuple[Numbers, Numbers]:
            sums = np.zeros((bias.shape[1], bias.size))
            weights = np.zeros(bias.shape[1])
            for _, block in blocks(points):
                members = shares = inference.members(clusters, block)
                if "votes" in clusters:
                    shares = softmax(members @ clusters["votes"].T + clusters["sizes"], axis=1)
                shares = shares[:, : len(weights)]
                sums += shares.T @ members
                weights += shares.sum(0)
            return sums, weights

        request = {"sums": "of members", **clusters}
        reply = self.client.part(ClusterSums).by_group(groups, request, compute)
        return reply | {"documents": len(self.client.usable)}


class DiscriminativeClient(ClusterClient[DiscriminativeSettings]):
    """Sums of points by words and by clusters, and of memberships."""

    exchanges = (ClusterSums, ConsensusSums, WordProducts)

    @property
    def inference(self) -> type[Consensus] | type[Discriminants]:  # type: ignore[override]
        return self.settings.inference

    @staticmethod
    def rounds(settings: DiscriminativeSettings) -> dict[str, str]:
        calls = with_call(calls_before_separation(settings), "class_sums", "each round")
        if settings.word_weight:
            calls = with_call(calls, "means", "once after words are known")
            calls["point_sums"] = "once, before the first round"
            calls["word_products"] = f"at most {PASSES} times, before the first round"
        if settings.inference is Consensus:
            calls["member_sums"] = f"at most {CONSENSUS_ROUNDS} times, at the end"
        return calls


def distinct_words(bag: sparse.csr_array, least: int) -> NDArray[np.bool_]:
    """Return which words can be summed: any two of them differ in at least `least` documents.

    Two words differ in the documents that contain only one of them. If these are fewer, the rarer
    word is left out, because the difference of the sums would reveal these documents. Words without
    a common document differ enough, as each occurs in at least half as many. Sums over clients then
    also differ enough: if a client sums both words, by its own documents, else by all with a word.

    Each word occurs in at least three documents: the sums are equations for embeddings, and an
    attacker who knows which words documents contain could solve them.
    """
    counts = document_frequency(bag)
    summed = 2 * counts >= least
    if least == 1:
        return summed
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    contains = sparse.csr_array((np.ones(bag.nnz, np.int32), bag.indices, bag.indptr), bag.shape)
    transposed = contains.T.tocsr()
    alike = set[tuple[int, int]]()
    for start in range(0, len(counts), COLUMNS):
        both = (transposed[start : start + COLUMNS] @ contains).tocoo()
        first = both.coords[0] + start
        second = both.coords[1]
        few = counts[first] + counts[second] - 2 * both.data < least
        few &= summed[first] & summed[second] & (rank[first] > rank[second])
        alike |= set(zip(rank[first[few]].tolist(), second[few].tolist(), strict=True))
    by_rank = np.argsort(rank)
    for rarer, other in sorted(alike):  # more frequent words are decided first
        summed[by_rank[rarer]] &= not summed[other]
    summed[by_rank[summed[by_rank].cumsum() > bag.shape[0] / PER_WORD]] = False
    return summed


def calls_before_separation(settings: DiscriminativeSettings) -> dict[str, str]:
    calls = calls_of_start(settings.start)
    n_pairs = MOST_PAIRS * len(settings.candidates)
    if n_pairs:
        calls = with_call(calls, "moments", f"at most {sum(PARTS[1:])} times for parts")
        often = f"at most {2 * n_pairs * START.rounds} times to choose the number"
        calls = with_call(calls, "cluster_sums", often)
        calls["class_sums"] = f"at most {2 * n_pairs * MOST_ROUNDS} times, before the first round"
        calls["agreeing_pairs"] = f"at most {n_pairs} times, before the first round"
    return calls


def with_call(calls: Mapping[str, str], function: str, often: str) -> dict[str, str]:
    before = calls.get(function)
    return {**calls, function: f"{before}, and {often}" if before else often}
