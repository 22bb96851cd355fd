"""Coherence of a federation's topics: exactly the score of the pooled texts, computed from sums."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.metrics import WINDOWS, Measure, count_cooccurrences, npmi_of_pairs, score_pairs
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import tokens

Within = Literal["windows", "documents", "nothing"]
Ask = Callable[..., dict[str, Any]]


def federated_coherence(
    ask: Ask, topics: Sequence[Sequence[str]], within: Literal["windows", "documents"],
    known_alone: bool = False,
) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """Return (n_topics,) scores by measure; `known_alone` leaves out words in no document."""
    # `ask` takes the arguments of `count_pairs` and returns the sum of all clients' counts.
    sizes: Mapping[Measure, int | None] = WINDOWS if within == "windows" else dict.fromkeys(WINDOWS)
    counts = _count(ask, topics, sorted({size or 0 for size in sizes.values()}))
    scores: dict[str, NDArray[np.float64]] = {}
    for name, size in sizes.items():
        pairs, n_windows = counts[size or 0]
        scored = map(_known, pairs) if known_alone else pairs
        scores[name] = score_pairs(scored, n_windows, name)
    return scores


def _known(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    words = np.flatnonzero(pairs.diagonal())
    return pairs[np.ix_(words, words)] if len(words) > 1 else pairs


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
    words = list(dict.fromkeys(word for topic in topics for word in topic))
    place = {word: number for number, word in enumerate(words)}
    numbers = np.array([[place[word] for word in topic] for topic in topics], np.int64)
    both = np.sort(np.stack(np.broadcast_arrays(numbers[:, :, None], numbers[:, None]), -1), -1)
    # Topics and readings share words: each pair is requested once.
    codes, inverse = np.unique(both @ [len(words), 1], return_inverse=True)
    pairs = np.stack(np.divmod(codes, len(words)), 1)
    counts = ask(words=words, pairs=pairs, windows=windows)
    counted = {size: counts[str(size)] for size in windows}
    return {
        size: (entry["pairs"][inverse.reshape(both.shape[:-1])], entry["windows"])
        for size, entry in counted.items()
    }


def count_pairs(
    corpus: Corpus, text: TextRules, words: list[str], pairs: NDArray[np.int64], windows: list[int]
) -> dict[str, Any]:
    """Count the windows in which two words occur together, for pairs (n_pairs, 2) of word numbers.

    A pair of a word and itself counts the word. A window size of 0 means a whole document.

    Leaves the client
        For each pair of words, the number of windows that contain both.
    """
    n_windows = dict.fromkeys(windows, 0)
    together = {size: np.zeros((len(words), len(words)), np.int64) for size in windows}
    for batch in tokens(corpus, text):
        for size in windows:
            counts = count_cooccurrences(batch, words, size or None)
            n_windows[size] += counts["windows"]
            together[size] += counts["together"]
    return {
        str(size): {"windows": n_windows[size], "pairs": together[size][tuple(pairs.T)]}
        for size in windows
    }
