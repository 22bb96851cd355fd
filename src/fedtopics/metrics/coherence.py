"""Coherence of topics, from counts of words that occur together, as in gensim 4.

Scores: Röder, Both and Hinneburg (2015), Exploring the Space of Topic Coherence Measures, sections
3.3 and 3.4; u_mass: Mimno et al. (2011), Optimizing Semantic Coherence in Topic Models, equation 1,
with probabilities and gensim's epsilon instead of counts and 1.

Counts: Röder et al., section 3.2, and gensim 4.4, WordOccurrenceAccumulator in
topic_coherence/text_analysis.py. When a token leaves the window, its word counts as absent until it
enters again, even if the window contains it a second time. We count in the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError, check_choice, check_number

Measure = Literal["c_v", "npmi", "u_mass"]

WINDOWS: dict[Measure, int | None] = {"c_v": 110, "npmi": 10, "u_mass": None}
EPSILON = 1e-12  # keeps the logarithm of a pair's probability finite
TOKENS = 1 << 15  # tokens counted at once; memory grows with this and the window


class Cooccurrences(TypedDict):
    """Sums over documents: numbers of windows with a word, and with two words."""

    windows: int  # all windows, also those without a word of interest
    occurrences: NDArray[np.int64]  # shape (n_words,)
    together: NDArray[np.int64]
    """Shape (n_words, n_words), symmetric, with the occurrences on its diagonal."""


def count_cooccurrences(
    documents: Iterable[Sequence[str]], words: Sequence[str], window: int | None
) -> Cooccurrences:
    """Count the windows with each word, and with each pair of words, as gensim does.

    The sums of several clients' fields equal those of the pooled texts.

    Parameters
    ----------
    documents : iterable of token lists
        All words in order, also those that are not of interest.
    words : sequence of str, length n_words
        The distinct words of interest; their order gives rows and columns.
    window : int or None
        Tokens in a window, which moves by one token; ``None`` means a whole document. A document
        no longer than the window, even an empty one, is one window.

    Raises
    ------
    DataError, StudyError
        If a word of interest is repeated, or the window is shorter than one token.

    Examples
    --------
    >>> counts = count_cooccurrences([["tea", "with", "milk"], ["tea"]], ["tea", "milk"], 2)
    >>> counts["windows"], counts["occurrences"].tolist(), counts["together"].tolist()
    (3, [2, 1], [[2, 0], [0, 1]])
    """
    index = {word: number for number, word in enumerate(words)}
    if len(index) != len(words):
        raise DataError("A word of interest is given twice; give each word once.")
    check_number(1 if window is None else window, "window")
    return count_numbered(_batches(documents, index), len(words), window)


def count_numbered(
    parts: Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]], n_words: int, window: int | None
) -> Cooccurrences:
    """Count as `count_cooccurrences`, from the words' numbers (-1 for others) and the lengths."""
    n_windows = 0
    together = np.zeros((n_words, n_words), np.int64)
    for codes, lengths in parts:
        size = int(lengths.max(initial=1)) if window is None else window
        n_windows += int(np.maximum(lengths - size + 1, 1).sum())
        together += _count_together(codes, lengths, size, n_words)
    return {"windows": n_windows, "occurrences": together.diagonal().copy(), "together": together}


