"""Federated NMF at each client: sums of its documents' weighted words, by directions and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions
from fedtopics.contract.published import (
    EACH_ROUND,
    FIRST,
    NEVER,
    Often,
    Over,
    Reply,
    of_method,
    published,
    unknown,
)
from fedtopics.contract.replies import LIMIT, Bounds, Template, counts, of_groups, sums
from fedtopics.inference.nmf import NMFShape, find_theta, weigh
from fedtopics.inference.vectors import Numbers, with_entries
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import DIVISIONS, THIRDS, Documents, TopicClient, batches
from fedtopics.methods.core.final_model import sums_of_words
from fedtopics.methods.core.groups import (
    SEEN,
    Grouped,
    GroupRequest,
    PersonShares,
    Thetas,
    as_many,
)
from fedtopics.methods.core.settings import MinibatchSettings
from fedtopics.methods.nmf.settings import NMFSettings
from fedtopics.text.rounding import at_most

PASSES = 2  # sums of words' products with directions: the second ones are much better
WIDTH = 60  # directions of a sketch, or three for each topic if these are more
TITLE = 10.0  # mean number of words of documents, below which a sketch needs more directions
WIDTH_OF_TITLES = 120
NUMBERS_OF_TITLES = 300_000  # most numbers of such a wider sketch
MOST_WORDS = 2000  # the most frequent ones, by which the number of topics is chosen
LEAST_SHARE = 1e-6  # of a topic, from which a part of a document names it
READINGS = 2  # of a document in each division, in each table
KINDS = 2  # of tables: the same topics, or those of two thirds, read both parts of the words
COMPANY = 0  # the cell of persons drawn by lot, who hide how many are in cells that are left out
A_THIRD = Over(
    "each third of the documents, in three random divisions",
    fewest=lambda agreement, _: agreement.n_persons(THIRDS),
)


def sketch_width(n_topics: int, n_words: int, length: float) -> int:
    """Return the number of directions of a sketch for documents of this mean length."""
    wider = min(WIDTH_OF_TITLES, NUMBERS_OF_TITLES // n_words) if length < TITLE else 0
    return min(n_words, max(WIDTH, 3 * n_topics, wider))


Weighed = tuple[Documents, sparse.csr_array]
KEPT = 1 << 24  # most weights that stay in memory from one pass to the next: 200 MB


def often_products(settings: Any) -> Often:
    """Return how often products are summed: for first topics, and for directions of words."""
    match settings:
        case NMFSettings() | MinibatchSettings(initialisation="nmf"):
            return Often(before=PASSES)
        case DiscriminativeSettings() if settings.word_weight:
            return Often(before=PASSES, at_most=True)
    return NEVER


def product_bounds(agreement: Agreement, directions: Numbers) -> Template:
    # A document of length 1 adds at most 1 to each of its words.
    counted = agreement.vocabulary.document_frequency[: directions.shape[-2], None]
    most = agreement.bound_if_announced(at_most(counted))
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


def n_cells(most: int) -> int:
    """Return the number of cells of a table for so many topics, with `COMPANY`; see `cell_of`."""
    return 1 + (most + 1) * (most + 2) // 2


def cell_of(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the cell of each pair of topics, in any order; "none" is one more."""
    low, high = np.sort(np.stack([first, second]), axis=0)
    return np.asarray(1 + high * (high + 1) // 2 + low)


class WordProducts(SharedFunctions):
    client: TopicClient[Any]
    _weighed: tuple[Any, Numbers, list[Weighed]] = None, np.zeros(0), []

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
    )
    def word_products(self, rarity: Numbers, directions: Numbers) -> Reply:
        """Return X' X Q of weighted words X, with directions Q of shape (n_words, width)."""
        from fedtopics.inference.variational import add_products  # a server need not compile it

        total = np.zeros(directions.shape)
        for _, points in self.weighed(rarity):
            add_products(points, points @ directions, total)
        return {"products": total, "documents": self.client.over(self.client.usable)}

    def weighed(self, rarity: Numbers) -> Iterable[Weighed]:
        """Return the documents' weighted words in batches; they are kept if they are few."""
        bag = self.client.bag
        settings = self.client.settings
        last_bag, last_rarity, weighed = self._weighed
        if last_bag is bag and np.array_equal(last_rarity, rarity):
            return weighed
        term_weight = settings.term_weight if isinstance(settings, NMFShape) else "log"
        new = (
            (rows, weigh(bag[rows], rarity, term_weight)) for rows in batches(self.client.usable)
        )
        if bag.nnz > KEPT:
            return new
        self._weighed = bag, rarity, list(new)
        return self._weighed[2]


