"""Inference of NMF topics, by non-negative least squares."""

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy import sparse

from fedtopics.errors import StudyError
from fedtopics.inference import Inference, Layout, Shared, Weights
from fedtopics.inference.vectors import TINY, Numbers, of_unit_length


class NMFShape(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Number of topics, and the weight of a word in a document."""

    n_components: int = Field(20, ge=1, description="number of topics")
    term_weight: Literal["log", "binary"] = Field(
        "log",
        description='weight of a word in a document: log(1 + its occurrences) ("log"), or 1 '
        '("binary")',
    )
    rarity: float = Field(
        1.5, ge=0, description="power of the factor log(documents / documents with the word)"
    )


class Factors(Inference):
    """Non-negative matrix factorisation of weighted words."""

    name: ClassVar[str] = "nmf"
    settings_type: ClassVar[type[BaseModel]] = NMFShape

    def layout(self) -> Layout:
        # Topics have unit length; rarity is a factor of the words' occurrences.
        return {
            "topics": ((self.n_words, self.settings.n_components), self.precision),
            "rarity": ((self.n_words,), self.precision),
        }

    def beta(self, weights: Weights, shared: Shared) -> NDArray[np.float64]:
        topics = weights["topics"]
        topics = np.where(topics.sum(0) > 0, topics, 1.0)  # a topic without words is uniform
        return np.asarray((topics / topics.sum(0)).T)

    def infer(
        self,
        weights: Weights,
        shared: Shared,
        counts: sparse.csr_array,
        embeddings: NDArray[Any] | None,
    ) -> NDArray[np.float64]:
        return find_theta(
            weigh(counts, weights["rarity"], self.settings.term_weight), weights["topics"]
        )


def find_theta(points: sparse.csr_array, topics: Numbers) -> Numbers:
    """Return documents' shares of topics; rows sum to 1, uniform for documents without a topic."""
    from fedtopics.inference.variational import solve  # late: a server need not compile it

    shares = solve(points, topics)
    total = shares.sum(1, keepdims=True)
    theta: Numbers = np.full_like(shares, 1 / shares.shape[1])
    np.divide(shares, total, out=theta, where=total > TINY)
    return theta


def rarities(frequency: NDArray[np.int64], documents: int, power: float) -> Numbers:
    """Return the factor by which each word's occurrences count, from its number of documents."""
    ratios = np.maximum(documents / np.maximum(frequency, 1), 1)
    rarity: Numbers = np.asarray(np.log(ratios) ** power)
    if not rarity.any():
        raise StudyError(
            "Every agreed word is in every document, so words cannot distinguish topics; set "
            "rarity to 0, or set max_document_share to 1 and give documents that differ."
        )
    return rarity


def weigh(counts: sparse.csr_array, rarity: Numbers, term_weight: str) -> sparse.csr_array:
    """Weight the words of documents, CSR (n, n_words), and scale documents to unit length."""
    values = counts.data.astype(np.float64)
    values = np.log1p(values) if term_weight == "log" else np.ones_like(values)
    values *= rarity[counts.indices]
    return of_unit_length(sparse.csr_array((values, counts.indices, counts.indptr), counts.shape))
