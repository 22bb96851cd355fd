"""Which words are shown for a topic; this does not change `beta`, which the decoder uses.

Words are ranked by relevance (Sievert and Shirley, LDAvis, 2014, equation 1) or class-based TF-IDF
(Grootendorst, BERTopic, 2022, equation 2), with a weight chosen by coherence and diversity.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError

ADDED_SHARE = 1e-9  # keeps the logarithm of a share finite
DIFFERENT = 0.9  # wanted share of different words among all shown words
LESS_DIFFERENT = 0.02  # most that this share may fall when the most coherent words are shown
LAMBDAS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
# How many words of a topic are shown
WORDS_SHOWN = 10  # by default; the ranking is chosen by these as well
CANDIDATES = 15  # first words of a topic, from which the words shown are chosen
LINE_WORDS = 8  # in a line of a terminal
NAME_WORDS = 4  # in a topic's name, as in BERTopic
CAPTION_WORDS = 3  # in place of a label, in figures and small tables
LABEL_WORDS = 10  # that a suggested label may contain
LISTED_WORDS = 30  # in the full list of the report
METRIC_WORDS = 25  # that metrics see, at most
Columns = NDArray[np.int64]


@dataclass(frozen=True)
class WordRanking:
    """How the words of topics are ranked."""

    # Weight, in [0, 1], of log p(word | topic) against the lift, log p(word | topic) / p(word).
    relevance: float = 0.6
    # Take p(word | topic) from documents' words, weighted by theta, instead of the decoder.
    by_sums: bool = False
    # Rank by class-based TF-IDF instead: p(word | topic) log(1 + A / f), A the words of an average
    # topic's documents, f the frequency of the word.
    class_based: bool = False
    # Columns of each topic's words that come before all others; equally many per topic, or none.
    first: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.relevance <= 1:  # also refuses NaN
            raise StudyError(
                f"lambda={self.relevance} is out of range; give a number from 0 (by lift) to 1 (by "
                "probability)."
            )
        # A file has lists, which do not equal tuples.
        object.__setattr__(self, "first", tuple(tuple(map(int, topic)) for topic in self.first))

    def fits(self, n_topics: int, n_words: int) -> bool:
        """Whether `first` is valid for so many topics and words."""
        columns = set(range(n_words))
        return len(self.first) in (0, n_topics) and all(
            columns.issuperset(topic) and len(set(topic)) == len(topic) == len(self.first[0])
            for topic in self.first
        )

    def order(
        self, shares: NDArray[np.floating], frequency: NDArray[np.floating], n_words: int
    ) -> NDArray[np.int64]:
        """Return columns of the most relevant words, (n_topics, n_words); `first` comes first."""
        score = (
            shares * np.log1p(1 / (len(shares) * frequency))
            if self.class_based
            else np.log(shares + ADDED_SHARE) - (1 - self.relevance) * np.log(frequency)
        )
        behind = np.ones(shares.shape, bool)
        if self.first:
            np.put_along_axis(behind, np.array(self.first), False, axis=1)
        return np.lexsort((-score, behind), axis=1)[:, :n_words]


DEFAULT_RANKING = WordRanking()
CLASS_BASED = WordRanking(1.0, by_sums=True, class_based=True)
WORD_RANKINGS = [
    WordRanking(relevance, by_sums) for by_sums in (False, True) for relevance in LAMBDAS
]


def choose(
    readings: Sequence[WordRanking], columns: Sequence[Columns], npmi: Sequence[NDArray[np.float64]]
) -> WordRanking:
    """Return the reading with the highest mean NPMI among those with enough different words."""
    # Columns are the topics' first words, (n_topics, n); npmi, (n_topics, n, n), of their pairs.
    # Each reading is also tried with its most coherent words as `first`.
    variants: list[WordRanking] = []
    scores = []
    different = []
    for reading, words, pairs in zip(readings, columns, npmi, strict=True):
        as_ranked = [list(range(words.shape[1]))[:WORDS_SHOWN]] * len(words)
        for positions in (as_ranked, [keep_coherent(topic) for topic in pairs]):
            shown = np.take_along_axis(words, np.array(positions), axis=1)
            first = () if positions == as_ranked else tuple(map(tuple, shown.tolist()))
            variants.append(replace(reading, first=first))
            scores.append(np.mean([*map(_mean, pairs, positions)]))
            different.append(len(np.unique(shown)) / shown.size)
    share = np.array(different)
    ranked = np.array([not variant.first for variant in variants])
    fit = ranked & (share >= min(DIFFERENT, share[ranked].max()))
    best = np.where(fit, scores, -np.inf).argmax()
    fit |= ~ranked & (share >= share[best] - LESS_DIFFERENT)
    return variants[int(np.where(fit, scores, -np.inf).argmax())]


def keep_coherent(npmi: NDArray[np.float64], n_kept: int = WORDS_SHOWN) -> list[int]:
    """Drop the word least coherent with the rest until `n_kept` remain; the last one of equals."""
    positions = list(range(len(npmi)))
    while len(positions) > n_kept:
        among = npmi[np.ix_(positions, positions)]
        loneliest = (among.sum(1) - among.diagonal())[::-1].argmin()
        positions.pop(-1 - int(loneliest))
    return positions


def _mean(npmi: NDArray[np.float64], positions: Sequence[int]) -> float:
    pairs = npmi[np.ix_(positions, positions)][~np.eye(len(positions), dtype=bool)]
    return float(pairs.mean()) if len(pairs) else -1.0
