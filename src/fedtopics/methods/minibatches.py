"""Which documents a client takes in which round.

It is a function of the seed, the client's name and the round: a repeated call gives the same
minibatch, and a client that was restarted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError

EVALUATION_BATCH = 1024

Documents = NDArray[np.int64]
"""Their rows."""


class Minibatches:
    """A client's documents, split for training and validation.

    Parameters
    ----------
    known : int64 array
        Rows of the documents with a word; the others are left out of all that follows.
    seed : sequence of int
        The study's seed and the client.
    validation_share : float
        Share of the documents held back.
    smallest : int
        Least number of documents of a minibatch, or of a validation.

    Attributes
    ----------
    training, held : int64 arrays
        Rows to train with, rows held back. A client too small to hold any back validates on
        those it trains with.

    Raises
    ------
    DataError
        If no document has a word.
    """

    def __init__(
        self, known: Documents, seed: Sequence[int], validation_share: float, smallest: int
    ) -> None:
        self._seed = seed
        self._smallest = smallest
        self._epoch = (-1, np.zeros(0, np.int64))
        if len(known) == 0:
            raise DataError(
                "no document has a word of the agreed vocabulary; raise max_words, lower "
                "min_clients of the study, or give more documents."
            )
        known = np.random.default_rng([*seed, 0]).permutation(known)
        held = max(round(validation_share * len(known)), smallest) if validation_share else 0
        if held > 0 and len(known) - held < smallest:
            self.training = self.held = known
        else:
            self.training, self.held = known[held:], known[:held]

    @property
    def known(self) -> Documents:
        """Rows of all documents with a word."""
        return np.union1d(self.training, self.held)

    def size(self, wanted: float) -> int:
        """Return how many documents a minibatch has, when so many are wanted."""
        return min(len(self.training), max(round(wanted), self._smallest))

    def draw(self, number: int, size: int) -> Documents:
        """Return minibatch 1, 2, ...; each epoch is a new permutation of the documents."""
        epoch, place = divmod(number - 1, max(1, len(self.training) // size))
        if self._epoch[0] != epoch:
            rng = np.random.default_rng([*self._seed, 1, epoch])
            self._epoch = (epoch, rng.permutation(self.training))
        return self._epoch[1][place * size : (place + 1) * size]


def in_order(rows: Documents) -> Iterator[Documents]:
    """Hand out documents a thousand at a time."""
    for start in range(0, len(rows), EVALUATION_BATCH):
        yield rows[start : start + EVALUATION_BATCH]
