"""The client's half of topics with a bound for each document: noisy sums, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.nmf import weigh
from fedtopics.inference.points import TINY, Numbers
from fedtopics.methods.client import leaves
from fedtopics.methods.private import contributions, sketches
from fedtopics.methods.private.by_embeddings import ByEmbeddings
from fedtopics.methods.private.noisy_client import NOISE


class PrivateClient(ByEmbeddings):
    """The client's half, of all methods that have a recipe in a study with [privacy]."""

    @leaves(
        "For each public word, in how many documents it is; a document counts as a vector of "
        f"length 1; {NOISE}."
    )
    def occurrences(self, vocabulary: str) -> dict[str, Any]:
        """Count the documents with each word."""
        self._look("occurrences", vocabulary, ())
        return {"words": self._noisy("words", contributions.occurrences(self.bag, self._weights))}

    @leaves(
        "Random mixtures of which words occur together; a document counts as a matrix of length 1 "
        f"at most; {NOISE}."
    )
    def sketch(
        self, vocabulary: str, columns: NDArray[np.int64], rarity: Numbers
    ) -> dict[str, Any]:
        """Sum sketches of which words of documents occur together, the rare ones counting more."""
        self._look("sketch", vocabulary, columns, (rarity, columns.shape))
        projection = sketches.projection(len(columns), self._public_seed)
        bag = self._of(columns)
        found = contributions.sketched(bag, _relative(rarity), projection, self._weights)
        return {"sketch": self._noisy("sketch", found)}

    @leaves(
        "For each word and topic, how much of the word in documents is of the topic, by their "
        f"words; a document counts as a matrix of length 1; {NOISE}."
    )
    def topic_words(
        self, vocabulary: str, number: int, columns: NDArray[np.int64], topics: Numbers
    ) -> dict[str, Any]:
        """Share the words of documents among topics (n_words, n_topics), and sum them."""
        of_words = topics, (len(columns), self.recipe.n_components)
        self._look("topic_words", vocabulary, columns, of_words, number=number, above=0.0)
        bag, alpha = self._of(columns), self.recipe.alpha
        counts = contributions.expected_words(bag, topics, alpha, self._weights)
        return {"counts": self._noisy(f"topics {number}", counts)}

    @leaves(
        "For each word and topic, the weights of the word in documents by how much of the topic "
        "they have, and for two topics how much documents have of both; a document counts as two "
        f"matrices of length 1 at most; {NOISE}."
    )
    def noisy_factors(
        self, vocabulary: str, number: int, columns: NDArray[np.int64], rarity: Numbers,
        topics: Numbers,
    ) -> dict[str, Any]:  # fmt: skip
        """Fit documents by topics (n_words, n_topics); sum X' W, and W' W as `packed`."""
        of_words = topics, (len(columns), self.recipe.n_components)
        self._look(
            "noisy_factors", vocabulary, columns, (rarity, columns.shape), of_words, number=number
        )
        points = weigh(self._of(columns), _relative(rarity), self.recipe.own.term_weight)
        sums, products = contributions.factored(points, topics, self._weights)
        return {
            "factors": self._noisy(f"factors {number}", sums),
            "products": self._noisy(f"products {number}", products),
        }


def _relative(rarity: Numbers) -> Numbers:
    """Return how rare words are beside the rarest: the scale is nothing, and could be too large."""
    return np.asarray(rarity / max(np.abs(rarity).max(initial=0), TINY))
