"""How coherent a federation's topics are: exactly the score of the pooled text, from sums.

`federated_coherence` is the server's half, `count_pairs` a client's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.aggregation import Template
from fedtopics.corpus import Corpus
from fedtopics.metrics import WINDOWS, Measure, count_cooccurrences, pairs_of, score_pairs
from fedtopics.vocabulary import TextRules, tokens

Within = Literal["windows", "documents", "nothing"]
Ask = Callable[..., dict[str, Any]]


def federated_coherence(
    ask: Ask, topics: Sequence[Sequence[str]], within: Within
) -> dict[str, NDArray[np.float64]]:
    """Score topics by what the clients count.

    Parameters
    ----------
    ask : function (template, **payload) -> sum of the replies of `count_pairs`
    topics : list of n_topics lists of n words
    within : {"windows", "documents", "nothing"}
        Where words count as occurring together: in each measure's usual window; in a document,
        where the order of words is lost; or nothing is asked and nothing scored.

    Returns
    -------
    mapping of measure to float64 array of shape (n_topics,)
    """
    if within == "nothing":
        return {}
    sizes = WINDOWS if within == "windows" else dict.fromkeys(WINDOWS, None)
    windows = sorted({size or 0 for size in sizes.values()})
    shape = (len(topics), len(topics[0]), len(topics[0]))
    template: Template = {str(size): {"windows": (), "pairs": shape} for size in windows}
    words = [word for topic in topics for word in topic]
    counts = ask(template, words=words, n_topics=len(topics), windows=windows)

    def score(measure: Measure, size: int | None) -> NDArray[np.float64]:
        counted = counts[str(size or 0)]
        return score_pairs(counted["pairs"], counted["windows"], measure)

    return {measure: score(measure, size) for measure, size in sizes.items()}


def count_pairs(
    corpus: Corpus, text: TextRules, words: list[str], n_topics: int, windows: list[int]
) -> dict[str, Any]:
    """Count in how many windows the words of each topic occur, and occur together.

    Parameters
    ----------
    words : list of str
        Of all topics, one after the other.
    windows : list of int
        Sizes; 0 takes a document as one window.

    Leaves the client
        For each pair of words of a topic, the number of windows that hold both.
    """
    topics = np.array(words, object).reshape(n_topics, -1).tolist()
    counted = list(dict.fromkeys(words))
    reply = {}
    for size in windows:
        documents = (document for batch in tokens(corpus, text) for document in batch)
        counts = count_cooccurrences(documents, counted, size or None)
        pairs = np.array(pairs_of(topics, counts, counted), np.int64)
        reply[str(size)] = {"windows": counts["windows"], "pairs": pairs}
    return reply
