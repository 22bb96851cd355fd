"""The client side of NMF: sums of the client's weighted words by topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator
from scipy import sparse

from fedtopics.contract.interfaces import SharedFunctions, published
from fedtopics.inference.nmf import NMFShape, find_theta, weigh
from fedtopics.inference.vectors import TINY, Numbers
from fedtopics.methods.core.client import Documents, TopicClient, batches
from fedtopics.methods.core.final_model import ALL, SCORED, bag_of_part, sums_of_words
from fedtopics.methods.core.groups import SEEN, Enough, Grouped, GroupRequest, Thetas, enough_have
from fedtopics.methods.core.settings import ChoosesNumber, TopicSettings, check_seeds
from fedtopics.methods.nmf.factorisation import PASSES, ROUNDS_BEFORE


class NMFSettings(ChoosesNumber, TopicSettings, NMFShape):
    name: Literal["nmf"] = Field("nmf", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(40, ge=1, description="maximum number of rounds")
    tolerance: float = Field(
        0.0,
        ge=0,
        description="stop when the topics change by less than this, relative to their norm",
    )
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (),
        description="words with which the first topics begin and to which they stay near: "
        '[["fever", "cough"]]',
    )
    strength: float = Field(
        0.01,
        ge=0,
        le=1,
        description="how strongly a topic is kept near its seed_topics: the weight of synthetic "
        "documents with only these words, as a share of all documents",
    )

    @model_validator(mode="after")
    def _seeds_fit(self) -> NMFSettings:
        if self.seed_topics and self.candidates:
            raise ValueError("seed_topics need a fixed number of topics; set n_components")
        check_seeds(self.seed_topics, self.n_components)
        return self


CALLS_OF_START = {
    "word_products": f"{PASSES} times, before the first round",
    "signs": "once, before the first round",
}
CALLS_BEFORE = CALLS_OF_START | {
    "factor_sums": f"{ROUNDS_BEFORE} times, before the first round",
    "topic_words": "once, before the first round",
}


Weighed = tuple[Documents, sparse.csr_array]
KEPT = 1 << 24  # most weights that stay in memory from one pass to the next: 200 MB


class WordProducts(SharedFunctions):
    client: TopicClient[Any]
    _weighed: tuple[Any, int, Numbers, list[Weighed]] = None, ALL, np.zeros(0), []

    @published(
        "For each word that enough of the documents contain, mixtures of the words that occur with "
        "it (twenty more than there are topics or directions), as sums over documents, each a "
        "vector of weighted words of length 1. The number of documents."
    )
    def word_products(
        self, vocabulary: str, rarity: Numbers, directions: Numbers, part: int = ALL
    ) -> dict[str, Any]:
        """Return X' X Q of weighted words X, with directions Q of shape (n_words, width)."""
        from fedtopics.inference.variational import add_products  # a server need not compile it

        self.client.check(vocabulary)
        total = np.zeros(directions.shape)
        n = 0
        for rows, points in self.weighed(rarity, part):
            add_products(points, points @ directions, total)
            n += len(rows)
        return {"products": total, "documents": n}

    def weighed(self, rarity: Numbers, part: int = ALL) -> Iterable[Weighed]:
        """Return the documents' weighted words in batches; they are kept if they are few."""
        whole = self.client.bag
        settings = self.client.settings
        last_bag, last_part, last_rarity, weighed = self._weighed
        if last_bag is whole and last_part == part and np.array_equal(last_rarity, rarity):
            return weighed
        bag = whole if part == ALL else bag_of_part(self.client, part)
        usable = self.client.usable if part == ALL else np.flatnonzero(np.diff(bag.indptr))
        term_weight = settings.term_weight if isinstance(settings, NMFShape) else "log"
        new = ((rows, weigh(bag[rows], rarity, term_weight)) for rows in batches(usable))
        if bag.nnz > KEPT:
            return new
        self._weighed = whole, part, rarity, list(new)
        return self._weighed[3]


