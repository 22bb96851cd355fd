"""Coherence of a federation's topics: exactly the score of the pooled texts, computed from sums."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.metrics import WINDOWS, npmi_of_pairs, score_pairs
from fedtopics.metrics.coherence import count_numbered
from fedtopics.text.vocabulary import WordCounts

Ask = Callable[..., dict[str, Any]]
COVERED = 0.5  # least share of a word's documents, and of a topic's words, that a score is based on


def federated_coherence(
    ask: Ask,
    topics: Sequence[Sequence[str]],
    within: Literal["windows", "documents"],
    expected: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return (n_topics,) scores by measure.

    `ask` takes the arguments of `count_pairs` and returns the sum of all clients' counts. Clients
    do not count words in few of their documents, so such words would seem never to occur together.
    With `expected`, the share of documents with each word, shape (n_topics, n_words), words that
    were counted in too few documents are left out. A topic with half of its words left out has NaN.
    """
    counts = _count(ask, topics, window_sizes(within))
    in_documents, n_documents = counts[0]
    n_words = in_documents.shape[-1]
    covered = np.ones((len(topics), n_words), bool)
    if expected is not None:
        counted = in_documents.diagonal(axis1=1, axis2=2)
        expected_count = n_documents * expected
        # A random half of the documents is counted: three standard deviations less is chance.
        least = np.minimum(
            COVERED * expected_count, expected_count - 3 * np.sqrt(expected_count / 2)
        )
        covered = (counted > 0) & (counted >= least)
    too_few = covered.sum(1) < max(2, COVERED * n_words)
    scores: dict[str, NDArray[np.float64]] = {}
    for name, size in WINDOWS.items():
        pairs, n_windows = counts[size or 0 if within == "windows" else 0]
        scored = (
            of_topic[np.ix_(words, words)] for of_topic, words in zip(pairs, covered, strict=True)
        )
        scores[name] = np.where(too_few, np.nan, score_pairs(scored, n_windows, name))
    return scores


def window_sizes(within: Literal["windows", "documents"]) -> list[int]:
    """Return the sizes of windows in which pairs are counted; 0 is a whole document."""
    return sorted({size or 0 for size in WINDOWS.values()}) if within == "windows" else [0]


def federated_npmi(
    ask: Ask, topics: Sequence[Sequence[str]], within: Literal["windows", "documents"]
) -> NDArray[np.float64] | None:
    """Return the NPMI of word pairs, (n_topics, n, n), or None where no document was counted."""
    size = WINDOWS["npmi"] or 0 if within == "windows" else 0
    pairs, n_windows = _count(ask, topics, [size])[size]
    return np.array([npmi_of_pairs(one, n_windows) for one in pairs]) if n_windows else None


def _count(
    ask: Ask, topics: Sequence[Sequence[str]], windows: list[int]
) -> dict[int, tuple[NDArray[np.int64], int]]:
    """Return, by window size, the number of windows that contain each pair, and of all windows."""
    words, pairs, places = pairs_of(topics)
    counts = ask(words=words, pairs=pairs, windows=windows)
    return {n: (counts[str(n)]["pairs"][places], counts[str(n)]["windows"]) for n in windows}


def pairs_of(
    topics: Sequence[Sequence[str]],
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the topics' words, their pairs, and each topic's places in these, (n_topics, n, n).

    Topics share words: each pair of numbers of words, (n_pairs, 2), occurs once, in order.
    """
    words = list(dict.fromkeys(word for topic in topics for word in topic))
    place = {word: number for number, word in enumerate(words)}
    numbers = np.array([[place[word] for word in topic] for topic in topics], np.int64)
    both = np.sort(np.stack(np.broadcast_arrays(numbers[:, :, None], numbers[:, None]), -1), -1)
    codes, inverse = np.unique(both @ [len(words), 1], return_inverse=True)
    return words, np.stack(np.divmod(codes, len(words)), 1), inverse.reshape(both.shape[:-1])


def looked_up(counts: Mapping[str, Any], words: list[str], pairs: NDArray[np.int64]) -> Ask:
    """Return a function that answers with some of the counts of these pairs; see `pairs_of`."""
    place = {word: number for number, word in enumerate(words)}
    codes = pairs @ [len(words), 1]

    def ask(words: list[str], pairs: NDArray[np.int64], windows: list[int]) -> dict[str, Any]:
        numbers = np.sort(np.array([place[word] for word in words])[pairs], 1)
        rows = np.searchsorted(codes, numbers @ [len(place), 1])
        return {str(n): {**counts[str(n)], "pairs": counts[str(n)]["pairs"][rows]} for n in windows}

    return ask


def count_pairs(
    counted: WordCounts,
    words: list[str],
    pairs: NDArray[np.int64],
    windows: list[int],
    rows: NDArray[np.int64] | None = None,
) -> dict[str, Any]:
    """Count the windows in which two words occur together, for pairs (n_pairs, 2) of word numbers.

    A pair of a word with itself counts windows with it. A window size of 0 means a whole document.
    Only the documents of `rows` count, by default all.

    Leaves the client
        For each pair of words, the number of windows that contain both.
    """
    by_size = {
        size: count_numbered(counted.in_order(words, rows), len(words), size or None)
        for size in windows
    }
    return {
        str(size): {"windows": counts["windows"], "pairs": counts["together"][tuple(pairs.T)]}
        for size, counts in by_size.items()
    }
