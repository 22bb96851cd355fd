"""The documents that a client trains on in a round, and those held out for validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedtopics.contract.published import Over
from fedtopics.errors import DataError
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import Documents, TopicClient
from fedtopics.methods.core.plan import Secret
from fedtopics.methods.core.settings import MinibatchSettings


def drawn_persons(agreement: Agreement, _: Mapping[str, Any]) -> int:
    """Return of how many persons a total of minibatches, or what it leaves out, is at least.

    The total of all documents less one of minibatches is that of the documents left out.
    """
    settings = cast("MinibatchSettings", agreement.settings)
    share = getattr(settings, "validation_share", 0.0)
    total = 0
    left_out = 0
    for name, n in agreement.persons.items():
        held = max(round(share * n), agreement.least) if share else 0
        drawn = number_drawn(
            round(settings.drawn(agreement.sizes[name] / max(agreement.documents, 1))),
            n - held,
            agreement.least,
        )
        total += drawn
        left_out += n - held - drawn
    return min(total, left_out) if left_out else total


def number_drawn(wanted: int, persons: int, smallest: int) -> int:
    """Return of how many persons a minibatch is: of all, or of so many that enough are left out."""
    most = persons - smallest
    return persons if wanted > most or smallest > most else max(wanted, smallest)


MINIBATCH = Over("a minibatch", drawn_persons)
MINIBATCHES = Over("several minibatches", drawn_persons)
HELD_OUT = Over(
    "held-out documents",
    lambda agreement, _: sum(
        round(agreement.settings.validation_share * n) for n in agreement.persons.values()
    ),
)


class Minibatches:
    """Rows of a client's usable documents: for `training`, and `held` out (the same if few).

    All documents of a person are on the same side. A minibatch has one document of a person, or
    all documents: those that it leaves out are of `smallest` persons or more.
    """

    def __init__(
        self,
        usable: Documents,
        secret: Secret,
        wanted: float,
        validation_share: float = 0.0,
        smallest: int = 1,
        owners: Documents | None = None,
    ) -> None:
        self._secret = secret
        if len(usable) == 0:
            raise DataError(
                "no document contains a word of the agreed vocabulary that enough documents have; "
                "give more documents, or raise max_words."
            )
        whose = np.arange(len(usable)) if owners is None else owners
        people = secret.rng("validation").permutation(np.unique(whose))
        n_held = max(round(validation_share * len(people)), smallest) if validation_share else 0
        too_few = n_held > 0 and len(people) - n_held < smallest
        held, training = (people, people) if too_few else (people[:n_held], people[n_held:])

        self._owners = owners
        self._usable = usable
        self._places = np.flatnonzero(np.isin(whose, training))  # in `usable`, of the training
        self.training, self.held = (
            usable[part if owners is None else np.isin(owners, part)] for part in (training, held)
        )
        self._n_persons = len(training)
        self.size = number_drawn(round(min(wanted, len(training))), len(training), smallest)

    @classmethod
    def of(
        cls, client: TopicClient[Any], share: float, validation_share: float = 0.0
    ) -> Minibatches:
        """Split a client's documents; `share` is its part of a round's documents."""
        return cls(
            client.usable,
            client.secret,
            wanted=client.settings.drawn(share),
            validation_share=validation_share,
            smallest=client.min_persons,
            owners=client.corpus.owners_of(client.usable),
        )

    def draw(self, number: int, attempt: int = 1) -> Documents:
        """Return minibatch 1, 2, ...; a repeated attempt uses other documents.

        Each is drawn by itself: if minibatches divided an epoch, the documents in none of them
        could be computed.
        """
        if self.size == self._n_persons:
            return self.training
        rng = self._secret.rng("minibatch", number, attempt)
        if self._owners is None:
            return rng.choice(self.training, self.size, replace=False)
        # The first documents of a random order, one of each person.
        order = rng.permutation(self._places)
        first = np.unique(self._owners[order], return_index=True)[1]
        return np.asarray(self._usable[order[np.sort(first)[: self.size]]])