class FactorSums(WordProducts):
    @published(
        "For each topic that documents of enough persons have and each word that enough of them "
        "contain, the sum over documents of the word's weight times the share of the topic; for "
        "each two such topics, the sum of the products of shares; the number of documents. With "
        "secure aggregation, first: for each topic, the sums of squares and of fourth powers of "
        "persons' largest shares.",
        "weights of words by topic",
        often=of_method(NMFSettings, EACH_ROUND),
        reply=factor_bounds,
        counts_first=lambda topics: of_groups(topics.shape[1]),
        largest=lambda s, n_words: {"topics": unknown(n_words, s.most_topics)},
    )
    def factor_sums(
        self,
        round: int,
        rarity: Numbers,
        topics: Numbers,
        groups: GroupRequest = SEEN,
    ) -> Reply:
        """Fit the documents to the topics (n_words, n_topics); return X' W and W' W."""
        request = {"sums": "factors", "rarity": rarity, "topics": topics}
        return self.client.sums_by_group(
            groups, request, partial(self._factored, rarity, topics), self.client.usable
        )

    def _factored(self, rarity: Numbers, topics: Numbers) -> Grouped:
        from fedtopics.inference.variational import add_products, solve

        n = topics.shape[1]
        sums = np.zeros(topics.shape)
        products = np.zeros((n, n))
        of_persons = PersonShares(self.client.corpus.owners, n)
        for rows, points in self.weighed(rarity):
            factors = solve(points, topics)
            add_products(points, factors, sums)
            products += factors.T @ factors
            of_persons.add(rows, factors)
        return of_persons.powers(), lambda enough: {
            "sums": sums * enough,
            "products": products * np.outer(enough, enough),
        }

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


