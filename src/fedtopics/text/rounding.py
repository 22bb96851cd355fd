"""Numbers of a model that do not tell what one document or person adds to them.

A reader of two models, one without a document, could subtract exact counts and read the document's
words. Rounded to the nearest multiple, fewer counts change, but each change is true. Rounded up or
down by lot, as many change by chance. The coins follow from all exact
totals, which change with every document: all members draw the same. Those of a group also follow
from its own size, not from its place: a run with another seed, which finds the same groups in
another order, gives the same numbers, so runs cannot be averaged.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.files import digest

Numbers = NDArray[Any]
CELL_STEP = 2.0  # of sums by topic and word
POINT_STEP = 0.5  # of sums of vectors of length 1: too coarse for the vector of a document
UNIT = 10  # counts are multiples of it, and have two digits from 100
NOT_ROUNDED = 100  # documents of a single client, below which a model is an example


def steps_of(counts: Numbers) -> NDArray[np.float64]:
    """Return of what each count is rounded to a multiple."""
    powers = np.floor(np.log10(np.maximum(counts, 1))) - 1
    return np.asarray(np.maximum(10.0**powers, UNIT))


def rounded(counts: Numbers) -> NDArray[np.int64]:
    """Round counts up or down by lot to multiples of 10, or two digits; none but 0 is below 10."""
    exact = whole(counts)
    steps = steps_of(exact)
    multiples = by_lot((exact / steps).ravel(), coins_of(exact), exact.ravel())
    multiples = multiples.reshape(exact.shape) * steps
    return np.where(exact > 0, np.maximum(multiples, UNIT), 0).astype(np.int64)


def coins_of(exact: Numbers) -> str:
    """Return the seed of coins: a digest of whole totals, in whatever order."""
    return digest(np.sort(exact.ravel()).tobytes().hex())


def by_lot(numbers: Numbers, coins: str, sizes: Numbers) -> NDArray[np.float64]:
    """Round each number up or down by lot, to itself on average.

    Numbers of a row (of the first axis) have coins that follow from the row's whole size.
    """
    drawn = {
        size: np.random.default_rng([int(coins, 16), size]).random(numbers.shape[1:])
        for size in set(sizes.tolist())
    }
    return np.asarray(np.floor(numbers + np.array([drawn[size] for size in sizes.tolist()])))


def rounded_by_word(word_sums: Numbers, occurrences: Numbers) -> NDArray[np.float64]:
    """Return sums (n_topics, n_words), each rounded by lot, and so their totals by word.

    Where totals are the vocabulary's `occurrences`, up to the rounding of these, they remain so.
    """
    totals = word_sums.sum(0)
    is_same = np.abs(totals - occurrences) <= steps_of(occurrences)
    cells = by_lot(word_sums / CELL_STEP, coins_of(np.rint(totals)), whole(word_sums.sum(1)))
    # A word of which nothing is left belongs to its first topic.
    cells[word_sums.argmax(0), np.arange(len(totals))] += cells.sum(0) == 0
    return np.asarray(cells / cells.sum(0) * np.where(is_same, occurrences, rounded(totals)))


def whole(numbers: Numbers) -> NDArray[np.int64]:
    return np.rint(numbers).astype(np.int64)


def at_most(counts: Numbers) -> NDArray[np.float64]:
    """Return what rounded counts were at most."""
    return np.asarray(counts + steps_of(counts))


def at_least(counts: Numbers) -> NDArray[np.float64]:
    """Return what rounded counts were at least."""
    return np.asarray(np.maximum(counts - steps_of(counts), 0))


def is_example(documents: int, n_clients: int) -> bool:
    """Whether these documents are so few, of a single client, that their counts are not rounded."""
    return n_clients == 1 and documents < NOT_ROUNDED
