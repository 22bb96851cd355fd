"""Inference of a mixture model: topics from embeddings and words together.

A document has one topic; theta is the probability of each. Embeddings of a topic have a von
Mises-Fisher distribution around its direction, and words a multinomial distribution.

References
----------
Banerjee et al., Clustering on the Unit Hypersphere using von Mises-Fisher Distributions, JMLR 2005.
Nigam et al., Text Classification from Labeled and Unlabeled Documents using EM, 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse
from scipy.special import softmax

from fedtopics.inference import Inference, Layout, Shared, Weights
from fedtopics.inference.clusters import centred
from fedtopics.inference.vectors import Numbers, Points, blocks, unit_rows
from fedtopics.text.embeddings import EmbeddingSettings

UNSEEN = 0.01  # occurrences added to each word, so that none is impossible


class MixtureShape(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The number of topics, and the weights of embeddings and words."""

    n_components: int = Field(20, ge=2, description="number of topics")
    kappa: float = Field(
        4.0,
        gt=0,
        le=20,
        description="concentration of embeddings around their topic; higher values give embeddings "
        "more weight; above 20, sums of two rounds could differ by a single document",
    )
    word_weight: float = Field(
        0.25,
        gt=0,
        le=1,
        description="weight of each occurrence of a word; 1 treats occurrences as independent",
    )
    smoothing: float = Field(
        0.1, ge=0, description="occurrences added to an average word in each topic"
    )
    embedding: EmbeddingSettings = Field(EmbeddingSettings(), description="embedding of documents")

    @property
    def theta_prior(self) -> float:
        return 1 / self.n_components


@dataclass(frozen=True)
class Evidence:
    """Terms of embeddings and words whose sum is the log probability of each topic."""

    origin: Numbers  # subtracted from embeddings, (n_dimensions,)
    directions: Numbers  # (n_topics, n_dimensions)
    words: Numbers  # for one occurrence of each word, (n_topics, n_words)
    bias: Numbers  # (n_topics,)

    @classmethod
    def of(cls, sums: Mapping[str, Numbers], settings: MixtureShape) -> Evidence:
        """Compute the terms from a model's weights, which are sums over documents."""
        weights = sums["weights"] + 1
        return cls(
            origin=sums["origin"],
            directions=settings.kappa * unit_rows(sums["directions"]),
            words=settings.word_weight * np.log(topics_of(sums["words"], settings.smoothing)),
            bias=np.log(weights / weights.sum()),
        )

    def memberships(
        self, points: Points, counts: sparse.csr_array
    ) -> Iterator[tuple[slice, Numbers, float]]:
        """Yield the rows, theta and total evidence of the documents, block by block."""
        for rows, block in blocks(points):
            scores = block @ self.directions.T
            scores += counts[rows] @ self.words.T + self.bias
            largest = scores.max(1)
            total = np.exp(scores - largest[:, None]).sum(1)
            yield rows, softmax(scores, axis=1), float((largest + np.log(total)).sum())


def topics_of(words: Numbers, smoothing: float) -> Numbers:
    """Return topics, rows sum to 1, from sums of words; both (n_topics, n_words)."""
    seen = words + UNSEEN / len(words)
    smooth = seen + smoothing * words.shape[1] * (seen.sum(0) / seen.sum())
    return np.asarray(smooth / smooth.sum(1, keepdims=True))


def place(embeddings: NDArray[Any] | None, origin: Numbers, n_documents: int) -> Points:
    """Return the points of documents, with zeros for documents without an embedding."""
    points = np.zeros((n_documents, len(origin)), np.float32)
    if embeddings is not None:
        rows = embeddings.any(1)
        points[rows] = centred(embeddings[rows], origin)
    return points


class Mixture(Inference):
    """A mixture of topics, whose weights are sums over documents, weighted by theta."""

    name: ClassVar[str] = "mixture"
    settings_type: ClassVar[type[BaseModel]] = MixtureShape
    sees_embedding = True

    def layout(self) -> Layout:
        k = self.settings.n_components
        dimension = self.settings.embedding.dimension
        shapes = {
            "origin": (dimension,),
            "directions": (k, dimension),
            "words": (k, self.n_words),
            "weights": (k,),
        }
        return {name: (shape, self.precision) for name, shape in shapes.items()}

    def beta(self, weights: Weights, shared: Shared) -> NDArray[np.float64]:
        return topics_of(weights["words"], self.settings.smoothing)

    def infer(
        self,
        weights: Weights,
        shared: Shared,
        counts: sparse.csr_array,
        embeddings: NDArray[Any] | None,
    ) -> NDArray[np.float64]:
        evidence = Evidence.of(weights, self.settings)
        points = place(embeddings, evidence.origin, counts.shape[0])
        return np.concatenate([theta for _, theta, _ in evidence.memberships(points, counts)])
