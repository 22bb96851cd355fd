"""Counts of words that occur together: sums over documents, so those of clients add up.

They are those of Röder, Both and Hinneburg (2015), section 3.2, and of gensim 4.4,
WordOccurrenceAccumulator in topic_coherence/text_analysis.py. When a token leaves its window, its
word counts as absent from there on, although it may stand in the window a second time, until it
enters again. Repeated words are therefore counted too seldom. We count the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, StudyError

TOKENS = 1 << 15  # tokens counted at once; memory grows with it and with the window


class Cooccurrences(TypedDict):
    """Sums over documents: how many windows hold a word, and two words together."""

    windows: int  # all of them, those without any word of interest as well
    occurrences: NDArray[np.int64]  # shape (n_words,)
    together: NDArray[np.int64]
    """Shape (n_words, n_words), symmetric, with the occurrences on its diagonal."""


def count_cooccurrences(
    documents: Iterable[Sequence[str]], words: Sequence[str], window: int | None
) -> Cooccurrences:
    """Count the windows that hold each word, and each pair of words, as gensim does.

    The fields of several clients, added, are those of the pooled text, exactly.

    Parameters
    ----------
    documents : iterable of token lists
        With their words in order, and with the words that are not of interest.
    words : sequence of str, length n_words
        The distinct words of interest; the order gives rows and columns.
    window : int or None
        Tokens in a window, which moves by one token; ``None`` takes a document as one window. A
        document no longer than the window is one window, an empty one too.

    Raises
    ------
    DataError, StudyError
        If a word of interest is there twice, or the window is shorter than one token.

    Examples
    --------
    >>> counts = count_cooccurrences([["tea", "with", "milk"], ["tea"]], ["tea", "milk"], 2)
    >>> counts["windows"], counts["occurrences"].tolist(), counts["together"].tolist()
    (3, [2, 1], [[2, 0], [0, 1]])
    """
    index = {word: number for number, word in enumerate(words)}
    if len(index) != len(words):
        raise DataError("A word of interest is given twice; give each word once.")
    if window is not None and window < 1:
        raise StudyError(f"A window of {window} tokens holds nothing; give 1 or more, or None.")
    n_windows = 0
    together = np.zeros((len(words), len(words)), np.int64)
    for codes, lengths in _batches(documents, index):
        size = int(lengths.max(initial=1)) if window is None else window
        n_windows += int(np.maximum(lengths - size + 1, 1).sum())
        together += _count_together(codes, lengths, size, len(words))
    return {"windows": n_windows, "occurrences": together.diagonal().copy(), "together": together}


def _batches(
    documents: Iterable[Sequence[str]], index: dict[str, int]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield the words' numbers, -1 for others, and the documents' lengths, in parts."""
    codes: list[int] = []
    lengths: list[int] = []
    for document in documents:
        codes.extend(index.get(token, -1) for token in document)
        lengths.append(len(document))
        if len(codes) >= TOKENS or len(lengths) >= TOKENS:
            yield np.array(codes, np.int64), np.array(lengths, np.int64)
            codes, lengths = [], []
    yield np.array(codes, np.int64), np.array(lengths, np.int64)


def _count_together(
    codes: NDArray[np.int64], lengths: NDArray[np.int64], size: int, n_words: int
) -> NDArray[np.int64]:
    """Count the windows that hold two words; all windows are on one axis, one after another.

    Between two breakpoints no word enters or leaves: those windows are one weighted matrix row.
    """
    word, entry, leave = _stays(codes, lengths, size, n_words)
    breaks = np.unique(np.concatenate([entry, leave]))
    first = np.searchsorted(breaks, entry)
    n_rows = np.searchsorted(breaks, leave) - first
    ends = np.cumsum(n_rows)
    rows = np.arange(n_rows.sum()) + np.repeat(first - ends + n_rows, n_rows)
    columns = np.repeat(word, n_rows)
    shape = (max(len(breaks) - 1, 0), n_words)
    held = sparse.csr_array((np.ones(len(rows), np.int64), (rows, columns)), shape)
    held.data[:] = 1  # a word stands in a window or not
    weighted = held.copy()
    weighted.data = np.repeat(np.diff(breaks), np.diff(held.indptr))
    counts: NDArray[np.int64] = (held.T @ weighted).toarray()
    return counts


def _stays(
    codes: NDArray[np.int64], lengths: NDArray[np.int64], size: int, n_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each token's word, the first window it stands in, and the first it does not.

    It enters as the last token of a window, and leaves when the earliest token of its word in
    that window leaves: gensim forgets the word then.
    """
    at = np.flatnonzero(codes >= 0)
    word = codes[at]
    document = np.repeat(np.arange(len(lengths)), lengths)[at]
    position = at - (np.cumsum(lengths) - lengths)[document]
    entry = np.maximum(position - size + 1, 0)
    span = lengths.max(initial=0) + 1
    group = (document * n_words + word) * span  # one word in one document
    ranked = np.sort(group + position)
    earliest = ranked[np.searchsorted(ranked, group + entry)] - group
    n_windows = np.maximum(lengths - size + 1, 1)
    before = (np.cumsum(n_windows) - n_windows)[document]
    leave = np.minimum(earliest + 1, n_windows[document])
    return word, before + entry, before + leave
