"""The client's half of topics with a bound for each document: noisy sums, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, PolicyError, StudyError
from fedtopics.inference.points import Numbers, sums_by_label
from fedtopics.methods.client import Documents, TopicClient, leaves
from fedtopics.methods.plan import Plan, Site
from fedtopics.methods.private import contributions, sketches
from fedtopics.methods.private.settings import Mode, PrivateSettings
from fedtopics.methods.private.units import counted_once
from fedtopics.privacy import Budget
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings
from fedtopics.text.vocabulary import fingerprint

NOISE = "with this client's part of the noise"


class PrivateClient(TopicClient[PrivateSettings]):
    """The client's half.

    Raise StudyError for a study that caps repeats: what a document adds depended on others.
    Embeddings that come with documents are taken as they are; each has to be of its text alone.
    """

    def __init__(self, plan: Plan[PrivateSettings], site: Site) -> None:
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
    def schedule(cls, settings: PrivateSettings) -> dict[str, str]:
        return {"extent": "once"} | cls.rounds(settings)

    @staticmethod
    def rounds(settings: PrivateSettings) -> dict[str, str]:
        of_clusters = {
            "key_words": "once", "word_vectors": "once", "cluster_sums": "twice",
            "cluster_words": "once",
        }  # fmt: skip
        if settings.mode == "embeddings":
            return of_clusters
        calls = {"topic_words": "at most twice, with words alone once"}
        if settings.mode in ("auto", "both"):
            calls |= of_clusters
        alone = dict.fromkeys(("occurrences", "sketch"), "once, with words alone")
        return calls if settings.mode == "both" else calls | alone

    @leaves(f"Whether all documents have embeddings, and their number {NOISE}.")
    def extent(self) -> dict[str, Any]:
        """Count what the mode is chosen by; as much of the budget goes to it in each mode."""
        budget = Budget(self._privacy, self.settings.shares("words"))
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
        self._budget = Budget(self._privacy, self.settings.shares(mode))
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
        bag, alpha = self._of(columns), self.settings.theta_prior
        counts = contributions.expected_words(bag, topics, alpha, self._weights)
        return {"counts": self._noisy(f"topics {number}", counts)}

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
        return _vectors_of(tuple(self._words), self.settings.embedding, self.site.embedding_model)

    @cached_property
    def _nearest(self) -> sparse.csr_array:
        most = self.settings.nearest_words
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
