"""Words that tell embeddings: the mean point of the documents with each word, by sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.methods.clusters.program import find_origin
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.final import document_frequency
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.discriminative.separation import sum_by_group

COLUMNS = 256  # words that are compared with all others at a time
EACH = 4  # documents for each word


def find_words(agreement: Agreement, settings: DiscriminativeSettings) -> Arrays:
    """Let clients learn the words' mean points and rarity, zeros where no sums were sent."""
    shape = len(agreement.vocabulary), settings.embedding.dimension
    origin = find_origin(agreement, shape[1])
    reply = sum_by_group(agreement, "point_sums", shape, origin=origin)
    counts, documents = reply["sent"], max(reply["documents"], 1)
    means = reply["sums"] / np.maximum(counts, 1)[:, None]
    rarity = np.log(documents / np.where(counts > 0, counts, documents))
    words = {"word_origin": origin, "word_means": means.astype(np.float32), "rarity": rarity}
    learn_words(agreement, words)
    return words


def learn_words(agreement: Agreement, words: Arrays) -> None:
    """Let clients move their embeddings by what is known of words, if anything is."""
    if words:
        vocabulary = agreement.vocabulary.fingerprint
        agreement.clients.tell("learn_words", vocabulary=vocabulary, **words)


def distinct_words(bag: sparse.csr_array, least: int) -> NDArray[np.bool_]:
    """Return which words can be summed: any two of them differ in at least so many documents.

    Of two words that differ in fewer, having one and not the other, the rarer is left out: the
    difference of their sums would be these documents. Two words without a common document differ
    enough as each has at least half as many. Sums over clients then differ by enough as well: of a
    client that sums both words by its own, of clients that sum one of them by all with it.

    For each word there are at least four documents: the sums are equations for embeddings, and who
    knew which words documents have could solve them.
    """
    counts = document_frequency(bag)
    kept = 2 * counts >= least
    if least == 1:
        return kept
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    there = sparse.csr_array((np.ones(bag.nnz, np.int32), bag.indices, bag.indptr), bag.shape)
    transposed, alike = there.T.tocsr(), set[tuple[int, int]]()
    for start in range(0, len(counts), COLUMNS):
        both = (transposed[start : start + COLUMNS] @ there).tocoo()
        first, second = both.coords[0] + start, both.coords[1]
        few = counts[first] + counts[second] - 2 * both.data < least
        few &= kept[first] & kept[second] & (rank[first] > rank[second])
        alike |= set(zip(rank[first[few]].tolist(), second[few].tolist(), strict=True))
    by_rank = np.argsort(rank)
    for rarer, other in sorted(alike):  # the more frequent ones are decided before
        kept[by_rank[rarer]] &= not kept[other]
    kept[by_rank[kept[by_rank].cumsum() > bag.shape[0] / EACH]] = False
    return kept
