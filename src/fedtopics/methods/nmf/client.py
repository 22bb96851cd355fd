"""Federated NMF at each client: sums of its documents' weighted words, by directions and topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import FIRST, NEVER, Often, Reply, of_method, published, unknown
from fedtopics.contract.replies import LIMIT, Bounds, Template, of_groups, sums
from fedtopics.inference.nmf import NMFShape, find_theta, weigh
from fedtopics.inference.vectors import TINY, Numbers, with_entries
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.final_model import (
    ALL,
    ALL_OR_ONE_OF_TWO,
    ONE_OF_TWO,
    SCORED,
    bag_of_part,
    sums_of_words,
)
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    PersonShares,
    Thetas,
)
from fedtopics.methods.core.settings import MinibatchSettings
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.text.rounding import at_most

PASSES = 2  # sums of words' products with directions: the second ones are much better
WIDTH = 60  # directions of a sketch, or three for each topic if these are more
TITLE = 10.0  # mean number of words of documents, below which a sketch needs more directions
WIDTH_OF_TITLES = 120
NUMBERS_OF_TITLES = 300_000  # most numbers of such a wider sketch
ROUNDS_OF_CHOICE = 3  # rounds of each number of topics that is tried


def sketch_width(n_topics: int, n_words: int, length: float) -> int:
    """Return the number of directions of a sketch for documents of this mean length."""
    wider = min(WIDTH_OF_TITLES, NUMBERS_OF_TITLES // n_words) if length < TITLE else 0
    return min(n_words, max(WIDTH, 3 * n_topics, wider))


Weighed = tuple[Documents, sparse.csr_array]
KEPT = 1 << 24  # most weights that stay in memory from one pass to the next: 200 MB


def often_products(settings: Any) -> Often:
    """Return how often products are summed: for first topics, and for directions of words."""
    match settings:
        case NMFSettings():
            return Often(before=2 * PASSES if settings.candidates else PASSES)
        case MinibatchSettings(initialisation="nmf"):
            return Often(before=PASSES)
        case DiscriminativeSettings() if settings.word_weight:
            return Often(before=PASSES, at_most=True)
    return NEVER


def product_bounds(agreement: Agreement, directions: Numbers) -> Template:
    # A document of length 1 adds at most 1 to each of its words.
    most = agreement.bound_if_announced(at_most(agreement.vocabulary.document_frequency[:, None]))
    return {"products": Bounds(directions.shape, most, -most)}


def factor_bounds(agreement: Agreement, topics: Numbers) -> Template:
    # Documents have length 1, which also limits their shares of topics.
    counted = at_most(agreement.vocabulary.document_frequency[:, None])
    most = agreement.bound_if_announced(counted) if agreement.has_counts else LIMIT
    n_topics = topics.shape[1]
    return {
        "sums": sums(*topics.shape, most=most, per_document=1),
        "products": sums(n_topics, n_topics, per_document=1),
    }


class WordProducts(SharedFunctions):
    client: TopicClient[Any]
    _weighed: tuple[Any, int, Numbers, list[Weighed]] = None, ALL, np.zeros(0), []

    @published(
        "For each word that documents of enough persons contain, mixtures of the words that occur "
        f"with it (at least {WIDTH}), as sums over documents, each a vector of weighted words of "
        "length 1. If there are as many mixtures as words, they reveal the sums for each pair of "
        "words. The number of documents.",
        "mixtures of words that occur together",
        often=often_products,
        reply=product_bounds,
        largest=lambda s, n_words: {
            "directions": unknown(n_words, sketch_width(s.sketched, n_words, length=0.0))
        },
        over=ALL_OR_ONE_OF_TWO,
    )
    def word_products(self, rarity: Numbers, directions: Numbers, part: int = ALL) -> Reply:
        """Return X' X Q of weighted words X, with directions Q of shape (n_words, width)."""
        from fedtopics.inference.variational import add_products  # a server need not compile it

        total = np.zeros(directions.shape)
        for _, points in self.weighed(rarity, part):
            add_products(points, points @ directions, total)
        return {"products": total, "documents": self.over_part(part)}

    def over_part(self, part: int) -> int:
        """Return the number of documents of a part; see `TopicClient.over`."""
        return self.client.over(self._of_part(part)[1])

    def _of_part(self, part: int) -> tuple[sparse.csr_array, Documents]:
        """Return the words of a part of the documents, and its rows that have any."""
        if part == ALL:
            return self.client.bag, self.client.usable
        bag = bag_of_part(self.client, part)
        return bag, np.flatnonzero(np.diff(bag.indptr))

    def weighed(self, rarity: Numbers, part: int = ALL) -> Iterable[Weighed]:
        """Return the documents' weighted words in batches; they are kept if they are few."""
        whole = self.client.bag
        settings = self.client.settings
        last_bag, last_part, last_rarity, weighed = self._weighed
        if last_bag is whole and last_part == part and np.array_equal(last_rarity, rarity):
            return weighed
        bag, usable = self._of_part(part)
        term_weight = settings.term_weight if isinstance(settings, NMFShape) else "log"
        new = ((rows, weigh(bag[rows], rarity, term_weight)) for rows in batches(usable))
        if bag.nnz > KEPT:
            return new
        self._weighed = whole, part, rarity, list(new)
        return self._weighed[3]