def _batches(
    documents: Iterable[Sequence[str]], index: dict[str, int]
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Yield the words' numbers (-1 for others) and the documents' lengths, in parts."""
    codes: list[int] = []
    lengths: list[int] = []
    for document in documents:
        codes.extend(index.get(token, -1) for token in document)
        lengths.append(len(document))
        if len(codes) >= TOKENS or len(lengths) >= TOKENS:
            yield np.array(codes, np.int32), np.array(lengths, np.int64)
            codes = []
            lengths = []
    yield np.array(codes, np.int32), np.array(lengths, np.int64)


def _count_together(
    codes: NDArray[np.int32], lengths: NDArray[np.int64], size: int, n_words: int
) -> NDArray[np.int64]:
    """Count windows with two words; windows between two changes form one row with a weight."""
    word, entry, leave = _stays(codes, lengths, size, n_words)
    breaks = np.unique(np.concatenate([entry, leave]))
    first = np.searchsorted(breaks, entry)
    n_rows = np.searchsorted(breaks, leave) - first
    rows = np.arange(n_rows.sum()) + np.repeat(first - np.cumsum(n_rows) + n_rows, n_rows)
    present = sparse.csr_array(
        (np.ones(len(rows), np.int64), (rows, np.repeat(word, n_rows))),
        (max(len(breaks) - 1, 0), n_words),
    )
    present.data[:] = 1  # a word is in a window or not
    weighted = present.copy()
    weighted.data = np.repeat(np.diff(breaks), np.diff(present.indptr))
    return np.asarray((present.T @ weighted).toarray())


def _stays(
    codes: NDArray[np.int32], lengths: NDArray[np.int64], size: int, n_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each token's word, its first window, and the first window without it."""
    # A word leaves with the earliest of its tokens in the window: gensim then forgets the word.
    at = np.flatnonzero(codes >= 0)
    word = codes[at].astype(np.int64)
    document = np.repeat(np.arange(len(lengths)), lengths)[at]
    position = at - (np.cumsum(lengths) - lengths)[document]
    entry = np.maximum(position - size + 1, 0)
    group = (document * n_words + word) * (lengths.max(initial=0) + 1)  # one word in one document
    ranked = np.sort(group + position)
    earliest = ranked[np.searchsorted(ranked, group + entry)] - group
    n_windows = np.maximum(lengths - size + 1, 1)
    before = (np.cumsum(n_windows) - n_windows)[document]
    return word, before + entry, before + np.minimum(earliest + 1, n_windows[document])


def npmi_of_pairs(
    together: NDArray[np.int64], n_windows: int, absent: float = -1.0
) -> NDArray[np.float64]:
    """Return the NPMI of all pairs of words, or `absent` if one of the words occurs nowhere.

    Counts are int64, (n, n), as in `score_pairs`. NPMI on the diagonal is 1 if the word occurs.
    """
    single = together.diagonal() / n_windows
    joint = together / n_windows + EPSILON
    chance = np.outer(single, single)
    ratio = np.divide(joint, chance, out=np.ones_like(joint), where=chance > 0)
    return np.where(chance > 0, np.log(ratio) / -np.log(joint), absent)


def _npmi(together: NDArray[np.int64], n_windows: int) -> float:
    pairs = ~np.eye(len(together), dtype=bool)
    return float(npmi_of_pairs(together, n_windows)[pairs].mean()) if pairs.any() else np.nan


def _c_v(together: NDArray[np.int64], n_windows: int) -> float:
    """Return the mean cosine of each word's NPMI vector with the sum of the topic's vectors."""
    if not len(together):
        return np.nan
    contexts = npmi_of_pairs(together, n_windows, 0.0)
    whole = contexts.sum(0)
    norms = np.linalg.norm(contexts, axis=1) * np.linalg.norm(whole)
    cosines = np.divide(contexts @ whole, norms, out=np.zeros_like(norms), where=norms > 0)
    return float(cosines.mean())


def _u_mass(together: NDArray[np.int64], n_windows: int) -> float:
    """Return the mean log probability of a word given a more important one of its topic."""
    later, earlier = np.tril_indices(len(together), -1)
    if not len(later):
        return np.nan
    alone = together[earlier, earlier] / n_windows
    joint = together[later, earlier] / n_windows + EPSILON
    return float(np.log(np.divide(joint, alone, out=np.ones_like(joint), where=alone > 0)).mean())


_MEASURES: dict[Measure, Callable[[NDArray[np.int64], int], float]] = {
    "c_v": _c_v,
    "npmi": _npmi,
    "u_mass": _u_mass,
}


def score_pairs(
    pairs: Iterable[NDArray[np.int64]], n_windows: int, measure: Measure
) -> NDArray[np.float64]:
    """Score topics as `coherence_of` does, from the counts of each topic's pairs of words.

    `pairs` has an int64 array (n, n) for a topic of n words: numbers of windows with both words,
    and on the diagonal with one word.
    """
    check_choice(measure, "measure", WINDOWS)
    return np.array([_MEASURES[measure](counted, max(n_windows, 1)) for counted in pairs])


def coherence_of(
    topics: Sequence[Sequence[str]],
    documents: Iterable[Sequence[str]],
    measure: Measure,
    window: int | Literal["usual"] | None = "usual",
) -> NDArray[np.float64]:
    """Score how often the words of each topic occur together in documents.

    Parameters
    ----------
    topics : list of n_topics lists of distinct words, the most important first
        All words of a topic are scored; gensim's default is the first 20.
    documents : iterable of token lists
    measure : {"c_v", "npmi", "u_mass"}
        gensim's c_v, c_npmi, u_mass.
    window : int or None
        As in `count_cooccurrences`; "usual" is the measure's window in `WINDOWS`.

    Returns
    -------
    float64 array of shape (n_topics,)
        Higher is better: c_v from -1 to 1, npmi from -1 to 1, u_mass at most about 0. The score is
        nan for a topic with fewer than two words (for c_v, with none). Pairs with a word that
        occurs nowhere have NPMI -1 and score 0 in c_v, where gensim returns infinity and nan.
        u_mass is 0 for a pair whose more important word occurs nowhere, as in gensim.

    Examples
    --------
    >>> texts = [["tea", "milk"], ["tea", "milk"], ["sand"], ["sand", "tea"]]
    >>> coherence_of([["tea", "milk"], ["milk", "sand"]], texts, "npmi", None).round(2).tolist()
    [0.42, -0.95]
    """
    check_choice(measure, "measure", WINDOWS)
    index = {word: i for i, word in enumerate(dict.fromkeys(w for topic in topics for w in topic))}
    size = WINDOWS[measure] if window == "usual" else window
    counts = count_cooccurrences(documents, list(index), size)
    columns_of_topics = ([index[word] for word in topic] for topic in topics)
    pairs = (counts["together"][np.ix_(columns, columns)] for columns in columns_of_topics)
    return score_pairs(pairs, counts["windows"], measure)
