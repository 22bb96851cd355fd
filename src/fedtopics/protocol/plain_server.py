"""The calls of clients to the trusted server of plain aggregation."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedtopics import waiting
from fedtopics.contract.events import Event, StatusChange
from fedtopics.errors import FederationError, RunError, refuse
from fedtopics.protocol.client_side import CAUSES
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.plain import PlainAnswer, PlainAsk, PlainReply, What
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.values import dumps

ABSENT = "not connected"
ENDED = "it ended; its own log gives the reason"


@dataclass
class Caller:
    """The state of one client at the server."""

    asks: int = 0
    # When it has to call again: never, while it computes with what it got.
    due: float = -math.inf
    away: str = ""  # why nobody waits for it until it calls
    excluded: str = ""  # why nobody waits for it any more
    least: int = 1  # clients that its policy requires in a sum
    is_done: bool = False

    def absence(self) -> str:
        """Return why the client is absent, "" if it is there."""
        return self.excluded or self.away or ("" if time.monotonic() < self.due else ABSENT)


class PlainServer:
    """A `Service` for clients; the server's own program opens steps, takes updates, publishes."""

    def __init__(
        self,
        names: Sequence[str],
        software: str,
        log: Log,
        largest: int,
        state: Callable[[], bytes],
        notify: Callable[[Event], None],
    ) -> None:
        self.names = sorted(names)
        self.log = log
        self.largest = largest
        self.clients = {name: Caller() for name in self.names}
        self.changed = threading.Condition()
        self.awaited: Sequence[str] = ()  # clients that a round needs to begin
        self.traffic = (0, 0)  # bytes sent and received
        self._software = software
        self._state = state
        self._notify = notify
        self._wanted: dict[str, bytes | None] = {}  # the updates of this step, until they are read
        self._digests: dict[str, bytes] = {}  # of the updates received
        self._failure = ""

    # The calls of clients

    def ask(self, name: str, message: bytes) -> bytes:
        """Answer a `PlainAsk` within 20 seconds; a newer one replaces it."""
        ask = decode(message, PlainAsk)
        with self.changed:
            client = self._met(name, ask)
            number = client.asks
            self.changed.wait_for(
                lambda: client.asks != number or self._answer(name, ask) is not None,
                waiting.ASK_HELD,
            )
            answer = self._answer(name, ask)
            if client.asks == number:
                client.due = time.monotonic() + waiting.AWAY if answer is None else math.inf
            return encode(answer or PlainAnswer("", self.log.run, self._waiting()))

    def _met(self, name: str, ask: PlainAsk) -> Caller:
        """Record a call. FederationError if it belongs to another study or run."""
        client = self.clients.setdefault(name, Caller())  # an observer is new here
        is_other = bool(ask.run or ask.step) and ask.run != self.log.run
        refuse(
            {
                f"This member has {ask.software}, the server has {self._software}; use the same "
                "study file and the same version of fedtopics.": ask.software != self._software,
                "The server's folder belongs to another run than this member's, or is an older "
                "copy; restore it, or start a new run: set run in the study to the next number.": (
                    is_other or ask.step > self.log.next
                ),
                f"The server excluded {name}: {client.excluded}.": client.excluded != "",
            },
            FederationError,
        )
        if client.absence():
            self._notify(StatusChange("joined", name))
        client.asks += 1
        client.due = math.inf
        client.away = ""
        client.least = ask.least
        client.is_done |= ask.phase == "done"
        if ask.phase == "left":
            client.away = ask.reason if ask.reason in CAUSES.values() else ENDED
            self._notify(StatusChange("declined", name, client.away))
        self.changed.notify_all()
        return client

    def _answer(self, name: str, ask: PlainAsk) -> PlainAnswer | None:
        if ask.phase in ("done", "left"):
            return PlainAnswer("", self.log.run)
        is_open = name in self._wanted
        answers: dict[What, bool] = {
            "entry": self.log.has(ask.step),
            "state": ask.step < self.log.next,
            "reply": ask.phase == "reply" and is_open and name not in self._digests,
            # A client that finds out whether it has to compute must not wait for the others.
            "": ask.phase == "begin" and is_open,
        }
        what = next((what for what, holds in answers.items() if holds), None)
        return None if what is None else PlainAnswer(what, self.log.run)

    def _waiting(self) -> dict[str, str]:
        names = [name for name in self._wanted if name not in self._digests] or self.awaited
        return {name: self.clients[name].absence() or "connected" for name in names}

    def say(self, name: str, message: bytes) -> None:
        """Take an update; a second, different one of the same step is refused."""
        reply = decode(message, PlainReply)
        with self.changed:
            if reply.step != self.log.next or name not in self._wanted:
                return  # the round continued without it
            digest = digest_of_fields(reply.content)
            if name not in self._digests:
                self._digests[name] = digest
                self._wanted[name] = reply.content
                self.traffic = self.traffic[0], self.traffic[1] + len(message)
                self.changed.notify_all()
            elif self._digests[name] != digest:
                raise FederationError(f"{name} sent two different updates of step {reply.step}.")

    def fetch(self, name: str, what: bytes) -> bytes:
        """Return an entry or the checkpoint; b"" if there is none."""
        kind, _, step = what.decode("ascii", "replace").partition(" ")
        try:
            content = self._state() if kind == "state" else self.log.get(int(step)) or b""
        except (RunError, ValueError):  # a newer checkpoint is being written
            return b""
        with self.changed:
            self.traffic = self.traffic[0] + len(content), self.traffic[1]
        return content

    def wait_until_done(self, seconds: float) -> list[str]:
        """Wait until all clients have the model; return those that do not have it in time."""
        with self.changed:
            self.changed.wait_for(
                lambda: all(self.clients[name].is_done for name in self.possible()), seconds
            )
            return [name for name in self.possible() if not self.clients[name].is_done]

    def differs(self, name: str, reason: str) -> None:
        with self.changed:
            self.clients.setdefault(name, Caller()).away = reason
            self._notify(StatusChange("declined", name, reason))

    def left(self, name: str) -> None:
        """Record that a client will not call any more; rounds continue without it."""
        with self.changed:
            client = self.clients.setdefault(name, Caller())
            if not client.is_done and not client.excluded:
                client.excluded = client.away or ENDED
                self._notify(StatusChange("declined", name, client.excluded))
            self.changed.notify_all()

    def fail(self, reason: str) -> None:
        with self.changed:
            self._failure = self._failure or reason
            self.changed.notify_all()

    # For the server's own program

    def possible(self) -> list[str]:
        return [name for name in self.names if not self.clients[name].excluded]

    def there(self) -> list[str]:
        """Return the clients that can take part in a round."""
        return [name for name in self.names if not self.clients[name].absence()]

    def wait(self, seconds: float) -> None:
        """Wait for news, with the lock held; FederationError if the server has to end."""
        if self._failure:
            raise FederationError(
                f"The server ends: {self._failure}; remove the cause, then start the same "
                "command again, which resumes the run."
            )
        self.changed.wait(seconds)

    def open(self, names: Sequence[str]) -> None:
        """Let these clients send their updates of this step."""
        with self.changed:
            self._wanted = dict.fromkeys(names)
            self.changed.notify_all()

    def received(self, name: str, until: float) -> bytes | None:
        client = self.clients[name]
        with self.changed:
            while (content := self._wanted[name]) is None:
                left = until - time.monotonic()
                if left <= 0 or client.away or client.excluded:
                    return None
                self.wait(left)
            self._wanted[name] = b""  # an update that was read takes no memory
            return content

    def lose(self, name: str, reason: str) -> None:
        """Stop waiting for a client whose update is missing, until it calls."""
        with self.changed:
            if name not in self._digests and not self.clients[name].away:
                self.clients[name].away = reason
                self._notify(StatusChange("lost", name, reason))

    def publish(self, entry: Mapping[str, Any]) -> bytes:
        """Write the result of a step, then make it available to clients."""
        content = dumps(entry)
        with self.changed:
            self._wanted = {}
            self._digests = {}
            self.log.append(content)
            self.changed.notify_all()
        return content
