"""A client's way to the log of a plain server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedtopics.methods.core.events import Event, WaitsFor
from fedtopics.methods.core.interfaces import Draw
from fedtopics.protocol.exchange import IDLE, QUIET, STAY, Patience
from fedtopics.protocol.link import Link, LinkError
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.plain import Asked, Attempt, Entry, PlainAnswer, PlainAsk, PlainReply
from fedtopics.protocol.values import loads


class StateError(Exception):
    """The server has no entries this old any more; it sent a checkpoint instead."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content


class Remote:
    """A `Source` of entries over a link."""

    def __init__(
        self, link: Link, software: str, patience: Patience, notify: Callable[[Event], None]
    ) -> None:
        self._link = link
        self._software = software
        self._patience = patience
        self._notify = notify
        self._next: tuple[int, Entry] | None = None
        self._is_live = False  # whether the server waited for the last update
        self._traffic = [0, 0]

    def begin(self, step: int, turn: int, attempt: int, round_: int, draw: Draw) -> Entry:
        """See `Source.begin`."""
        return self._entry(step, None)

    def add(
        self, step: int, attempt: Attempt, asked: Asked, own: Callable[[], bytes] | None
    ) -> Entry:
        """See `Source.add`."""
        return self._entry(step, own)

    def has(self, step: int) -> bool:
        """See `Source.has`."""
        if self._is_live:
            return False
        if self._next is None or self._next[0] != step:
            answer = self._ask(step, "begin")
            if answer.what in ("entry", "state"):
                self._take(step, answer)
        return self._next is not None and self._next[0] == step

    def traffic(self) -> tuple[int, int]:
        """See `Source.traffic`."""
        return self._traffic[0], self._traffic[1]

    def _entry(self, step: int, own: Callable[[], bytes] | None) -> Entry:
        content = None if own is None else own()
        since = shown = time.monotonic()
        is_late = content is not None
        while self._next is None or self._next[0] != step:
            asked = time.monotonic()
            answer = self._ask(step, "begin" if content is None else "reply")
            if answer.what in ("entry", "state"):
                self._take(step, answer)
            elif answer.what == "reply" and content is not None:
                is_late = False
                message = encode(PlainReply(step, content))
                self._traffic[0] += len(message)
                self._patience(lambda message=message: self._link.say(message))  # type: ignore[misc]
            elif time.monotonic() - asked < IDLE:
                time.sleep(IDLE)
            if answer.waiting and time.monotonic() - shown > QUIET:
                shown = time.monotonic()
                self._notify(WaitsFor(answer.waiting, shown - since))
        if content is not None:
            self._is_live = not is_late
        return self._next[1]

    def _ask(self, step: int, phase: Any) -> PlainAnswer:
        question = encode(PlainAsk(self._software, step, phase))
        return decode(self._patience(lambda: self._link.ask(question)), PlainAnswer)

    def _take(self, step: int, answer: PlainAnswer) -> None:
        what = f"{answer.what} {step}".encode()
        content = self._patience(lambda: self._link.fetch(what, answer.size))
        self._traffic[1] += len(content)
        if not content:
            return
        if answer.what == "state":
            raise StateError(content)
        self._next = step, loads(content)

    def done(self, step: int) -> None:
        """Let the server know that this client has the model."""
        until = time.monotonic() + STAY
        while time.monotonic() < until:
            try:
                self._link.ask(encode(PlainAsk(self._software, step, "done")))
                return
            except LinkError:
                time.sleep(IDLE)
