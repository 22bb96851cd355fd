"""All clients in this process, for simulations; every reply still passes the client's door.

LocalClients is the shortest engine: see here what a round is, and when it is repeated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fedtopics.contract.events import Event, Excluded, RoundReport
from fedtopics.contract.interfaces import (
    EVERYONE,
    AgainError,
    Call,
    CallableClient,
    Draw,
    Position,
    T,
)
from fedtopics.contract.replies import ReplyValidator, Template
from fedtopics.errors import DataError
from fedtopics.protocol.outliers import Robust

AtOnce = Callable[[Sequence[str], Call], dict[str, Any] | None]


class LocalClients:
    """Call the clients' doors, one after the other."""

    apart = False

    def __init__(
        self,
        doors: Mapping[str, CallableClient],
        turns: int = 0,
        at_once: AtOnce | None = None,
        robust: Robust | None = None,
        notify: Callable[[Event], None] = lambda _: None,
        hidden: bool = False,
    ) -> None:
        self.hidden = hidden
        self.names = sorted(doors)
        self._doors = doors
        self._drawn = self.names
        self._position = Position(turns, exchange=0)
        self._round: int | None = None  # its number, inside of one
        self._at_once = at_once
        self._robust = robust or Robust("none", notify)
        self._notify = notify
        self._validator = ReplyValidator(len(doors), notify)

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        return self._exchanged(lambda call: dict(self._replies(call, template)), function, payload)

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        return self._exchanged(lambda call: self._sum(call, template), function, payload)

    def tell(self, function: str, **payload: Any) -> None:
        for name in [name for name in self.names if name not in self._validator.excluded]:
            try:
                self._doors[name].repeat(Call(function, payload, self._position))
            except DataError as error:
                if name in self._drawn:
                    raise
                self._validator.excluded[name] = str(error)  # it has no part in the agreement
                self._notify(Excluded(name, self._round or 0, str(error)))

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's steps; the drawn clients take part in all of them."""
        missing = {name: f"excluded: {why}" for name, why in self._validator.excluded.items()}
        self._begin()
        self._round = number
        try:
            while True:
                self._drawn = draw.members(number, self.names, set(self.names) - missing.keys())
                self._validator.begin()
                try:
                    left_out: RoundReport = {"missing": missing} if missing else {}
                    return work(), {"clients": self._drawn, **left_out}
                except AgainError as again:
                    missing |= again.without
                    self._begin(self._position.attempt + 1)
        finally:
            self._round = None

    def _begin(self, attempt: int = 1) -> None:
        self._position = Position(self._position.turn + (attempt == 1), attempt, exchange=0)

    def _exchanged(self, work: Callable[[Call], T], function: str, payload: Mapping[str, Any]) -> T:
        """Do the next exchange; outside a round, it is a round of its own."""
        if self._round is None:
            again = partial(self._exchanged, work, function, payload)
            return self.round(int(payload.get("round", 0)), again)[0]
        self._position = replace(self._position, exchange=self._position.exchange + 1)
        return work(Call(function, payload, self._position))

    def _sum(self, call: Call, template: Template) -> dict[str, Any]:
        if self._at_once is not None and (total := self._at_once(self._drawn, call)) is not None:
            return total
        # Replies are added as they come, so that memory does not grow with clients.
        running = self._robust.sum(
            call.function, template, call.position.exchange, self._round or 0
        )
        for name, reply in self._replies(call, template):
            running.add(reply, name)
        return running.total()

    def _replies(self, call: Call, template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the valid replies; if some are invalid, the round is repeated without them."""
        faults = {}
        for name in self._drawn:
            reply = self._doors[name].call(call)
            if fault := self._validator.fault(name, reply, template):
                faults[name] = fault
            else:
                yield name, reply
        if faults:
            raise AgainError(self._validator.blame(faults, self._drawn, self._round or 0))
