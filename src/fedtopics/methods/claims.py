"""How many documents clients say that they have, which nobody else can count.

Who has more counts for more: of sums, and of a round's documents. Who says that it has a thousand
times as many as the median client would be all of the model, and leave to the others' minibatches
next to nothing. Nobody needs the others to train such a model: it is a mistake or a lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedtopics.methods.base import EVERYONE, Checkpoint, Clients, Draw, T
from fedtopics.methods.events import Claimed, RoundReport
from fedtopics.methods.replies import Template

NOTABLE, ABSURD = 10, 1000  # times the median client's documents: of which it is told, or left out
FEWEST = 3  # clients, of which one can be told from the others


def claims(sizes: Mapping[str, int]) -> list[Claimed]:
    """Return who says that it has many more documents than the median client."""
    if len(sizes) < FEWEST:
        return []
    usual = max(float(np.median([*sizes.values()])), 1.0)
    return [
        Claimed(name, size, size / usual, left_out=size > ABSURD * usual)
        for name, size in sorted(sizes.items())
        if size > NOTABLE * usual
    ]


class Without:
    """The clients of a study, but for some that are in no round, nor in what is asked between."""

    def __init__(self, clients: Clients, left_out: Sequence[str]) -> None:
        self._clients = clients
        self._left_out = frozenset(left_out)
        self._in_round = False

    @property
    def names(self) -> Sequence[str]:
        """Names of the others, sorted."""
        return [name for name in self._clients.names if name not in self._left_out]

    @property
    def hidden(self) -> bool:
        """As of `Clients`."""
        return self._clients.hidden

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every other client."""
        return self._exchanged(lambda: self._clients.call(function, template, **payload), payload)

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Sum the replies of every other client."""
        return self._exchanged(lambda: self._clients.sum(function, template, **payload), payload)

    def tell(self, function: str, **payload: Any) -> None:
        """As of `Clients`: of who is left out, nothing is asked."""
        self._clients.tell(function, **payload)

    def settle(self, round_: int, state: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """As of `Clients`."""
        return self._clients.settle(round_, state)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round without who is left out."""
        self._in_round = True
        try:
            return self._clients.round(number, work, replace(draw, without=self._left_out))
        finally:
            self._in_round = False

    def _exchanged(self, work: Callable[[], T], payload: Mapping[str, Any]) -> T:
        """Do an exchange; by itself it is a round by itself, of which some are left out."""
        return work() if self._in_round else self.round(int(payload.get("round", 0)), work)[0]