class NumberSums(SharedFunctions):
    client: TopicClient[Any]

    @published(
        "For each third of the documents, in three divisions which the client draws: for each of "
        f"the {MOST_WORDS:,} most frequent words that documents of enough persons contain, "
        "mixtures of the words that occur with it, as sums over the third's documents, each a "
        "vector of weighted words of length 1. Where too few persons of a third have one of two "
        "words, their sum is a third of that over all documents. If there are as many mixtures as "
        "words, they reveal the sums for each pair of words. The number of documents of the "
        "smallest third.",
        "mixtures of words that occur together in thirds of the documents",
        often=of_method(NMFSettings, lambda s: Often(before=PASSES if s.candidates else 0)),
        reply=product_bounds,
        largest=lambda s, n_words: {
            "directions": unknown(
                DIVISIONS * THIRDS,
                min(n_words, MOST_WORDS),
                sketch_width(s.most_topics, min(n_words, MOST_WORDS), length=0.0),
            )
        },
        over=A_THIRD,
    )
    def products_of_thirds(self, rarity: Numbers, directions: Numbers) -> Reply:
        """Return X' X Q of each third's weighted words X; Q: (n_thirds, n_words, width).

        A word is frequent if enough persons of each third of a division have it, or nobody. Pairs
        of frequent words are summed over the third. All other pairs, which may be of few persons
        there, are a third of their sum over all documents: the same for each third, so that
        differences of thirds contain only frequent words.
        """
        from fedtopics.inference.variational import add_products  # a server need not compile it

        client = self.client
        total = np.zeros(directions.shape)
        persons = client.in_thirds[:, :, : directions.shape[1]]
        is_frequent = ((persons == 0) | (persons >= client.rarest)).all(1)
        rows_of_all, rows_of_smallest = self._divided()
        for rows in batches(rows_of_all):
            points = weigh(client.bag[rows][:, : len(rarity)], rarity, client.settings.term_weight)
            for place, (of_third, sums_of_third) in enumerate(zip(directions, total, strict=True)):
                division, third = divmod(place, THIRDS)
                frequent = with_entries(points, is_frequent[division, points.indices])
                # All pairs count a third; for frequent ones, the third's documents count instead.
                more = (client.thirds[division, rows] == third) - 1 / THIRDS
                add_products(points, points @ of_third / THIRDS, sums_of_third)
                add_products(frequent, frequent @ of_third * more[:, None], sums_of_third)
        return {"products": total, "documents": client.over(rows_of_smallest)}

    def _divided(self) -> tuple[Documents, Documents]:
        """Return the documents with words, and those of the smallest third; none if it is small."""
        client = self.client
        divisions = client.thirds[:, client.usable]
        thirds = [client.usable[of == third] for of in divisions for third in range(THIRDS)]
        smallest = min(thirds, key=client.corpus.n_persons)
        if client.corpus.n_persons(smallest) < client.min_persons:
            return smallest[:0], smallest[:0]
        return client.usable, smallest

    @published(
        "For each number of topics that is tried, two tables for each two topics, or none: how "
        "often one part of a document's words names the one and the other part the other. The "
        "topics are those of other thirds of the documents. The client draws the parts. Cells of "
        "few persons are left out, and as many persons or up to twice as many that the client "
        "draws. The number of documents. With secure "
        "aggregation, first: the number of persons in each cell.",
        "how often parts of documents name the same topics",
        often=of_method(NMFSettings, lambda s: FIRST if s.candidates else Often()),
        reply=lambda numbers: {
            "cells": counts(
                KINDS * len(numbers), n_cells(max(numbers)), per_document=READINGS * DIVISIONS
            ),
        },
        counts_first=lambda numbers: {
            "counts": sums(KINDS * len(numbers), n_cells(max(numbers)), per_document=1)
        },
        largest=lambda s, n_words: {"numbers": list(s.candidates)},
        over=A_THIRD,
    )
    def topics_of_parts(
        self, rarity: Numbers, topics: Numbers, numbers: list[int], groups: GroupRequest = SEEN
    ) -> Reply:
        """Read the parts of each document by the topics of both thirds that do not have it.

        `topics` of shape (n_thirds, n_words, sum of numbers) are those of all numbers, side by
        side; the topics of all thirds are in the same order.
        """
        request = {"sums": "parts", "rarity": rarity, "topics": topics, "numbers": numbers}
        rows, _ = self._divided()
        compute = partial(self._read, rows, rarity, topics, numbers)
        return self.client.sums_by_group(groups, request, compute, rows, as_many)

    def _read(
        self, rows: Documents, rarity: Numbers, topics: Numbers, numbers: list[int]
    ) -> Grouped:
        width = n_cells(max(numbers))
        persons = np.zeros((KINDS * len(numbers), width))
        cells = np.zeros(persons.shape, np.int64)
        of_numbers = np.split(topics, np.cumsum(numbers)[:-1], axis=2)
        for number, of_number in enumerate(of_numbers):
            tables = self._named(rows, rarity, of_number, width)
            for table, named in enumerate(tables, start=KINDS * number):
                cells[table] = np.bincount(named % width, minlength=width)
                persons[table] = np.bincount(np.unique(named) % width, minlength=width)
        # The smallest cell that is large enough is company for those that are not.
        persons[:, COMPANY] = np.minimum(persons[:, COMPANY], self.client.min_persons)
        return {"counts": persons}, lambda enough: {"cells": cells * enough}

    def _named(
        self, rows: Documents, rarity: Numbers, topics: Numbers, width: int
    ) -> list[NDArray[np.int64]]:
        """Return, for both tables, the cell of each reading plus `width` times the person."""
        client = self.client
        named: list[list[NDArray[np.int64]]] = [[] for _ in range(KINDS)]
        drawn = self._drawn_company(rows)
        for division, thirds in enumerate(client.thirds[:, rows]):
            draws = client.secret.rng("parts of words", division)
            for third in range(THIRDS):
                others = (division * THIRDS + i for i in range(THIRDS) if i != third)
                readers = [np.ascontiguousarray(topics[other]) for other in others]
                for batch in batches(rows[thirds == third]):
                    bag = client.bag[batch][:, : topics.shape[1]]
                    points = weigh(bag, rarity, client.settings.term_weight)
                    is_first = draws.random(points.nnz) < 0.5
                    parts = with_entries(points, is_first), with_entries(points, ~is_first)
                    whose = np.tile(client.corpus.person_numbers[batch], READINGS)
                    for table, (first, second) in zip(
                        named, _read_twice(parts, readers), strict=True
                    ):
                        cell = cell_of(np.concatenate(first), np.concatenate(second))
                        cell[np.isin(whose, drawn)] = COMPANY
                        table.append(whose * width + cell)
        return [np.concatenate([np.zeros(0, np.int64), *table]) for table in named]

    def _drawn_company(self, rows: Documents) -> NDArray[np.int64]:
        """Draw the persons who are in no cell of topics; nobody if one person may be alone."""
        least = self.client.min_persons
        draws = self.client.secret.rng("company")
        size = int(draws.integers(least, 2 * least + 1)) if least > 1 else 0
        persons = np.unique(self.client.corpus.person_numbers[rows])
        return np.asarray(draws.permutation(persons)[:size])


def _read_twice(
    parts: Sequence[sparse.csr_array], readers: Sequence[Numbers]
) -> Iterator[tuple[Sequence[Numbers], Sequence[Numbers]]]:
    """Yield the topics of first and of second parts: by the same readers, then by different ones.

    A part whose words are in no topic, or only by rounding, names none: one more than the topics.
    """
    from fedtopics.inference.variational import solve

    by_part = []
    for part in parts:
        shares = [solve(part, topics) for topics in readers]
        by_part.append(
            [np.where(of.max(1) > LEAST_SHARE, of.argmax(1), of.shape[1]) for of in shares]
        )
    first, second = by_part
    yield first, second
    yield first, second[::-1]


class NMFClient(TopicClient[NMFSettings]):
    exchanges = (FactorSums, NumberSums)
    continues = True

    def n_topics(self, **model: Any) -> int:
        return int(model["weights"]["topics"].shape[1])

    def thetas(self, **model: Any) -> Thetas:
        weights: Mapping[str, Numbers] = model["weights"]
        for rows, points in self.part(FactorSums).weighed(weights["rarity"]):
            yield rows, find_theta(points, weights["topics"])
