"""Inference of clusters: theta contains a document's probability of each cluster."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse
from scipy.special import softmax

from fedtopics.inference import Inference, Layout, Shared, Weights
from fedtopics.inference.vectors import (
    Discriminant,
    Numbers,
    Points,
    blocks,
    closeness,
    of_unit_length,
    unit_rows,
)
from fedtopics.text.embeddings import EmbeddingSettings, Vectors

Representation = Literal["embedding", "bow", "tfidf"]
SMOOTHING = 0.01  # occurrences of each word in each cluster, so that none is impossible
SATURATION = 2  # number of known words with which words get half of their weight
DIRECTIONS = 100  # number of directions of words that extend embeddings
EXTENDED = 0.2  # share of these directions in a point of a document with many words
SAME = 1e-6  # embeddings of one text from different computers differ by less than this


class ClusterShape(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The representation of documents, and the number of clusters."""

    n_components: int = Field(20, ge=2, description="number of clusters")
    representation: Representation = Field(
        "embedding",
        description='representation of a document: its "embedding", its bag of words ("bow"), or '
        'its bag weighted by the rarity of words ("tfidf")',
    )
    embedding: EmbeddingSettings = Field(EmbeddingSettings(), description="embedding of documents")
    temperature: float = Field(0.15, gt=0, description="lower values give clearer memberships")


class ClusterInference(Inference):
    """Base of cluster inferences; a subclass provides `prototypes`, `shapes` and `scores`."""

    settings_type: ClassVar[type[BaseModel]] = ClusterShape
    shows: ClassVar[Literal["topics", "clusters"]] = "clusters"
    prototypes: ClassVar[str]  # the weight with one row per cluster

    def __init__(self, n_words: int, settings: Any) -> None:
        super().__init__(n_words, settings)
        self.sees_embedding = settings.representation == "embedding"
        self.sees_words = not self.sees_embedding

    @property
    def n_dimensions(self) -> int:
        """Length of a document's representation."""
        return self.n_words if self.sees_words else int(self.settings.embedding.dimension)

    @abstractmethod
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the weights that find clusters."""

    @abstractmethod
    def scores(self, weights: Mapping[str, Any], points: Any) -> Numbers:
        """Return the points' scores for each cluster, whose softmax gives probabilities."""

    def memberships(
        self, weights: Mapping[str, Any], points: Points
    ) -> Iterator[tuple[slice, Numbers]]:
        """Yield the rows of a block of points and their probabilities, block by block."""
        for rows, block in blocks(points):
            yield rows, softmax(self.scores(weights, block), axis=1)

    def layout(self) -> Layout:
        shapes = self.shapes() | {"beta": (self.settings.n_components, self.n_words)}
        return {name: (shape, self.precision) for name, shape in shapes.items()}

    def beta(self, weights: Weights, shared: Shared) -> NDArray[np.float64]:
        return np.asarray(weights["beta"])

    def infer(
        self, weights: Weights, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[np.float64]:
        points = self.points(weights["origin"], counts, embeddings)
        return np.concatenate([shares for _, shares in self.memberships(weights, points)])

    def points(
        self, origin: Numbers, counts: sparse.csr_array | None, embeddings: NDArray[Any] | None
    ) -> Points:
        """Return representations of documents; `origin` is the mean embedding or word weights."""
        if self.sees_embedding:
            return centred(cast("NDArray[Any]", embeddings), origin)
        return weighted(counts, origin, self.settings.representation == "tfidf")

    def with_words(self, weights: Mapping[str, NDArray[Any]], word_sums: Numbers) -> Weights:
        smooth = word_sums + SMOOTHING
        beta = smooth / smooth.sum(1, keepdims=True)
        return {name: np.ascontiguousarray(w) for name, w in {**weights, "beta": beta}.items()}


def centred(embeddings: NDArray[Any], origin: Numbers) -> NDArray[np.float32]:
    """Subtract the mean embedding, which all texts share, and scale to unit length."""
    points = np.zeros(embeddings.shape, np.float32)
    for rows, block in blocks(embeddings):
        moved = block - origin
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        points[rows] = moved / np.where(length > SAME, length, np.inf)
    return points


def weighted(counts: sparse.csr_array, origin: Numbers, unit_length: bool) -> sparse.csr_array:
    """Multiply counts by the weights of their words; if `unit_length`, scale rows to length 1."""
    values = counts.data * origin[counts.indices]
    columns = counts.indices.astype(np.int32)  # scikit-learn needs int32
    points = sparse.csr_array((values, columns, counts.indptr.astype(np.int32)), counts.shape)
    return of_unit_length(points) if unit_length else points


class Centres(ClusterInference):
    """Each document is in the cluster with the nearest centre, as in k-means and k-FED."""

    name = "centres"
    prototypes = "centres"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "origin": (self.n_dimensions,),
            "centres": (self.settings.n_components, self.n_dimensions),
        }

    def scores(self, weights: Mapping[str, Any], points: Any) -> Numbers:
        return np.asarray(closeness(points, weights["centres"]) / self.settings.temperature)


