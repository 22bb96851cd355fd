"""Which words are shown of a topic: how topics are read matters as much as how they are trained.

`beta` stays what the decoder uses. What people read is ranked by relevance (Sievert and Shirley,
LDAvis, 2014, equation 1) or class-based TF-IDF (Grootendorst, BERTopic, 2022, equation 2), and the
weight that it is ranked with is chosen by how coherent and how different the words then are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.metrics import unique_words

SMALLEST = 1e-9  # added to shares of words, so that their logarithm exists
DIFFERENT = 0.9  # share of the shown words that differ between topics, if that can be had
LAMBDAS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
SHOWN = 10  # words of a topic that readings are judged by


@dataclass(frozen=True)
class Reading:
    """How topics are read."""

    # Weight of log p(word | topic), against its lift, log p(word | topic) - log p(word), in [0, 1].
    lambda_: float = 0.6
    # Take p(word | topic) from the words of documents, weighted by their theta, not the decoder.
    by_sums: bool = False
    # Rank by class-based TF-IDF instead: p(word | topic) log(1 + A / f), A the words of an average
    # topic's documents, f how often a word occurs.
    class_based: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.lambda_ <= 1:  # NaN neither
            raise StudyError(
                f"lambda is {self.lambda_}; give a number from 0 (by lift) to 1 (by probability)."
            )

    def order(
        self, shares: NDArray[np.floating], frequency: NDArray[np.floating], n_words: int
    ) -> NDArray[np.int64]:
        """Return the columns of each topic's most relevant words, shape (n_topics, n_words).

        Shares are p(word | topic), a row a topic; the frequency is p(word).
        """
        if self.class_based:
            score = shares * np.log1p(1 / (len(shares) * frequency))
        else:
            score = np.log(shares + SMALLEST) - (1 - self.lambda_) * np.log(frequency)
        return np.argsort(-score, axis=1, kind="stable")[:, :n_words]


USUAL = Reading()
CLASS_BASED = Reading(1.0, by_sums=True, class_based=True)
READINGS = [Reading(lambda_, by_sums) for by_sums in (False, True) for lambda_ in LAMBDAS]


def choose(
    topics: Sequence[Sequence[Sequence[str]]],
    coherence: Sequence[Mapping[str, NDArray[np.float64]]],
) -> int:
    """Return the reading of highest mean NPMI where nine of ten words differ, or as many as can."""
    different = np.array([unique_words(words, SHOWN) for words in topics])
    npmi = np.array([scores["npmi"].mean() for scores in coherence])
    fit = different >= min(DIFFERENT, different.max())
    return int(np.where(fit, npmi, -np.inf).argmax())
