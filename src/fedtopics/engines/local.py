"""All clients in this process: for simulations, and for one's own documents.

Data go by reference; every reply still leaves through the client's door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedtopics.engines.call_handler import Door
from fedtopics.methods.aggregation import RunningSum, Template
from fedtopics.methods.base import EVERYONE, Draw, T
from fedtopics.methods.events import RoundReport


class LocalClients:
    """The clients' doors by name, called one after the other."""

    def __init__(self, doors: Mapping[str, Door]) -> None:
        self._doors = dict(sorted(doors.items()))
        self._asked = list(self._doors)

    @property
    def names(self) -> list[str]:
        """Names of the clients, sorted."""
        return list(self._doors)

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        return {name: self._doors[name].call(function, payload) for name in self._asked}

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""
        total = RunningSum()  # of a thousand replies, none has to wait for the others
        for name in self._asked:
            total.add(self._doors[name].call(function, payload))
        return total.total()

    def prepare(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """As `sum`: clients in this process do not restart."""
        return self.sum(function, template, **payload)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges; whoever is drawn counts in all of them."""
        self._asked = draw.members(number, self.names, self._doors)
        try:
            return work(), {"clients": self._asked}
        finally:
            self._asked = list(self._doors)
