"""Clients that train on minibatches of their documents.

A round's minibatch is a function of the client's secret, the round and the attempt at it alone: a
repeated call gives the same reply, also after a restart of the client. An attempt after the first
has documents of its own: two sums that differ by a client are not over the same ones.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from fedtopics.errors import DataError
from fedtopics.methods.core.client import Documents, leaves
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.settings import MinibatchSettings
from fedtopics.methods.lda.first_topics import project
from fedtopics.methods.nmf.client import CALLS_BEFORE, Factoring

Settings = TypeVar("Settings", bound=MinibatchSettings)


class Minibatches:
    """Rows of a client's usable documents, for `training` or `held` back for validation.

    With too few documents both are the same; DataError if there are none. A minibatch, or a
    validation, has at least the `smallest` number of documents.
    """

    def __init__(
        self, usable: Documents, secret: Secret, validation_share: float, smallest: int
    ) -> None:
        self._secret = secret
        self._smallest = smallest
        self._epoch = (-1, np.zeros(0, np.int64))
        if len(usable) == 0:
            raise DataError(
                "no document has a word of the agreed vocabulary that enough of them have; raise "
                "max_words, lower min_clients or min_document_frequency, or give more documents."
            )
        shuffled = secret.rng("validation").permutation(usable)
        held = max(round(validation_share * len(usable)), smallest) if validation_share else 0
        if held > 0 and len(usable) - held < smallest:
            self.training = self.held = shuffled
        else:
            self.training, self.held = shuffled[held:], shuffled[:held]

    def size(self, wanted: float) -> int:
        """Return the number of documents of a minibatch, as near to the wanted one as possible."""
        return min(len(self.training), max(round(wanted), self._smallest))

    def draw(self, number: int, size: int, attempt: int = 1) -> Documents:
        """Return minibatch 1, 2, ...; each epoch is a new permutation of the documents.

        Of a later attempt it is a sample by itself.
        """
        if attempt > 1:
            rng = self._secret.rng("minibatch", number, attempt)
            return rng.choice(self.training, size, replace=False)
        epoch, place = divmod(number - 1, max(1, len(self.training) // size))
        if self._epoch[0] != epoch:
            rng = self._secret.rng("epoch", epoch)
            self._epoch = (epoch, rng.permutation(self.training))
        return self._epoch[1][place * size : (place + 1) * size]


class MinibatchClient(Factoring[Settings]):
    """A client that trains on minibatches of its documents."""

    held_back = 0.0  # share of the documents that training does not see

    @classmethod
    def schedule(cls, settings: Settings) -> dict[str, str]:
        """Return how often a study with these settings calls which function."""
        calls = super().schedule(settings)
        if settings.initialisation == "anchors":
            calls["projections"] = "once, before the first round"
        return calls | (CALLS_BEFORE if settings.initialisation == "nmf" else {})

    def split(self, documents: int, total: int) -> int:
        """Hold documents back for validation; set the size of minibatches."""
        self.minibatches = Minibatches(self.usable, self.secret, self.held_back, self.min_documents)
        proportional = self.settings.batch_split == "proportional"
        part = documents / total if proportional else 1
        self._size = self.minibatches.size(self.settings.batch_size * part)
        return len(self.minibatches.training)

    @leaves(
        "For each word that enough of the documents have: 300 random mixtures of how often other "
        "words stand in a document with it, the number of documents, and its summed share of "
        "their words; zeros for other words. Where texts are short or words few, that is as good "
        "as counts of pairs of words, down to one document."
    )
    def projections(self, vocabulary: str) -> dict[str, Any]:
        """Sum what stands beside each word in a document, in a random projection."""
        self.check(vocabulary)
        sums = project(self.bag, self._public_seed)
        return sums | {"documents": self.bag.shape[0]}

    def minibatch(self, vocabulary: str, number: int) -> Documents:
        """Return the documents of a round."""
        self.check(vocabulary)
        return self.minibatches.draw(number, self._size, self.attempt)
