"""The client's half of topics with a bound for each document: noisy sums, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, PolicyError, StudyError
from fedtopics.inference.clusters import centred
from fedtopics.inference.nmf import weigh
from fedtopics.inference.points import (
    TINY,
    Discriminant,
    Numbers,
    blocks,
    sums_by_label,
    weighted_sums,
)
from fedtopics.methods.bounded import COUNT, Mode
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.plan import Plan, Site
from fedtopics.methods.private import contributions, sketches
from fedtopics.methods.private.units import counted_once
from fedtopics.methods.settings import TopicSettings
from fedtopics.privacy import Budget
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings
from fedtopics.text.vocabulary import fingerprint

NOISE = "with this client's part of the noise"


class PrivateClient(TopicClient[TopicSettings]):
    """The client's half, of all methods that have a recipe in a study with [privacy].

    Raise StudyError for a study that caps repeats: what a document adds depended on others.
    Embeddings that come with documents are taken as they are; each has to be of its text alone.
    """

    def __init__(self, plan: Plan[TopicSettings], site: Site) -> None:
        self.recipe = plan.settings.recipe
        super().__init__(plan, site)
        if plan.text.repeats == "cap":
            raise StudyError(
                'repeats = "cap" looks for what documents have in common, and a bound for each '
                'document needs that it counts by itself; leave it at "keep".'
            )
        self._privacy = plan.privacy
        rows, self._weights = counted_once(site.corpus, plan.privacy)
        if len(rows) < len(site.corpus):
            self._corpus = site.corpus.take(rows)
        self.summed = len(rows)
        self._mode: Mode | None = None

    @classmethod
    def schedule(cls, settings: TopicSettings) -> dict[str, str]:
        return {"extent": "once"} | cls.rounds(settings)

    @staticmethod
    def rounds(settings: TopicSettings) -> dict[str, str]:
        mode, of = settings.recipe.mode, settings.recipe.rounds_of
        if mode != "auto":
            return _calls(mode, _times(of(mode)))
        calls = _calls("both", _times(of("both"))) | _calls("words", "")
        alone = dict.fromkeys(("occurrences", "sketch"), "once, with words alone")
        return calls | alone | {"topic_words": "at most twice, with words alone once"}

    @leaves(f"Whether all documents have embeddings, and their number {NOISE}.")
    def extent(self) -> dict[str, Any]:
        """Count what the mode is chosen by; as much of the budget goes to it in each mode."""
        budget = Budget(self._privacy, {"documents": COUNT})
        number = self.noise.added(self._weights.sum(), budget.sigma("documents"), "documents")
        has = self._corpus.embeddings is not None
        return {"embedded": int(has), "clients": 1, "size": float(number)}

    def take(self, mode: Mode, words: list[str]) -> None:
        """Take up the mode and the public words; told, nothing leaves.

        StudyError if it is another mode than before: each has the whole of the budget.
        """
        if self._mode not in (None, mode):
            raise StudyError(
                f"Client {self.name!r} was to see documents by {self._mode} and is to see them by "
                f"{mode} now; begin a new run."
            )
        self._mode = mode
        self._budget = Budget(self._privacy, self.recipe.shares(mode))
        self._words = words
        self._fingerprint = fingerprint(words)
        self._columns = {word: i for i, word in enumerate(words)}
        self.bag = self.count(self._columns).astype(np.float64)

    @leaves(
        "For each public word, in how many documents it is among the nearest ones to the "
        "document's embedding; the sum of embeddings, and of their outer products. A document "
        f"counts as vectors of length 1; {NOISE}."
    )
    def key_words(self, vocabulary: str) -> dict[str, Any]:
        """Sum the documents' nearest words, and their embeddings."""
        self.check(vocabulary)
        mean, products = contributions.moments(self.embeddings, self._weights)
        return {
            "words": self._noisy("words", self._nearest.sum(0)),
            "mean": self._noisy("mean", mean),
            "products": self._noisy("products", products),
        }

    @leaves("What the embedding model makes of public words; nothing of a document.")
    def word_vectors(self, vocabulary: str, columns: NDArray[np.int64]) -> dict[str, Any]:
        """Return the vectors of words, of which all participants take the mean.

        So they have the same to the last bit, and a server needs no embedding model.
        """
        self.check(vocabulary)
        return {"vectors": self._vectors[columns], "clients": 1}

    @leaves(
        "For each cluster the sum of its documents' embeddings, less a common origin and of "
        f"length 1; {NOISE}."
    )
    def cluster_sums(
        self, vocabulary: str, number: int, origin: Numbers, centres: Numbers
    ) -> dict[str, Any]:
        """Sum the points (n_clusters, n_dimensions) that are nearest to each centre."""
        self._look(vocabulary, (), origin, centres)
        points, nearest = contributions.placed(self.embeddings, origin, centres)
        points *= self._weights[:, None]
        sums, _ = sums_by_label(points, nearest, len(centres))
        return {"sums": self._noisy(f"clusters {number}", sums)}

    @leaves(
        "For each word and cluster, how often the word is among the nearest ones of the cluster's "
        f"documents, each of which counts as a vector of length 1; {NOISE}."
    )
    def cluster_words(
        self, vocabulary: str, origin: Numbers, centres: Numbers, columns: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Sum the nearest words of documents by cluster, (n_words, n_clusters)."""
        self._look(vocabulary, columns, origin, centres)
        _, nearest = contributions.placed(self.embeddings, origin, centres)
        sums, _ = sums_by_label(self._nearest[:, columns], nearest, len(centres))
        return {"counts": self._noisy("histogram", sums.T)}

    @leaves(
        "For each public word, in how many documents it is; a document counts as a vector of "
        f"length 1; {NOISE}."
    )
    def occurrences(self, vocabulary: str) -> dict[str, Any]:
        """Count the documents with each word."""
        self.check(vocabulary)
        return {"words": self._noisy("words", contributions.occurrences(self.bag, self._weights))}

    @leaves(
        "Random mixtures of which words occur together; a document counts as a matrix of length 1 "
        f"at most; {NOISE}."
    )
    def sketch(
        self, vocabulary: str, columns: NDArray[np.int64], rarity: Numbers
    ) -> dict[str, Any]:
        """Sum sketches of which words of documents occur together, the rare ones counting more."""
        self._look(vocabulary, columns, rarity)
        projection = sketches.projection(len(columns), self._public_seed)
        bag = self._of(columns)
        found = contributions.sketched(bag, rarity, projection, self._weights)
        return {"sketch": self._noisy("sketch", found)}

    @leaves(
        "For each word and topic, how much of the word in documents is of the topic, by their "
        f"words; a document counts as a matrix of length 1; {NOISE}."
    )
    def topic_words(
        self, vocabulary: str, number: int, columns: NDArray[np.int64], topics: Numbers
    ) -> dict[str, Any]:
        """Share the words of documents among topics (n_words, n_topics), and sum them."""
        self._look(vocabulary, columns, topics, above=0.0)
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
        self._look(vocabulary, columns, rarity, topics)
        rarity = rarity / max(np.abs(rarity).max(initial=0), TINY)  # of which the scale is nothing
        points = weigh(self._of(columns), rarity, self.recipe.own.term_weight)
        sums, products = contributions.factored(points, topics, self._weights)
        return {
            "factors": self._noisy(f"factors {number}", sums),
            "products": self._noisy(f"products {number}", products),
        }

    @leaves(
        "For each cluster the sum of documents' embeddings by their shares of it, less a common "
        "origin and of length 1, and the sum of these shares, of which a document has 1 in all; "
        f"{NOISE}."
    )
    def class_sums(
        self, vocabulary: str, number: int, origin: Numbers, projection: Numbers,
        directions: Numbers, bias: Numbers,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the points (n_clusters, n_dimensions) by their memberships, and these."""
        points, members = self._members(vocabulary, (), origin, projection, directions, bias)
        members *= self._weights[:, None]
        sums, sizes = weighted_sums(points, blocks(members), len(bias))
        return {
            "classes": self._noisy(f"classes {number}", sums),
            "sizes": self._noisy(f"sizes {number}", sizes),
        }

    @leaves(
        "For each word and cluster, how often the word is among the nearest ones of documents, by "
        f"their shares of the cluster; a document counts as a matrix of length 1 at most; {NOISE}."
    )
    def class_words(
        self, vocabulary: str, columns: NDArray[np.int64], origin: Numbers, projection: Numbers,
        directions: Numbers, bias: Numbers,
    ) -> dict[str, Any]:  # fmt: skip
        """Sum the nearest words of documents by their memberships, (n_words, n_clusters)."""
        _, members = self._members(vocabulary, columns, origin, projection, directions, bias)
        return {"counts": self._noisy("histogram", self._nearest[:, columns].T @ members)}

    def _members(
        self, vocabulary: str, columns: Any, origin: Numbers, projection: Numbers,
        directions: Numbers, bias: Numbers,
    ) -> tuple[NDArray[np.float32], Numbers]:  # fmt: skip
        """Return embeddings less the origin, of length 1, and their shares of clusters."""
        self._look(vocabulary, columns, origin, projection, directions, bias)
        points = centred(self.embeddings, origin)
        of = Discriminant(projection, directions, bias, self.recipe.own.temperature)
        return points, contributions.memberships(points, of)

    @property
    def embeddings(self) -> NDArray[np.float32]:
        """The documents' embeddings; DataError if they have none."""
        embeddings: NDArray[np.float32] | None = self._corpus.embeddings
        if embeddings is None:
            raise DataError("the documents have no embeddings, by which they are clustered.")
        return embeddings

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        """What the embedding model makes of each public word."""
        return _vectors_of(tuple(self._words), self.recipe.embedding, self.site.embedding_model)

    @cached_property
    def _nearest(self) -> sparse.csr_array:
        most = self.recipe.nearest_words
        rows = contributions.nearest_words(self.bag, self.embeddings, self._vectors, most)
        return contributions.weighted(rows, self._weights)

    def _look(
        self, vocabulary: str, columns: Any, *numbers: Numbers, above: float = -np.inf
    ) -> None:
        """Refuse what a document could count more than once in, or could make no number."""
        self.check(vocabulary)
        usual = (((each > above) & (each < np.inf)).all() for each in numbers)
        if len(np.unique(columns)) < len(columns) or not all(usual):
            raise PolicyError(
                f"Client {self.name!r} was asked for sums in which a document could count more "
                "than once, as a word is named twice or numbers are none; look into what the "
                "others run."
            )

    def _of(self, columns: NDArray[np.int64]) -> sparse.csr_array:
        """Return the bag of some words, each in its column."""
        bag = sparse.csr_array(self.bag[:, columns])
        bag.sort_indices()
        return bag

    def _noisy(self, release: str, values: Any) -> Numbers:
        return self.noise.added(values, self._budget.sigma(release), release)

    def thetas(self, **model: Any) -> Iterator[tuple[Documents, Numbers]]:
        """Infer nothing: no exchange of this method asks for it."""
        return iter(())


def _calls(mode: Mode, times: str) -> dict[str, str]:
    """Return how often which function is called in a mode."""
    begun = dict.fromkeys(("key_words", "word_vectors"), "once")
    clusters = begun | {"cluster_sums": times, "cluster_words": "once"}
    words = dict.fromkeys(("occurrences", "sketch"), "once")
    of_mode: dict[Mode, dict[str, str]] = {
        "embeddings": clusters,
        "both": clusters | {"topic_words": times},
        "words": words | {"topic_words": times},
        "factors": words | {"noisy_factors": times},
        "classes": begun | {"class_sums": times, "class_words": "once"},
    }
    return of_mode[mode]


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


@lru_cache(maxsize=1)  # public, and the same for all clients of a process
def _vectors_of(
    words: tuple[str, ...], embedding: EmbeddingSettings, model: str | None
) -> NDArray[np.float32]:
    # In a cache beside that of documents, where a document of one word has left other bits.
    folder = cache_folder()
    return document_embeddings(
        Corpus.of(list(words)), embedding, embedding_model=model,
        cache=folder and folder / "words",
    )  # fmt: skip
