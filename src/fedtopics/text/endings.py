"""Words that differ by their endings alone, in any language: fund and funded, Baum and Baumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STEM, ENDING = 4, 3  # letters: at least so many are the same, and at most so many more follow
ENOUGH = 30  # families that a client is expected to have several words of, by chance
FEW = 0.9  # of those expected: on 20 newsgroups base forms have 0.5 to 0.8, other texts 1.1 to 1.9


def families(words: Sequence[str]) -> list[NDArray[np.int64]]:
    """Return the rows of words of which each is another one and one to three letters more.

    Endings are guessed by spelling: "form" and "formal" are a family, "study" and "studies" not.

    Examples
    --------
    >>> [rows.tolist() for rows in families(["funded", "oak", "fund", "funds", "tree"])]
    [[0, 2, 3]]
    """
    order = sorted((word, row) for row, word in enumerate(words) if word.isalpha())
    first = list(range(len(order)))  # of each word, a word of its family that came before
    for here, (stem, _) in enumerate(order):
        if len(stem) < STEM:
            continue
        for there in range(here + 1, len(order)):
            word = order[there][0]
            if not word.startswith(stem):
                break
            if len(word) - len(stem) <= ENDING:
                first[there] = min(first[there], first[here])
    found: dict[int, list[int]] = {}
    for (_, row), stem_row in zip(order, first, strict=True):
        found.setdefault(stem_row, []).append(row)
    return [np.sort(rows) for rows in found.values() if len(rows) > 1]


def has_one_form(groups: Sequence[NDArray[np.int64]], there: NDArray[np.bool_]) -> bool:
    """Whether documents have one word alone of families, where chance would give them several.

    That is so where they hold base forms and other clients' do not: who has a word in one form has
    it in another more often than by chance. `there`, of shape (n_words,), says which words they
    have.
    """
    alone = np.ones(len(there), bool)
    alone[[row for rows in groups for row in rows]] = False
    share = there[alone].mean() if alone.any() else there.mean()
    sizes = np.array([len(rows) for rows in groups])
    expected = 1 - (1 - share) ** sizes - sizes * share * (1 - share) ** (sizes - 1)
    several = sum(there[rows].sum() > 1 for rows in groups)
    return bool(expected.sum() >= ENOUGH and several < FEW * expected.sum())
