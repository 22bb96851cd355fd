"""Discriminative clustering at each client: sums of its points by words and by clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax

from fedtopics.contract import replies
from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import FIRST, NEVER, Often, Reply, of_method, published, unknown
from fedtopics.inference.clusters import Consensus, centred
from fedtopics.inference.vectors import Numbers, blocks
from fedtopics.methods.clusters.client import (
    ClusterClient,
    ClusterSums,
    sums_by_weight,
)
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.groups import SEEN, GroupRequest, PersonShares
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.nmf.client import WordProducts
from fedtopics.model.formulas import one_hot
from fedtopics.text.vocabulary import persons_by_word

COLUMNS = 256  # number of words that are compared with all others at a time
PER_WORD = 3  # documents, at least
CONSENSUS_ROUNDS = 8  # at most


class ConsensusSums(SharedFunctions):
    """Sums of points by words, and of memberships in several clusterings."""

    client: DiscriminativeClient

    def forget(self) -> None:
        self.client.part(ClusterSums).moved_embeddings = None

    @published(
        "For each word that documents of enough persons contain, except those that nearly always "
        "occur with a more frequent word: the sum of the documents' embeddings (less a common "
        "origin, of length 1). The numbers of documents with such a word, and of all documents. "
        "With secure aggregation, first: how many documents contain each word.",
        "sums of embeddings by word",
        often=of_method(DiscriminativeSettings, lambda s: FIRST if s.word_weight else NEVER),
        reply=lambda agreement, origin: sums_by_weight(len(agreement.vocabulary), len(origin)),
        counts_first=lambda agreement: replies.of_groups(len(agreement.vocabulary)),
        largest=lambda s, n_words: {"origin": unknown(s.embedding.dimension)},
    )
    def embedding_sums_by_word(self, origin: Numbers, groups: GroupRequest = SEEN) -> Reply:
        """Sum the points of the documents with each word; see `distinct_words`."""
        client = self.client
        rows = client.usable
        owners = client.corpus.owners_of(rows)

        def compute() -> tuple[Numbers, Numbers, dict[str, Numbers]]:
            has = (client.bag[rows] > 0).astype(np.float64)
            of_persons = has
            if owners is not None:  # which words persons have
                of_persons = sparse.csr_array(
                    one_hot(owners, int(owners.max(initial=-1)) + 1).T @ has
                )
            has.data *= distinct_words(of_persons, client.guard.least)[has.indices]
            has.eliminate_zeros()
            embeddings: Any = client.corpus.embeddings
            persons = persons_by_word(has, owners).astype(np.float64)
            return (
                has.T @ centred(embeddings[rows], origin),
                has.sum(0),
                {"squares": persons, "fourths": persons},
            )

        return client.part(ClusterSums).by_group(
            groups, {"sums": "by word", "origin": origin}, compute, rows
        )

    def learn_words(self, /, **words: NDArray[Any]) -> None:
        """Move the embeddings towards the mean points of their words; no data is sent."""
        embeddings: Any = self.client.corpus.embeddings
        inference: Any = self.client.inference_of()
        moved = inference.mixed(embeddings, self.client.bag, words)
        moved[~embeddings.any(1)] = 0  # documents without an embedding
        self.client.part(ClusterSums).moved_embeddings = moved

    @published(
        "The sum of the documents' memberships in each cluster of a consensus; for each cluster "
        "where that sum is large enough, the sum of its documents' memberships in all clusterings. "
        "The number of documents. With secure aggregation, memberships are also summed first.",
        "memberships by cluster",
        often=of_method(
            DiscriminativeSettings,
            lambda s: (
                Often(at_end=CONSENSUS_ROUNDS, at_most=True) if s.inference is Consensus else NEVER
            ),
        ),
        reply=lambda clusters: sums_by_weight(clusters["bias"].shape[1], clusters["bias"].size),
        counts_first=lambda clusters: replies.of_groups(clusters["bias"].shape[1]),
        largest=lambda s, n_words: {
            "clusters": {"bias": unknown(2 * s.separation.finalists, s.most_topics)}
        },
    )
    def membership_sums(self, clusters: Arrays, groups: GroupRequest = SEEN) -> Reply:
        """Sum memberships by the consensus' clusters, at first those of the first clustering."""
        points = self.client.part(ClusterSums).points(clusters["origin"])
        bias = clusters["bias"]
        inference: Any = self.client.inference_of()
        owners = self.client.corpus.owners_of(self.client.usable)

        def compute() -> tuple[Numbers, Numbers, dict[str, Numbers]]:
            sums = np.zeros((bias.shape[1], bias.size))
            weights = np.zeros(bias.shape[1])
            of_persons = PersonShares(owners, len(weights))
            for rows, block in blocks(points):
                members = shares = inference.members(clusters, block)
                if "votes" in clusters:
                    shares = softmax(members @ clusters["votes"].T + clusters["sizes"], axis=1)
                shares = shares[:, : len(weights)]
                sums += shares.T @ members
                weights += shares.sum(0)
                of_persons.add(rows, shares)
            return sums, weights, of_persons.powers()

        return self.client.part(ClusterSums).by_group(
            groups, {"sums": "of members", **clusters}, compute, self.client.usable
        )


class DiscriminativeClient(ClusterClient[DiscriminativeSettings]):
    """Sums of points by words and by clusters, and of memberships."""

    exchanges = (ClusterSums, ConsensusSums, WordProducts)


def distinct_words(bag: sparse.csr_array, least: int) -> NDArray[np.bool_]:
    """Return which words can be summed: any two of them differ in at least `least` documents.

    Two words differ in the documents that contain only one of them. If these are fewer, the rarer
    word is left out, because the difference of the sums would reveal these documents. Words without
    a common document differ enough, as each occurs in at least half as many. Sums over clients then
    also differ enough: if a client sums both words, by its own documents, else by all with a word.

    Each word occurs in at least three documents: the sums are equations for embeddings, and an
    attacker who knows which words documents contain could solve them.
    """
    counts = persons_by_word(bag)
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
