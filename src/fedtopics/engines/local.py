"""All clients in this process: for simulations, and for one's own documents.

Data go by reference; every reply still leaves through the client's door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedtopics.methods.aggregation import RunningSum, SharedPayload
from fedtopics.methods.base import EVERYONE, Checkpoint, Door, Draw, Moment, T
from fedtopics.methods.events import RoundReport
from fedtopics.methods.replies import Template

AtOnce = Callable[[Sequence[str], str, Mapping[str, Any], Moment], dict[str, Any] | None]


class LocalClients:
    """The clients' doors by name, called one after the other.

    `turns` are those of the processes before this one, in a run that is resumed. `at_once` returns
    the sum of some clients' replies where it can be computed without each of them, or None.
    """

    def __init__(
        self, doors: Mapping[str, Door], turns: int = 0, at_once: AtOnce | None = None
    ) -> None:
        self._doors = dict(sorted(doors.items()))
        self._asked = list(self._doors)
        self._moment = Moment(turns, exchange=0)
        self._in_round = False
        self._at_once = at_once

    @property
    def names(self) -> list[str]:
        """Names of the clients, sorted."""
        return list(self._doors)

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        moment, shared = self._next(), SharedPayload(payload)
        return {name: self._doors[name].call(function, shared, moment) for name in self._asked}

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""
        moment, shared = self._next(), SharedPayload(payload)
        at_once = self._at_once and self._at_once(self._asked, function, shared, moment)
        if at_once is not None:
            return at_once
        total = RunningSum()  # of a thousand replies, none has to wait for the others
        for name in self._asked:
            total.add(self._doors[name].call(function, shared, moment))
        return total.total()

    def tell(self, function: str, **payload: Any) -> None:
        """Let the halves of all clients execute a function; nothing leaves."""
        for door in self._doors.values():
            door.repeat(function, payload, self._moment)

    def settle(self, round_: int, state: Callable[[], Checkpoint | None]) -> None:
        """Do nothing: there is one program, with one state."""

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges; whoever is drawn counts in all of them."""
        self._asked = draw.members(number, self.names, self._doors)
        self._begin()
        self._in_round = True
        try:
            return work(), {"clients": self._asked}
        finally:
            self._asked = list(self._doors)
            self._in_round = False

    def _begin(self) -> None:
        self._moment = Moment(self._moment.turn + 1, exchange=0)

    def _next(self) -> Moment:
        if not self._in_round:  # an exchange by itself is a round by itself
            self._begin()
        self._moment = replace(self._moment, exchange=self._moment.exchange + 1)
        return self._moment
