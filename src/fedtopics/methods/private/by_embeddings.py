"""What a client sums by documents' embeddings, with noise."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError
from fedtopics.inference.clusters import centred
from fedtopics.inference.points import Discriminant, Numbers, blocks, sums_by_label, weighted_sums
from fedtopics.methods.client import leaves
from fedtopics.methods.private import contributions
from fedtopics.methods.private.noisy_client import NOISE, NoisyClient, Shape
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, cache_folder, document_embeddings


class ByEmbeddings(NoisyClient):
    """Sums by where documents are among others, and by their words that are nearest to that."""

    @leaves(
        "For each public word, in how many documents it is among the nearest ones to the "
        "document's embedding; the sum of embeddings, and of their outer products. A document "
        f"counts as vectors of length 1; {NOISE}."
    )
    def key_words(self, vocabulary: str) -> dict[str, Any]:
        """Sum the documents' nearest words, and their embeddings."""
        self._look("key_words", vocabulary, ())
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
        self._look("cluster_sums", vocabulary, (), *self._where(origin, centres), number=number)
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
        self._look("cluster_words", vocabulary, columns, *self._where(origin, centres))
        _, nearest = contributions.placed(self.embeddings, origin, centres)
        sums, _ = sums_by_label(self._nearest[:, columns], nearest, len(centres))
        return {"counts": self._noisy("histogram", sums.T)}

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
        apart = origin, projection, directions, bias
        self._look("class_sums", vocabulary, (), *self._apart(*apart), number=number)
        points, members = self._members(*apart)
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
        apart = origin, projection, directions, bias
        self._look("class_words", vocabulary, columns, *self._apart(*apart))
        _, members = self._members(*apart)
        return {"counts": self._noisy("histogram", self._nearest[:, columns].T @ members)}

    def _where(self, origin: Numbers, centres: Numbers) -> list[tuple[Numbers, Shape]]:
        """Return what tells the cluster of an embedding, with the shapes that it has to have."""
        n, k = self.embeddings.shape[1], self.recipe.n_components
        return [(origin, (n,)), (centres, (k, n))]

    def _apart(
        self, origin: Numbers, projection: Numbers, directions: Numbers, bias: Numbers
    ) -> list[tuple[Numbers, Shape]]:
        """As `_where`, of clusters that are set apart."""
        n, k, d = self.embeddings.shape[1], self.recipe.n_components, directions.shape[-1]
        return [(origin, (n,)), (projection, (n, d)), (directions, (k, d)), (bias, (k,))]

    def _members(
        self, origin: Numbers, projection: Numbers, directions: Numbers, bias: Numbers
    ) -> tuple[NDArray[np.float32], Numbers]:
        """Return embeddings less the origin, of length 1, and their shares of clusters."""
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
