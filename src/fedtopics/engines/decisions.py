"""The log of decisions as one participant has it: to wait for the next one, make it, sign it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NotRequired, TypedDict

from fedtopics.engines.handshake import Introduction
from fedtopics.engines.links import SERVER, Links, Member
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import Replicated
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.errors import FederationError

TICK = 0.25  # seconds between two looks at the time
LOOK = 1.0  # seconds after which who adds looks whether it still does


BEGUN, ADDED, SETTLED = "begun", "added", "settled"  # kinds of decisions


class Begun(TypedDict):
    """Who is in an attempt at a round."""

    turn: int
    attempt: int
    round: int
    members: list[str]
    missing: dict[str, str]
    allowance: int
    certificates: dict[str, bytes]
    keys: dict[str, bytes]


class Added(TypedDict):
    """What an exchange comes to: a total or replies, unless it is done again."""

    index: int
    missing: dict[str, str]
    again: bool
    signatures: dict[str, bytes]
    total: NotRequired[Any]
    replies: NotRequired[Any]


class Settled(TypedDict):
    """Which state most have."""

    index: int
    digest: bytes
    signatures: dict[str, bytes]
    state: dict[str, Any]
    certificates: dict[str, bytes]


DECISIONS: dict[str, Any] = {BEGUN: Begun, ADDED: Added, SETTLED: Settled}


class OvertakenError(Exception):
    """Another participant is to add, or this one anew."""


class Decisions:
    """What was decided, and what is to be: for the program's thread, which waits here.

    `own` is this participant's name, SERVER for who takes no part. One that `keeps` the log does
    not forget what its program has taken, as others may lack it.
    """

    def __init__(
        self, own: str, names: Iterable[str], transport: Transport, introduction: Introduction,
        keeps: bool,
    ) -> None:  # fmt: skip
        self.own = own
        self.inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._links = Links(
            own, names, transport, introduction, self.inbox, self._linked, self._lost
        )
        self._transport = transport
        self._keeps = keeps
        self._replica: Replica | None = None
        self._failure: Exception | None = None
        self._changed = threading.Condition(threading.RLock())
        self._view = 0  # in which a decision is made

    def _linked(self, name: str) -> None:
        """Let the log go on with somebody."""
        self._open_replica.connected(name, self.now())
        self._flush()

    def _lost(self, name: str) -> None:
        self._open_replica.disconnected(name, self.now())
        self._flush()

    def check(self) -> None:
        """Raise what ends the study for this participant, if something does."""
        if self._failure is not None:
            raise self._failure

    def go_on_from(self, failure: FederationError | None) -> None:
        """End what the program does now with an error; with none, it may go on."""
        with self._changed:
            self._failure = failure

    def has(self, index: int) -> bool:
        """Whether a decision is made, for good."""
        with self._changed:
            return self._open_replica.committed >= index

    def is_decided(self, index: int, past: bool = False) -> bool:
        """Whether a decision is made, though it may still be on its way to this participant.

        Of what is `past` for it, a decision in its own log is enough: a process before this one has
        gone on from that, and who comes back need not know yet that it is for good.
        """
        with self._changed:
            known = past and self._log.last >= index
            return known or self.has(index) or self._open_replica.announced >= index

    def may_decide(self, index: int) -> bool:
        """Whether this participant adds, and has all decisions before this one."""
        with self._changed:
            replica = self._open_replica
            return replica.settled and replica.log.last + 1 == index == replica.committed + 1

    def decided(self, index: int) -> Entry | None:
        """Wait for a decision, or for a moment; None if there is none yet."""
        with self._changed:
            if not self.has(index) and not self.may_decide(index):
                self._transport.quiet()
                self._changed.wait(TICK)
            self.check()
            return self._log.entry(index) if self.has(index) else None

    def decide(self, index: int, kind: str, content: Callable[[], bytes]) -> None:
        """Make a decision, if it is this participant's; not, if another one comes to add meanwhile.

        `content` asks what is heard of the others.
        """
        with self._changed:
            if not self.may_decide(index):
                return
            self._view = self._open_replica.view
        with suppress(OvertakenError):
            made = Entry(kind, content())
            with self._changed:
                while self._open_replica.view == self._view and not self.may_decide(index):
                    self.check()  # a majority is away for a moment
                    self._changed.wait(TICK)
                if self._open_replica.view == self._view:
                    self._open_replica.propose(made)
                    self._flush()

    def cut(self, before: int) -> None:
        """Forget decisions that nobody needs: a later checkpoint has what came of them."""
        with self._changed:
            self._open_replica.forget(min(before, self._open_replica.committed))

    def applied(self, index: int) -> None:
        """Forget a decision that was taken, if others have it for this participant."""
        with self._changed:
            if not self._keeps:
                self._open_replica.forget(index)

    def digest_before(self, index: int) -> bytes:
        """Return the digest of all decisions before one."""
        with self._changed:
            return bytes(self._log.digest(index - 1))

    @property
    def members(self) -> dict[str, Member]:
        """The clients of the study by name."""
        return self._links.members

    @property
    def introduction(self) -> Introduction:
        """How this participant introduces itself, signs, and knows the others."""
        return self._links.introduction

    @property
    def _is_peer(self) -> bool:
        """Whether there is no server: nobody can end the study for others."""
        return self._keeps and self.own != SERVER

    @property
    def _open_replica(self) -> Replica:
        if self._replica is None:
            raise FederationError("This participant has not joined a study.")
        return self._replica

    @property
    def _log(self) -> Any:
        return self._open_replica.log

    def _flush(self) -> None:
        """Send what the log's replication has to say; the same to several as one message."""
        before, written = None, None
        for name, message in self._open_replica.take():
            if written is None or message != before:
                before, written = message, Replicated.of(message)
            self._links.send(name, written)

    @staticmethod
    def now() -> float:
        """Return the time of a clock that only goes on."""
        return time.monotonic()