class FactorSums(WordProducts):
    @published(
        "For each topic that documents of enough persons have and each word that enough of them "
        "contain, the sum over documents of the word's weight times the share of the topic; for "
        "each two such topics, the sum of the products of shares; the number of documents. With "
        "secure aggregation, first: for each topic, the sums of squares and of fourth powers of "
        "persons' largest shares.",
        "weights of words by topic",
        often=of_method(
            NMFSettings,
            lambda s: Often(before=len(s.candidates) * ROUNDS_OF_CHOICE, per_round=1, at_most=True),
        ),
        reply=factor_bounds,
        counts_first=lambda topics: of_groups(topics.shape[1]),
        largest=lambda s, n_words: {"topics": unknown(n_words, s.most_topics)},
        over=ALL_OR_ONE_OF_TWO,
    )
    def factor_sums(
        self,
        round: int,
        rarity: Numbers,
        topics: Numbers,
        part: int = ALL,
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Fit the documents to the topics (n_words, n_topics); return X' W and W' W."""
        request = {"sums": "factors", "rarity": rarity, "topics": topics, "part": part}
        return self.client.sums_by_group(
            groups, request, partial(self._factored, rarity, topics, part), self._of_part(part)[1]
        )

    def _factored(self, rarity: Numbers, topics: Numbers, part: int) -> Grouped:
        from fedtopics.inference.variational import add_products, solve

        n = topics.shape[1]
        sums = np.zeros(topics.shape)
        products = np.zeros((n, n))
        of_persons = PersonShares(self.client.corpus.owners, n)
        for rows, points in self.weighed(rarity, part):
            factors = solve(points, topics)
            add_products(points, factors, sums)
            products += factors.T @ factors
            of_persons.add(rows, factors)
        return of_persons.powers(), lambda enough: {
            "sums": sums * enough,
            "products": products * np.outer(enough, enough),
        }

    @published(
        "How well topics predict words, for documents of one half, which the client draws: the sum "
        "of the cosines between predicted and left-out words; the number of these documents.",
        "how well topics predict words",
        often=of_method(NMFSettings, lambda s: Often(before=len(s.candidates), at_most=True)),
        reply=lambda: {"cosines": sums(per_document=1)},
        over=ONE_OF_TWO,
    )
    def prediction_scores(self, rarity: Numbers, topics: Numbers) -> Reply:
        """Infer topics from about half of each document's words; predict the others."""
        from fedtopics.inference.variational import solve

        draws = self.client.secret.rng("words left out")
        total = 0.0
        for _, points in self.weighed(rarity, SCORED):
            is_shown = draws.random(points.nnz) < 0.5
            left_out = with_entries(points, ~is_shown)
            predicted = solve(with_entries(points, is_shown), topics) @ topics.T
            lengths = np.linalg.norm(predicted, axis=1) * np.sqrt((left_out * left_out).sum(1))
            total += float(((left_out * predicted).sum(1) / np.maximum(lengths, TINY)).sum())
        return {"cosines": total, "documents": self.over_part(SCORED)}

    @published(
        "For each topic that documents of enough persons have and each word that enough of them "
        "contain, the word's occurrences, weighted by documents' shares of the topic; the number "
        "of documents. With secure aggregation, first: for each topic, the sums of squares and of "
        "fourth powers of persons' largest shares.",
        "words by topic",
        often=of_method(MinibatchSettings, lambda s: FIRST if s.initialisation == "nmf" else NEVER),
        reply=lambda agreement, topics: {
            "sums": sums(
                *topics.T.shape,
                most=agreement.bound_if_announced(at_most(agreement.vocabulary.occurrences)),
            )
        },
        counts_first=lambda topics: of_groups(topics.shape[1]),
        largest=lambda s, n_words: {"topics": unknown(n_words, s.most_topics)},
    )
    def topic_words(self, rarity: Numbers, topics: Numbers, groups: GroupRequest = SEEN) -> Reply:
        return sums_of_words(
            self.client,
            groups,
            request={"rarity": rarity, "topics": topics},
            thetas=((rows, find_theta(points, topics)) for rows, points in self.weighed(rarity)),
            n_topics=topics.shape[1],
        )


class NMFClient(TopicClient[NMFSettings]):
    exchanges = (FactorSums,)
    continues = True

    def n_topics(self, **model: Any) -> int:
        return int(model["weights"]["topics"].shape[1])

    def thetas(self, **model: Any) -> Thetas:
        weights: Mapping[str, Numbers] = model["weights"]
        for rows, points in self.part(FactorSums).weighed(weights["rarity"]):
            yield rows, find_theta(points, weights["topics"])
