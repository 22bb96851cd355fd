"""The documents that a client trains on in a round, and those held out for validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedtopics.errors import DataError
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.settings import MinibatchSettings


class Minibatches:
    """Rows of a client's usable documents: for `training`, and `held` out (the same if few)."""

    def __init__(
        self,
        usable: Documents,
        secret: Secret,
        wanted: float,
        validation_share: float = 0.0,
        smallest: int = 1,
    ) -> None:
        self._secret = secret
        self._epoch = (-1, np.zeros(0, np.int64))
        if len(usable) == 0:
            raise DataError(
                "no document contains a word of the agreed vocabulary that enough documents have; "
                "give more documents, raise max_words, or lower min_clients_per_word or "
                "min_document_frequency."
            )
        shuffled = secret.rng("validation").permutation(usable)
        n_held = max(round(validation_share * len(usable)), smallest) if validation_share else 0
        if n_held > 0 and len(usable) - n_held < smallest:
            self.training = self.held = shuffled
        else:
            self.training = shuffled[n_held:]
            self.held = shuffled[:n_held]
        self.size = min(len(self.training), max(round(wanted), smallest))

    @classmethod
    def of(
        cls, client: TopicClient[Any], share: float, validation_share: float = 0.0
    ) -> Minibatches:
        """Split a client's documents; `share` is its part of a round's documents."""
        settings: MinibatchSettings = client.settings
        wanted = settings.batch_size * (share if settings.batch_split == "proportional" else 1)
        return cls(
            client.usable,
            client.secret,
            wanted=wanted,
            validation_share=validation_share,
            smallest=client.min_documents,
        )

    def draw(self, number: int, attempt: int = 1) -> Documents:
        """Return minibatch 1, 2, ...; a repeated attempt uses other documents."""
        if attempt > 1:
            rng = self._secret.rng("minibatch", number, attempt)
            return rng.choice(self.training, self.size, replace=False)
        epoch, place = divmod(number - 1, max(1, len(self.training) // self.size))
        if self._epoch[0] != epoch:
            rng = self._secret.rng("epoch", epoch)
            self._epoch = (epoch, rng.permutation(self.training))
        return self._epoch[1][place * self.size : (place + 1) * self.size]
