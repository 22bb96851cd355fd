"""What a client computes for NMF: sums of its documents' words by their factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar

import numpy as np
from scipy import sparse

from fedtopics.inference.nmf import find_theta, weigh
from fedtopics.inference.points import Numbers
from fedtopics.methods.core.client import (
    ContinuedClient,
    Documents,
    batches,
    leaves,
    sum_words,
)
from fedtopics.methods.core.groups import SEEN, Enough, Groups, enough_have
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.methods.nmf.factorisation import PASSES, ROUNDS_BEFORE
from fedtopics.methods.nmf.settings import NMFSettings

Settings = TypeVar("Settings", bound=TopicSettings)
CALLS_OF_START = {
    "word_products": f"{PASSES} times, before the first round",
    "signs": "once, before the first round",
}
CALLS_BEFORE = CALLS_OF_START | {
    "factor_sums": f"{ROUNDS_BEFORE} times, before the first round",
    "topic_words": "once, before the first round",
}


class Factoring(ContinuedClient[Settings]):
    """What a client computes of weighted words, for NMF itself or for who starts from it."""

    @leaves(
        "For each word that enough of the documents have, as many mixtures of what stands beside "
        "it as there are topics, and twenty more: sums over documents, whose weighted words have "
        "the length 1; the number of documents."
    )
    def word_products(
        self, vocabulary: str, rarity: Numbers, directions: Numbers
    ) -> dict[str, Any]:
        """Return X' X Q of weighted words X, with directions Q of shape (n_words, width)."""
        from fedtopics.inference.least_squares import add_products  # a server need not compile it

        self.check(vocabulary)
        total = np.zeros(directions.shape)
        for _, points in self.weighed(rarity):
            add_products(points, points @ directions, total)
        return {"products": total, "documents": len(self.usable)}

    @leaves("Two numbers a topic, sums of squares over documents; the number of documents.")
    def signs(self, vocabulary: str, rarity: Numbers, directions: Numbers) -> dict[str, Any]:
        """Sum the squares of what is above and what is below zero in X V, for each direction."""
        self.check(vocabulary)
        squares = np.zeros((2, directions.shape[1]))
        for _, points in self.weighed(rarity):
            found = points @ directions
            squares[0] += np.square(np.maximum(found, 0)).sum(0)
            squares[1] += np.square(np.minimum(found, 0)).sum(0)
        return {"squares": squares, "documents": len(self.usable)}

    @leaves(
        "For each topic that enough of the documents have, and each word that enough of them "
        "have: the sum of the documents' weights of the word by their shares of the topic; for "
        "two such topics the sum of the products of shares; the number of documents. Where sums "
        "are masked, before that: for each topic the sums of the shares and of their squares."
    )
    def factor_sums(
        self, vocabulary: str, round: int, rarity: Numbers, topics: Numbers, groups: Groups = SEEN
    ) -> dict[str, Any]:
        """Fit all documents by the topics (n_words, n_topics); return X' W and W' W."""
        self.check(vocabulary)
        compute = lambda: self._factored(rarity, topics)  # noqa: E731
        given = {"sums": "factors", "rarity": rarity, "topics": topics}
        sums, products, shares = self.guard.once(groups, given, compute)

        def summed(enough: Enough) -> dict[str, Any]:
            return {"sums": sums * enough, "products": products * np.outer(enough, enough)}

        own = {"shares": shares, "squares": np.diag(products)}
        reply = self.guard.reply(groups, enough_have, own, summed)
        return reply | {"documents": len(self.usable)}

    def _factored(self, rarity: Numbers, topics: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        from fedtopics.inference.least_squares import add_products, solve

        n = topics.shape[1]
        sums, products, shares = np.zeros(topics.shape), np.zeros((n, n)), np.zeros(n)
        for _, points in self.weighed(rarity):
            found = solve(points, topics)
            add_products(points, found, sums)
            products += found.T @ found
            shares += found.sum(0)
        return sums, products, shares

    @leaves(
        "For each topic and each word that enough of the documents have: how often it occurs in "
        "the documents of the topic, by their shares of it; the number of documents. Where sums "
        "are masked, before that: for each topic the sums of the shares and of their squares."
    )
    def topic_words(
        self, vocabulary: str, rarity: Numbers, topics: Numbers, groups: Groups = SEEN
    ) -> dict[str, Any]:
        """Sum the words of all documents, weighted by their topics (n_words, n_topics)."""
        self.check(vocabulary)
        thetas = ((rows, find_theta(points, topics)) for rows, points in self.weighed(rarity))
        compute = lambda: sum_words(self.bag, thetas, topics.shape[1])  # noqa: E731
        reply = self.guard.by_topic(groups, {"rarity": rarity, "topics": topics}, compute)
        return reply | {"documents": len(self.usable)}

    def weighed(self, rarity: Numbers) -> Iterator[tuple[Documents, sparse.csr_array]]:
        """Yield documents with a word, some at a time, and their weighted words."""
        for rows in batches(self.usable):
            yield rows, weigh(self.bag[rows], rarity, self.term_weight)

    @property
    def term_weight(self) -> Literal["log", "binary"]:
        """What a word counts in a document; see `NMFShape`."""
        return "log"


class NMFClient(Factoring[NMFSettings]):
    """The client's half: sums of all its documents, each round."""

    @staticmethod
    def rounds(settings: NMFSettings) -> dict[str, str]:
        return CALLS_OF_START | {"factor_sums": "each round"}

    @property
    def term_weight(self) -> Literal["log", "binary"]:
        return self.settings.term_weight

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        weights: Mapping[str, Numbers] = model["weights"]
        for rows, points in self.weighed(weights["rarity"]):
            yield rows, find_theta(points, weights["topics"])
