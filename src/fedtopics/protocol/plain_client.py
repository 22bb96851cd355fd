"""A client's connection to the log of a plain server."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedtopics import waiting
from fedtopics.contract.interfaces import Draw
from fedtopics.files import read_bytes, write_durably
from fedtopics.protocol.exchange import Patience, ask_at_last
from fedtopics.protocol.link import Link
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.plain import (
    Attempt,
    Phase,
    PlainAnswer,
    PlainAsk,
    PlainReply,
    Request,
)


@dataclass(eq=False)
class StateError(Exception):
    """The server no longer has entries this old; it sent a checkpoint instead."""

    content: bytes


class Remote:
    """A `Source` of entries over a link; the folder keeps the identity of the run."""

    def __init__(
        self, link: Link, software: str, least: int, folder: Path, patience: Patience
    ) -> None:
        self._link = link
        self._software = software
        self._least = least
        self._path = folder / "run"
        self._run = read_bytes(self._path) if self._path.exists() else b""
        self._patience = patience
        self._found: dict[int, bytes] = {}  # the next entry, if it has arrived
        self._is_live = False  # whether the server waited for the last update
        self._traffic = [0, 0]

    def begin(self, step: int, attempt: Attempt, draw: Draw, left_out: Mapping[str, str]) -> bytes:
        return self._entry(step, None)

    def add(self, step: int, attempt: Attempt, request: Request, own: bytes | None) -> bytes:
        return self._entry(step, own)

    def has(self, step: int) -> bool:
        if not self._is_live and step not in self._found:
            self._take(step, self._ask(step, "begin"))
        return step in self._found

    def traffic(self) -> tuple[int, int]:
        return self._traffic[0], self._traffic[1]

    def _entry(self, step: int, own: bytes | None) -> bytes:
        """Ask until an entry is there; send this client's update when the server asks for it."""
        since = time.monotonic()
        is_wanted = False
        while step not in self._found:
            start = time.monotonic()
            answer = self._ask(step, "begin" if own is None else "reply")
            if answer.what == "reply" and own is not None:
                is_wanted = True
                self._say(encode(PlainReply(step, own)))
            elif not self._take(step, answer) and time.monotonic() - start < waiting.NO_NEWS:
                time.sleep(waiting.NO_NEWS)
            self._patience.waits_for(answer.waiting, since, server_ends=True)
        if own is not None:
            self._is_live = is_wanted
        return self._found.pop(step)

    def _say(self, message: bytes) -> None:
        self._traffic[0] += len(message)
        self._patience(lambda: self._link.say(message))

    def _ask(self, step: int, phase: Phase) -> PlainAnswer:
        question = encode(PlainAsk(self._software, self._run, step, phase, self._least))
        answer = decode(self._patience(lambda: self._link.ask(question)), PlainAnswer)
        if answer.run != self._run:  # before anything is computed, so that runs are never mixed
            write_durably(self._path, answer.run)
            self._run = answer.run
        return answer

    def _take(self, step: int, answer: PlainAnswer) -> bool:
        """Fetch an entry or a checkpoint; return whether it came."""
        if answer.what not in ("entry", "state"):
            return False
        content = self._patience(lambda: self._link.fetch(f"{answer.what} {step}".encode()))
        self._traffic[1] += len(content)
        if content and answer.what == "state":
            raise StateError(content)
        if content:
            self._found = {step: content}
        return bool(content)

    def leave(self, reason: str) -> None:
        self._link.ask(encode(PlainAsk(self._software, self._run, 0, "left", 1, reason)))

    def done(self, step: int) -> None:
        ask_at_last(self._link, encode(PlainAsk(self._software, self._run, step, "done")))