class FactorSums(WordProducts):
    @published("For each topic, two sums of squares over documents; the number of documents.")
    def signs(
        self, vocabulary: str, rarity: Numbers, directions: Numbers, part: int = ALL
    ) -> dict[str, Any]:
        """Sum the squares of the positive and of the negative parts of X V, for each direction."""
        self.client.check(vocabulary)
        squares = np.zeros((2, directions.shape[1]))
        n = 0
        for rows, points in self.weighed(rarity, part):
            lengths = points @ directions
            squares[0] += np.square(np.maximum(lengths, 0)).sum(0)
            squares[1] += np.square(np.minimum(lengths, 0)).sum(0)
            n += len(rows)
        return {"squares": squares, "documents": n}

    @published(
        "For each topic that enough of the documents have and each word that enough of them "
        "contain, the sum over documents of the word's weight times the share of the topic; for "
        "each two such topics, the sum of the products of shares; the number of documents. With "
        "secure aggregation, first: for each topic, the sums of shares and of squared shares."
    )
    def factor_sums(
        self,
        vocabulary: str,
        round: int,
        rarity: Numbers,
        topics: Numbers,
        part: int = ALL,
        groups: GroupRequest = SEEN,
    ) -> dict[str, Any]:
        """Fit the documents to the topics (n_words, n_topics); return X' W and W' W."""
        self.client.check(vocabulary)
        request = {"sums": "factors", "rarity": rarity, "topics": topics, "part": part}
        compute = partial(self._factored, rarity, topics, part)
        reply = self.client.guard.sums(groups, request, enough_have, compute)
        return reply | {"documents": sum(len(rows) for rows, _ in self.weighed(rarity, part))}

    def _factored(self, rarity: Numbers, topics: Numbers, part: int) -> Grouped:
        from fedtopics.inference.variational import add_products, solve

        n = topics.shape[1]
        sums = np.zeros(topics.shape)
        products = np.zeros((n, n))
        shares = np.zeros(n)
        for _, points in self.weighed(rarity, part):
            factors = solve(points, topics)
            add_products(points, factors, sums)
            products += factors.T @ factors
            shares += factors.sum(0)

        def summed(enough: Enough) -> dict[str, Any]:
            return {"sums": sums * enough, "products": products * np.outer(enough, enough)}

        return {"shares": shares, "squares": np.diag(products)}, summed

    @published(
        "How well topics predict words, for documents of one half, which the client draws: the sum "
        "of the cosines between predicted and left-out words; the number of these documents."
    )
    def prediction(self, vocabulary: str, rarity: Numbers, topics: Numbers) -> dict[str, Any]:
        """Infer topics from about half of each document's words; predict the others."""
        from fedtopics.inference.variational import solve

        self.client.check(vocabulary)
        draws = self.client.secret.rng("words left out")
        total = 0.0
        n = 0
        for rows, points in self.weighed(rarity, SCORED):
            is_shown = draws.random(points.nnz) < 0.5
            shown = points.copy()
            left_out = points.copy()
            for words, mask in ((shown, is_shown), (left_out, ~is_shown)):
                words.data *= mask
                words.eliminate_zeros()
            predicted = solve(shown, topics) @ topics.T
            lengths = np.linalg.norm(predicted, axis=1) * np.sqrt((left_out * left_out).sum(1))
            total += float(((left_out * predicted).sum(1) / np.maximum(lengths, TINY)).sum())
            n += len(rows)
        return {"cosines": total, "documents": n}

    @published(
        "For each topic that enough of the documents have and each word that enough of them "
        "contain, the word's occurrences, weighted by documents' shares of the topic; the number "
        "of documents. With secure aggregation, first: for each topic, the sums of shares and of "
        "squared shares."
    )
    def topic_words(
        self, vocabulary: str, rarity: Numbers, topics: Numbers, groups: GroupRequest = SEEN
    ) -> dict[str, Any]:
        self.client.check(vocabulary)
        thetas = ((rows, find_theta(points, topics)) for rows, points in self.weighed(rarity))
        request = {"rarity": rarity, "topics": topics}
        return sums_of_words(
            self.client, groups, request=request, thetas=thetas, n_topics=topics.shape[1]
        )


class NMFClient(TopicClient[NMFSettings]):
    exchanges = (FactorSums,)
    continues = True

    @staticmethod
    def rounds(settings: NMFSettings) -> dict[str, str]:
        calls = CALLS_OF_START | {"factor_sums": "each round"}
        if n := len(settings.candidates):
            calls["word_products"] = f"{2 * PASSES} times, before the first round"
            calls["signs"] = calls["prediction"] = f"at most {n + 1} times, before the first round"
            calls["factor_sums"] += f", and before them at most {n * ROUNDS_BEFORE} times"
        return calls

    def n_topics(self, **model: Any) -> int:
        return int(model["weights"]["topics"].shape[1])

    def thetas(self, **model: Any) -> Thetas:
        weights: Mapping[str, Numbers] = model["weights"]
        for rows, points in self.part(FactorSums).weighed(weights["rarity"]):
            yield rows, find_theta(points, weights["topics"])
