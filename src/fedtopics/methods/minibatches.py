"""Which documents a client takes in which round, and with what noise.

All of it is a function of the seed, the client's name and the round: a repeated call gives the
same minibatch, and a client that was restarted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError
from fedtopics.networks import Batch, NeuralTopicModel, Noise

EVALUATION_BATCH = 1024


class Minibatches:
    """A client's documents as bags of words, split for training and validation.

    Parameters
    ----------
    bag : float32 CSR array of shape (n_documents, n_words)
        Documents without a word are left out of all that follows.
    embeddings : float array of shape (n_documents, dimension) or None
    network : NeuralTopicModel
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
        self,
        bag: sparse.csr_array,
        embeddings: NDArray[np.floating[Any]] | None,
        network: NeuralTopicModel,
        seed: Sequence[int],
        validation_share: float,
        smallest: int,
    ) -> None:
        self._bag = bag
        self._embeddings = embeddings
        self._network = network
        self._seed = seed
        self._smallest = smallest
        self._epoch = (-1, np.zeros(0, np.int64))
        known = np.flatnonzero(np.diff(bag.indptr))
        if len(known) == 0:
            raise DataError(
                "no document has a word of the agreed vocabulary; raise max_words, or lower "
                "min_clients of the study."
            )
        known = np.random.default_rng([*seed, 0]).permutation(known)
        held = max(round(validation_share * len(known)), smallest) if validation_share else 0
        if held > 0 and len(known) - held < smallest:
            self.training = self.held = known
        else:
            self.training, self.held = known[held:], known[:held]

    @property
    def known(self) -> NDArray[np.int64]:
        """Rows of all documents with a word."""
        return np.union1d(self.training, self.held)

    def size(self, wanted: float) -> int:
        """Return how many documents a minibatch has, when so many are wanted."""
        return min(len(self.training), max(round(wanted), self._smallest))

    def draw(self, number: int, size: int) -> Batch:
        """Return minibatch 1, 2, ...; each epoch is a new permutation of the documents."""
        epoch, place = divmod(number - 1, max(1, len(self.training) // size))
        if self._epoch[0] != epoch:
            rng = np.random.default_rng([*self._seed, 1, epoch])
            self._epoch = (epoch, rng.permutation(self.training))
        rows = self._epoch[1][place * size : (place + 1) * size]
        noise = self._network.draw(np.random.default_rng([*self._seed, 2, number]), len(rows))
        return self._batch(rows, noise)

    def in_order(self, rows: NDArray[np.int64]) -> Iterator[Batch]:
        """Hand out these documents without noise, a thousand at a time."""
        for start in range(0, len(rows), EVALUATION_BATCH):
            yield self._batch(rows[start : start + EVALUATION_BATCH], None)

    def _batch(self, rows: NDArray[np.int64], noise: Noise | None) -> Batch:
        embeddings = None if self._embeddings is None else self._embeddings[rows]
        return self._network.batch(self._bag[rows], noise, embeddings)
