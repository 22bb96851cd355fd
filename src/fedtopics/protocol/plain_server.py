"""The trusted server of plain aggregation: it collects updates, adds them, and writes the log."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtopics.errors import FederationError
from fedtopics.files import make_folder, open_private, read_bytes
from fedtopics.methods.core.events import (
    BadReply,
    Event,
    Excluded,
    Repeated,
    StatusChange,
    Waiting,
)
from fedtopics.methods.core.interfaces import Draw
from fedtopics.methods.core.outliers import Robust, Rule
from fedtopics.methods.core.replies import BAD_REPLIES, Look, check_blame
from fedtopics.protocol.keys import digest
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.plain import Asked, Attempt, Entry, PlainAnswer, PlainAsk, PlainReply
from fedtopics.protocol.record import Entry as Line
from fedtopics.protocol.record import packed, unpacked
from fedtopics.protocol.relay import HOLD
from fedtopics.protocol.values import dumps, loads

GONE = 45.0  # seconds without a call after which a client is away
LATE = "it was away, or too late"


@dataclass(frozen=True)
class Rules:
    """When rounds count."""

    quorum: int
    join_timeout: float
    quorum_timeout: float
    round_timeout: float
    outliers: Rule = "none"


class Log:
    """The entries on disk, each written before anybody gets it."""

    def __init__(self, folder: Path, first: int) -> None:
        make_folder(folder)
        self._path = folder / "entries"
        self._file: Any = None
        found, whole = unpacked(read_bytes(self._path)) if self._path.exists() else ([], 0)
        self._file = open_private(self._path, "ab", buffering=0)
        self._file.truncate(whole)
        self._entries = {line.step: line.opened[0] for line in found if line.step >= first}
        self.first = min(self._entries, default=first)
        self.next = max(self._entries, default=first - 1) + 1

    def get(self, step: int) -> bytes | None:
        """Return an entry, if it is there."""
        return self._entries.get(step)

    def append(self, entry: Entry) -> bytes:
        """Write the next entry durably."""
        content = dumps(dict(entry))
        self._file.write(packed(Line(self.next, "", [content])))
        os.fsync(self._file.fileno())
        self._entries[self.next] = content
        self.next += 1
        return content

    def cut(self, first: int) -> None:
        """Forget the entries before this one: a checkpoint has what follows from them."""
        self._entries = {step: each for step, each in self._entries.items() if step >= first}
        self.first = first
        self._file.truncate(0)
        for step, content in self._entries.items():
            self._file.write(packed(Line(step, "", [content])))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class PlainServer:
    """A `Service` for clients, and the `Source` of entries of the server's own program.

    Parameters
    ----------
    names : sequence of str
        The clients.
    software : str
        Study, method and versions, which clients have to have as well.
    rules : Rules
    log : Log
    largest : int
        Bytes of an update.
    state : function
        Returns the newest checkpoint for a client that lacks older entries.
    notify : function
        Gets events.
    """

    def __init__(
        self, names: Sequence[str], software: str, rules: Rules, log: Log, largest: int,
        state: Callable[[], bytes], notify: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self.names = sorted(names)
        self._software = software
        self._rules = rules
        self._log = log
        self._largest = largest
        self._state = state
        self._notify = notify
        self._changed = threading.Condition()
        self._called: dict[str, float] = {}
        self._asks: Counter[str] = Counter()
        self._late: set[str] = set()  # missed a deadline, and did not call since
        self._wanted: dict[str, bytes | None] = {}  # the updates of this step, as they come
        self._excluded: dict[str, str] = {}
        self._bad: Counter[str] = Counter()
        self._done: set[str] = set()
        self._robust = Robust(rules.outliers, notify)
        self._look = Look()
        self._traffic = [0, 0]
        self._failure = ""

    # The service

    def ask(self, name: str, message: bytes) -> bytes:
        """Answer a `PlainAsk` within 20 seconds."""
        ask, until = decode(message, PlainAsk), time.monotonic() + HOLD
        if ask.software != self._software:
            raise FederationError(
                f"This member has {ask.software}, the server has {self._software}; use one study "
                "file, and install the same fedtopics."
            )
        if name in self._excluded:
            raise FederationError(f"The server excluded {name}: {self._excluded[name]}.")
        with self._changed:
            if name not in self._called:
                self._notify(StatusChange("joined", name))
            self._asks[name] += 1
            number = self._asks[name]
            self._called[name] = time.monotonic()
            self._late.discard(name)
            if ask.phase == "done":
                self._done.add(name)
            self._changed.notify_all()
            while (answer := self._answer(name, ask)) is None:
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left) or self._asks[name] != number:
                    break
            self._called[name] = time.monotonic()
            return encode(answer or PlainAnswer("", 0, self._waiting()))

    def _answer(self, name: str, ask: PlainAsk) -> PlainAnswer | None:
        if ask.phase == "done":
            return PlainAnswer("")
        if ask.step < self._log.first:
            return PlainAnswer("state", self._largest)
        content = self._log.get(ask.step)
        if content is not None:
            return PlainAnswer("entry", len(content))
        is_open = ask.step == self._log.next and name in self._wanted
        if ask.phase == "reply" and is_open and self._wanted[name] is None:
            return PlainAnswer("reply")
        # A client that finds out whether it has to compute must not wait for the others.
        return PlainAnswer("") if ask.phase == "begin" and is_open else None

    def _waiting(self) -> dict[str, float]:
        now = time.monotonic()
        missing = [name for name, content in self._wanted.items() if content is None]
        missing = missing or [name for name in self.names if name not in self._called]
        return {n: now - self._called[n] if n in self._called else -1.0 for n in missing}

    def say(self, name: str, message: bytes) -> None:
        """Take an update; another one of the same step is refused."""
        reply = decode(message, PlainReply)
        with self._changed:
            if reply.step != self._log.next or name not in self._wanted:
                return
            before = self._wanted[name]
            if before is not None and digest(before) != digest(reply.content):
                raise FederationError(f"{name} sent two different updates of step {reply.step}.")
            self._wanted[name] = reply.content
            self._traffic[1] += len(message)
            self._called[name] = time.monotonic()
            self._changed.notify_all()

    def fetch(self, name: str, what: bytes) -> bytes:
        """Return an entry, or the state."""
        kind, _, step = what.decode("ascii", "replace").partition(" ")
        if kind == "state":
            content = self._state()
        else:
            content = (self._log.get(int(step)) if step.isdigit() else None) or b""
        with self._changed:
            self._traffic[0] += len(content)
        return content

    def most(self, name: str) -> int:
        """Return the most bytes of an update."""
        return self._largest

    def present(self) -> dict[str, float]:
        """Return the seconds since the last call of each client that has called."""
        now = time.monotonic()
        return {name: now - at for name, at in self._called.items()}

    def wait_until_done(self, seconds: float) -> list[str]:
        """Wait until all clients have the model; return who has not after so many seconds."""
        until = time.monotonic() + seconds
        with self._changed:
            while missing := [n for n in self.names if n not in {*self._done, *self._excluded}]:
                if (left := until - time.monotonic()) <= 0:
                    return missing
                self._changed.wait(left)
        return []

    def left(self, name: str) -> None:
        """Take note that a client will not call any more; rounds go on without it."""
        with self._changed:
            if name not in self._done and name not in self._excluded:
                self._excluded[name] = "it ended; its own log says why"
                self._notify(StatusChange("declined", name, self._excluded[name]))
            self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """End the run: nobody will call any more."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()

    def _wait(self, seconds: float) -> None:
        """Wait for news, with the lock held; FederationError if there will be none."""
        if self._failure:
            raise FederationError(f"The run cannot go on: {self._failure}.")
        self._changed.wait(seconds)

    # The source of the server's program

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        return self._traffic[0], self._traffic[1]

    def has(self, step: int) -> bool:
        """Whether an entry is there."""
        return self._log.get(step) is not None

    def done(self, step: int) -> None:
        """Do nothing: the server writes its own model."""

    def _write(self, entry: dict[str, Any]) -> Entry:
        with self._changed:
            self._wanted = {}
            self._log.append(entry)
            self._changed.notify_all()
        return entry

    def begin(self, step: int, turn: int, attempt: int, round_: int, draw: Draw) -> Entry:
        """Decide who takes part in an attempt at a round."""
        if (content := self._log.get(step)) is not None:
            entry: Entry = loads(content)
            return entry
        self._look = Look()
        rules = self._rules
        if turn == 1 and attempt == 1:
            wanted = len(self.names) - len(self._excluded)
            self._wait_for(round_, wanted, rules.join_timeout)
        self._wait_for(round_, rules.quorum, rules.quorum_timeout)
        there = self._available()
        members = draw.members(round_, self.names, there)
        if len(members) < rules.quorum:
            raise FederationError(
                f"Round {round_} has fewer than quorum = {rules.quorum} clients "
                f"({', '.join(members) or 'none'}). Start the server again when the others are "
                "back, or lower quorum in the study's [federation]."
            )
        drawn = draw.members(round_, self.names, self.names)
        missing = {n: self._excluded.get(n, LATE) for n in drawn if n not in members}
        return self._write({"members": members, "missing": missing, "content": b""})

    def _available(self) -> list[str]:
        now = time.monotonic()
        return [
            name
            for name in self.names
            if name not in self._excluded
            and name not in self._late
            and now - self._called.get(name, -GONE) < GONE
        ]

    def _wait_for(self, round_: int, wanted: int, seconds: float) -> None:
        until, shown = time.monotonic() + seconds, list[str]()
        with self._changed:
            while len(there := self._available()) < wanted:
                if there != shown or not shown:
                    shown = there
                    away = [n for n in self.names if n not in there]
                    states = {n: self._excluded.get(n, "not connected") for n in away}
                    self._notify(Waiting(round_, there, states))
                left = until - time.monotonic()
                if left <= 0 or len(self.names) - len(self._excluded) < wanted:
                    return
                self._wait(min(left, 1.0))

    def add(
        self, step: int, attempt: Attempt, asked: Asked, own: Callable[[], bytes] | None
    ) -> Entry:
        """Collect the updates of a step, and write what they come to."""
        if (content := self._log.get(step)) is not None:
            entry: Entry = loads(content)
            return entry
        total = self._robust.sum(
            asked.function, asked.template, attempt.exchanges + 1, attempt.round
        )
        replies, faults, lost = dict[str, Any](), dict[str, str](), dict[str, str]()
        until = time.monotonic() + self._rules.round_timeout
        with self._changed:
            self._wanted = dict.fromkeys(attempt.members)
            self._changed.notify_all()
        for name in attempt.members:  # in this order: the order of arrival changes no bit
            content = self._received(name, until)
            if content is None:
                lost[name] = LATE
                continue
            if fault := self._taken(name, content, asked, replies):
                faults[name] = f"sent a bad reply: {fault}"
            elif not asked.one_by_one:
                total.add(name, replies.pop(name))
        if faults:
            check_blame(faults, attempt.members, len(self.names))
        for name, reason in faults.items():
            self._count(attempt.round, name, reason)
        self._late |= lost.keys()
        missing = {**lost, **faults}
        left = len(attempt.members) - len(missing)
        again = bool(faults or (lost and attempt.exchanges) or left < self._rules.quorum)
        if again:
            self._notify(Repeated(attempt.round, missing))
        found: Any = {} if again else replies if asked.one_by_one else total.total()
        return self._write({"missing": missing, "again": again, "content": dumps(found)})

    def _received(self, name: str, until: float) -> bytes | None:
        with self._changed:
            while (content := self._wanted[name]) is None:
                if (left := until - time.monotonic()) <= 0:
                    return None
                if name in self._excluded:
                    return None
                self._wait(left)
            return content

    def _taken(self, name: str, content: bytes, asked: Asked, replies: dict[str, Any]) -> str:
        """Read an update; return what is wrong with it."""
        try:
            replies[name] = loads(content, self._largest)
        except FederationError:
            return "it is damaged"
        fault = self._look.fault(name, replies[name], asked.template)
        if fault:
            del replies[name]
        return fault

    def _count(self, round_: int, name: str, reason: str) -> None:
        self._bad[name] += 1
        self._notify(BadReply(name, round_, reason))
        if self._bad[name] == BAD_REPLIES:
            self._excluded[name] = f"{BAD_REPLIES} bad replies, the last: {reason}"
            self._notify(Excluded(name, round_, self._excluded[name]))