class Discriminants(ClusterInference):
    """Clusters that have a direction each, in a projection that separates them."""

    name = "discriminants"
    prototypes = "directions"

    def shapes(self) -> dict[str, tuple[int, ...]]:
        n = self.n_dimensions
        k = self.settings.n_components
        d = min(k - 1, n)
        return {"origin": (n,), "projection": (n, d), "directions": (k, d), "bias": (k,)}

    def scores(self, weights: Mapping[str, Any], points: Any) -> Numbers:
        return Discriminant(
            projection=weights["projection"],
            directions=weights["directions"],
            bias=weights["bias"],
            temperature=self.settings.temperature,
        ).scores(points)


class ConsensusShape(ClusterShape):
    """The number of clusterings in the consensus, and the weight of words."""

    word_weight: float = Field(0.5, ge=0, lt=1, description="how far words move an embedding")
    n_clusterings: int = Field(8, ge=1, description="number of clusterings in the consensus")


class Consensus(ClusterInference):
    """A document's cluster follows from its memberships in several discriminative clusterings.

    First, embeddings are moved towards the mean embeddings of their words, and extended by their
    words in the leading directions of all documents' weighted words (latent semantic analysis).
    `votes` are logarithms of how often documents of a cluster are in each cluster of each
    clustering.
    """

    name = "consensus"
    settings_type: ClassVar[type[BaseModel]] = ConsensusShape
    prototypes = "votes"

    @property
    def n_directions(self) -> int:
        return min(DIRECTIONS, self.n_words) if self.settings.word_weight else 0

    @property
    def n_dimensions(self) -> int:
        return super().n_dimensions + self.n_directions

    def shapes(self) -> dict[str, tuple[int, ...]]:
        n = self.n_dimensions
        k = self.settings.n_components
        r = self.settings.n_clusterings
        d = min(k - 1, n)
        m = super().n_dimensions
        shapes = {
            "origin": (n,),
            "projection": (r, n, d),
            "directions": (r, k, d),
            "bias": (r, k),
            "votes": (k, r * k),
            "sizes": (k,),
        }
        if self.settings.word_weight:
            shapes |= {
                "word_origin": (m,),
                "word_means": (self.n_words, m),
                "rarity": (self.n_words,),
                "word_directions": (self.n_words, self.n_directions),
            }
        return shapes

    def layout(self) -> Layout:
        layout = super().layout()
        single_precision = layout.keys() & {"word_means", "word_directions"}
        return layout | {name: (layout[name][0], "float32") for name in single_precision}

    def infer(
        self, weights: Weights, shared: Shared, counts: sparse.csr_array, embeddings: Vectors | None
    ) -> NDArray[np.float64]:
        if self.settings.word_weight:
            embeddings = self.mixed(cast("Vectors", embeddings), counts, weights)
        return super().infer(weights, shared, counts, embeddings)

    def mixed(
        self, embeddings: NDArray[Any], counts: sparse.csr_array, weights: Mapping[str, Any]
    ) -> NDArray[np.float32]:
        """Return points relative to `word_origin`, moved towards their words and extended by them.

        With n words that have points, their mean by rarity gets the share
        `word_weight` * n / (n + 2); with n known words, the extension has the length n / (n + 2).
        """
        points = centred(embeddings, weights["word_origin"])
        rarity = weights["rarity"]
        extended = np.zeros((len(points), points.shape[1] + self.n_directions), np.float32)
        for rows, block in blocks(points):
            bag = counts[rows]
            by_rarity = sparse.csr_array((rarity[bag.indices], bag.indices, bag.indptr), bag.shape)
            n_with_rarity = (by_rarity > 0).sum(1)[:, None]
            share = self.settings.word_weight * n_with_rarity / (n_with_rarity + SATURATION)
            by_words = unit_rows(by_rarity @ weights["word_means"])
            moved = unit_rows((1 - share) * block + share * by_words)
            n_distinct = np.diff(bag.indptr)[:, None]
            directions = unit_rows(bag.log1p() @ weights["word_directions"])
            directed = directions * n_distinct / (n_distinct + SATURATION)
            extended[rows] = np.concatenate([moved, directed], axis=1)
        return extended

    def points(
        self, origin: Numbers, counts: sparse.csr_array | None, embeddings: NDArray[Any] | None
    ) -> Points:
        """Return both parts of extended embeddings, each relative to its mean, side by side."""
        if embeddings is None or not self.n_directions:
            return super().points(origin, counts, embeddings)
        n = len(origin) - self.n_directions
        moved = centred(embeddings[:, :n], origin[:n])
        directed = embeddings[:, n:]
        # Documents without words would otherwise all be at the same place of the extension.
        share = EXTENDED * np.linalg.norm(directed, axis=1, keepdims=True)
        parts = np.sqrt(1 - share) * moved, np.sqrt(share) * unit_rows(directed - origin[n:])
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def members(self, weights: Mapping[str, Any], points: Any) -> Numbers:
        """Return the memberships of all clusterings side by side."""
        arrays: Any = (weights[name] for name in ("projection", "directions", "bias"))
        clusterings = map(partial(Discriminant, temperature=self.settings.temperature), *arrays)
        return np.concatenate(
            [softmax(clustering.scores(points), axis=1) for clustering in clusterings], axis=1
        )

    def scores(self, weights: Mapping[str, Any], points: Any) -> Numbers:
        return np.asarray(self.members(weights, points) @ weights["votes"].T + weights["sizes"])
