"""First topics from two sums: a sketch of the words' products, factorised by each participant.

X are the documents' weighted words. X' X times a few directions, summed twice, gives a sketch
X' X ~ U s^2 U' (the Nystroem approximation). From it each participant computes alone, without the
clients, G and H >= 0 with X' X ~ G H'. The columns of H are topics.

References
----------
Gittens and Mahoney, Revisiting the Nystroem Method for Improved Large-Scale Machine Learning, JMLR
2016. Cichocki and Phan, Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor
Factorizations, IEICE Transactions 2009: the sweeps (HALS).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedtopics.inference.nmf import NMFShape, rarities
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.nmf.client import PASSES, FactorSums, WordProducts, sketch_width

RANDOM = 0x6E6D66  # keeps these random choices apart from other uses of the seed
LEAST_VALUE = 1e-8  # of the sketch's products, relative to the largest; smaller ones are rounding
STARTS = 6
SWEEPS_OF_ALL = 15  # after which only the best starts continue
CONTINUING = 2
SWEEPS = 60
DIGITS = 6  # to which residuals are compared, because processors round differently
LEAST_WEIGHT = 1e-9  # of a word in a topic: zeros would stay zeros in the rounds


@dataclass(frozen=True)
class Sketch:
    """X' X, approximately: `basis` times the squares of `values` times the transposed basis."""

    basis: Numbers  # (n_words, n_directions), orthonormal columns
    values: Numbers  # (n_directions,), the largest first

    @classmethod
    def of(cls, directions: Numbers, products: Numbers) -> Sketch:
        """Compute a sketch from orthonormal directions and their products with X' X."""
        small = directions.T @ products
        values, vectors = np.linalg.eigh((small + small.T) / 2)
        # Whole numbers in secure sums are rounded, which small values would amplify.
        is_exact = values > LEAST_VALUE * max(values[-1], TINY)
        roots = vectors[:, is_exact] / np.sqrt(values[is_exact])
        basis, singular_values, _ = np.linalg.svd(products @ roots, full_matrices=False)
        return cls(basis, singular_values)

    def first(self, width: int) -> Sketch:
        """Return the sketch with only its first directions."""
        return Sketch(self.basis[:, :width], self.values[:width])

    def times(self, rows: Numbers) -> Numbers:
        """Return rows of shape (n, n_words) times X' X."""
        return np.asarray((rows @ self.basis * np.square(self.values)) @ self.basis.T)

    def draw_topics(self, n: int, seed: int, start: int) -> Numbers:
        """Draw random mixtures of words, (n, n_words), whatever the vectors' signs and order."""
        drawn = np.random.default_rng([seed, RANDOM, start]).standard_normal((n, len(self.basis)))
        return np.maximum((drawn @ self.basis * self.values) @ self.basis.T, 0)


def sketch_of(agreement: Agreement, rarity: Numbers, n_topics: int, seed: int) -> Sketch:
    """Ask the clients twice for the words' products with directions; see `Sketch`."""
    shape = len(rarity), sketch_width(n_topics, len(rarity), agreement.length)
    directions = products = np.random.default_rng([seed, RANDOM]).standard_normal(shape)
    for _ in range(PASSES):
        directions = np.linalg.qr(products)[0]
        products = agreement.ask_once(
            WordProducts.word_products, rarity=rarity, directions=directions
        )["products"]
    return Sketch.of(directions, products)


def factorise(
    sketch: Sketch, n_topics: int, seed: int, starts: int = STARTS, sweeps: int = SWEEPS
) -> Numbers:
    """Return topics of length 1, (n_words, n_topics), without the clients."""
    drawn = (sketch.draw_topics(n_topics, seed, start) for start in range(starts))
    fits = [_Fit.first(sketch, rows).continued(sketch, SWEEPS_OF_ALL) for rows in drawn]
    best = np.argsort([fit.residual(sketch) for fit in fits], kind="stable")[:CONTINUING]
    fits = [fits[start].continued(sketch, sweeps - SWEEPS_OF_ALL) for start in best]
    fit = fits[int(np.argmin([fit.residual(sketch) for fit in fits]))]
    return np.ascontiguousarray(unit_rows(fit.topics + LEAST_WEIGHT).T)


@dataclass(frozen=True)
class _Fit:
    """X' X ~ words' topics; both are not negative, (n_topics, n_words)."""

    topics: Numbers  # rows of length 1
    words: Numbers

    @classmethod
    def first(cls, sketch: Sketch, rows: Numbers) -> _Fit:
        topics = unit_rows(rows + LEAST_WEIGHT)
        products = np.linalg.pinv(topics @ topics.T)
        return cls(topics, np.maximum(products @ np.maximum(sketch.times(topics), 0), 0))

    def continued(self, sketch: Sketch, sweeps: int) -> _Fit:
        topics = self.topics.copy()
        words = self.words.copy()
        for _ in range(sweeps):
            improve_rows(words, sketch.times(topics), topics @ topics.T)
            improve_rows(topics, sketch.times(words), words @ words.T)
            lengths = np.maximum(np.linalg.norm(topics, axis=1, keepdims=True), TINY)
            topics /= lengths
            words *= lengths
        return _Fit(topics, words)

    def residual(self, sketch: Sketch) -> float:
        """Return the squared distance from X' X, relative to its norm, up to a constant."""
        common = (self.words * sketch.times(self.topics)).sum()
        size = ((self.words @ self.words.T) * (self.topics @ self.topics.T)).sum()
        return round(float((size - 2 * common) / max((sketch.values**4).sum(), TINY)), DIGITS)


def improve_rows(rows: Numbers, wanted: Numbers, weights: Numbers) -> None:
    """Improve each row (n, n_words) in turn, the others fixed, to not negative numbers (HALS).

    A row without weight, as of a topic without enough documents at any client, does not change.
    """
    for k in range(len(rows)):
        if weights[k, k] > TINY:
            rows[k] += (wanted[k] - weights[k] @ rows) / weights[k, k]
            np.maximum(rows[k], 0, out=rows[k])


def first_word_sums(agreement: Agreement, n_topics: int, seed: int) -> Numbers:
    """Return the occurrences of words in first topics, (n_topics, n_words), for other methods."""
    frequency = agreement.vocabulary.document_frequency
    differ = (frequency < agreement.documents).any()  # else words are not rare or frequent
    rarity = rarities(frequency, agreement.documents, NMFShape().rarity if differ else 0)
    topics = factorise(sketch_of(agreement, rarity, n_topics, seed), n_topics, seed)
    return np.asarray(
        agreement.ask_once(FactorSums.topic_words, rarity=rarity, topics=topics)["sums"]
    )
