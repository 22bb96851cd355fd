"""A compiled pass over documents, which counts the persons with each word."""

from typing import Any

import numpy as np

from fedtopics.extras import compiled


@compiled
def count_persons(ends: Any, columns: Any, order: Any, owners: Any, persons: Any) -> None:
    """Add to `persons` one for each person with a word, (n_words,).

    Parameters
    ----------
    ends, columns : arrays of integers
        Where the words of each document end, and which they are, as in a ``csr_array``.
    order, owners : arrays of integers, (n_documents,)
        The documents in the order of their persons, and each document's person.
    persons : array of int64, (n_words,)
        Zeros at first.
    """
    last = np.full(len(persons), -1, np.int64)  # the last person with each word
    for row in order:
        for place in range(ends[row], ends[row + 1]):
            column = columns[place]
            if last[column] != owners[row]:
                last[column] = owners[row]
                persons[column] += 1
