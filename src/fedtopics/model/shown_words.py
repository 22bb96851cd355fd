"""Which words are shown of a topic: how topics are read matters as much as how they are trained.

`beta` stays what the decoder uses. What people read is ranked by relevance (Sievert and Shirley,
LDAvis, 2014, equation 1) or class-based TF-IDF (Grootendorst, BERTopic, 2022, equation 2). Of a few
more words than are shown, those go that are least coherent with the rest; and the weight that words
are ranked with is chosen by how coherent and how different the words then are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError

ADDED_SHARE = 1e-9  # added to shares of words, so that their logarithm exists
DIFFERENT = 0.9  # share of the shown words that differ between topics, if that can be had
LESS_DIFFERENT = 0.02  # by so much at most, where the most coherent words are shown
LAMBDAS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
WORDS_SHOWN = 10  # of a topic, by default; as many judge how topics are read
CANDIDATES = 15  # first words of a topic of which these are
Columns = NDArray[np.int64]


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
    # The columns of each topic's words that come before all others, ranked as those; the same
    # number of each topic, or none.
    first: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.lambda_ <= 1:  # NaN neither
            raise StudyError(
                f"lambda is {self.lambda_}; give a number from 0 (by lift) to 1 (by probability)."
            )
        first = tuple(tuple(map(int, topic)) for topic in self.first)  # a file has lists
        object.__setattr__(self, "first", first)

    def fits(self, n_topics: int, n_words: int) -> bool:
        """Whether its first words are such of so many topics and words."""
        columns = set(range(n_words))
        return len(self.first) in (0, n_topics) and all(
            columns.issuperset(topic) and len(set(topic)) == len(topic) == len(self.first[0])
            for topic in self.first
        )

    def order(
        self, shares: NDArray[np.floating], frequency: NDArray[np.floating], n_words: int
    ) -> NDArray[np.int64]:
        """Return the columns of each topic's most relevant words, shape (n_topics, n_words).

        Shares are p(word | topic), a row a topic; the frequency is p(word). Words in `first` come
        before the others, whatever their rank.
        """
        if self.class_based:
            score = shares * np.log1p(1 / (len(shares) * frequency))
        else:
            score = np.log(shares + ADDED_SHARE) - (1 - self.lambda_) * np.log(frequency)
        behind = np.ones(shares.shape, bool)
        if self.first:
            np.put_along_axis(behind, np.array(self.first), False, axis=1)
        return np.lexsort((-score, behind), axis=1)[:, :n_words]


USUAL = Reading()
CLASS_BASED = Reading(1.0, by_sums=True, class_based=True)
READINGS = [Reading(lambda_, by_sums) for by_sums in (False, True) for lambda_ in LAMBDAS]


def choose(
    readings: Sequence[Reading], columns: Sequence[Columns], npmi: Sequence[NDArray[np.float64]]
) -> Reading:
    """Return the reading of highest mean NPMI where nine of ten words differ, or as many as can.

    Each is tried as it is, and with the most coherent of the given words as its `first`, if then
    hardly fewer words differ than in the best one as it is.

    Parameters
    ----------
    readings : sequence of Reading
    columns : for each reading, int64 array of shape (n_topics, n)
        The first words of the topics; n is at least `WORDS_SHOWN`, if there are so many words.
    npmi : for each reading, float64 array of shape (n_topics, n, n)
        Of the pairs of these words.
    """
    ways: list[Reading] = []
    scores, different = [], []
    for reading, words, pairs in zip(readings, columns, npmi, strict=True):
        as_ranked = [list(range(words.shape[1]))[:WORDS_SHOWN]] * len(words)
        coherent = [keep_coherent(topic) for topic in pairs]
        for kept in (as_ranked, coherent):
            shown = np.take_along_axis(words, np.array(kept), axis=1)
            first = () if kept == as_ranked else tuple(map(tuple, shown.tolist()))
            ways.append(replace(reading, first=first))
            scores.append(np.mean([_mean(*each) for each in zip(pairs, kept, strict=True)]))
            different.append(len(np.unique(shown)) / shown.size)
    share, ranked = np.array(different), np.array([not way.first for way in ways])
    fit = ranked & (share >= min(DIFFERENT, share[ranked].max()))
    best = np.where(fit, scores, -np.inf).argmax()
    fit |= ~ranked & (share >= share[best] - LESS_DIFFERENT)
    return ways[int(np.where(fit, scores, -np.inf).argmax())]


def keep_coherent(npmi: NDArray[np.float64], n_kept: int = WORDS_SHOWN) -> list[int]:
    """Drop, again and again, the word that is least coherent with the rest; return who is left.

    `npmi`, (n, n), is that of the words' pairs; of equals the later word goes.
    """
    kept = list(range(len(npmi)))
    while len(kept) > n_kept:
        among = npmi[np.ix_(kept, kept)]
        loneliest = (among.sum(1) - among.diagonal())[::-1].argmin()
        kept.pop(-1 - int(loneliest))
    return kept


def _mean(npmi: NDArray[np.float64], kept: Sequence[int]) -> float:
    pairs = npmi[np.ix_(kept, kept)][~np.eye(len(kept), dtype=bool)]
    return float(pairs.mean()) if len(pairs) else -1.0
