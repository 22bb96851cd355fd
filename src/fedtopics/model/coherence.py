"""Coherence of a federation's topics: exactly the score of the pooled text, from sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.metrics import WINDOWS, Measure, count_cooccurrences, score_pairs
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import TextRules, tokens

Within = Literal["windows", "documents", "nothing"]
Ask = Callable[..., dict[str, Any]]


def federated_coherence(
    ask: Ask, readings: Sequence[Sequence[Sequence[str]]], within: Literal["windows", "documents"]
) -> list[dict[str, NDArray[np.float64]]]:
    """Score readings of topics (lists of n_topics lists of n words) by what the clients count.

    Words count as occurring together in each measure's usual window, or in a document where the
    order of words is lost. `ask` takes a template and what `count_pairs` takes, and returns the sum
    of its replies. Each reading gets a mapping of measure to float64 array of shape (n_topics,).
    """
    sizes: Mapping[Measure, int | None] = WINDOWS if within == "windows" else dict.fromkeys(WINDOWS)
    windows = _windows(within)
    flat = [topic for topics in readings for topic in topics]
    words = list(dict.fromkeys(word for topic in flat for word in topic))
    place = {word: number for number, word in enumerate(words)}
    numbers = np.array([[place[word] for word in topic] for topic in flat], np.int64)
    shape = (*numbers.shape, numbers.shape[1])
    template: dict[str, Any] = {str(size): {"windows": (), "pairs": shape} for size in windows}
    counts = ask(template, words=words, topics=numbers, windows=windows)
    scores = {}
    for measure, size in sizes.items():
        counted = counts[str(size or 0)]
        scores[measure] = score_pairs(counted["pairs"], counted["windows"], measure)
    parts = np.array_split(np.arange(len(flat)), len(readings))
    return [{name: score[part] for name, score in scores.items()} for part in parts]


def count_pairs(
    corpus: Corpus, text: TextRules, words: list[str], topics: NDArray[np.int64], windows: list[int]
) -> dict[str, Any]:
    """Count in how many windows the words of each topic occur, and occur together.

    The words are the different ones of all topics; topics, int64 of shape (n_topics, n), have them
    by their number. Of the sizes of windows, 0 takes a document as one window.

    Leaves the client
        For each pair of words of a topic, the number of windows that hold both.
    """
    n_windows = dict.fromkeys(windows, 0)
    together = {size: np.zeros((len(words), len(words)), np.int64) for size in windows}
    for batch in tokens(corpus, text):
        for size in windows:
            counts = count_cooccurrences(batch, words, size or None)
            n_windows[size] += counts["windows"]
            together[size] += counts["together"]
    pairs = topics[:, :, None], topics[:, None, :]
    return {
        str(size): {"windows": n_windows[size], "pairs": together[size][pairs]} for size in windows
    }


def _windows(within: Within) -> list[int]:
    return sorted({size or 0 for size in WINDOWS.values()}) if within == "windows" else [0]
