"""Plain aggregation: a trusted server adds the clients' updates, and tolerates absent clients.

Server and clients run the same program. A round begins with the list of its clients, and each sum
or call of it comes to one total; all of these are entries of one log, which the server writes and
the clients read. A client that is lost in the middle of a round has the round repeated without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol

import msgspec

from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.methods.core.aggregation import SharedPayload
from fedtopics.methods.core.events import CallStarted, Defect, Event, LeftOut, RoundReport
from fedtopics.methods.core.interfaces import EVERYONE, AgainError, Draw, Moment, T
from fedtopics.methods.core.replies import Template
from fedtopics.protocol.clients import Door
from fedtopics.protocol.keys import digest
from fedtopics.protocol.messages import Message
from fedtopics.protocol.values import dumps, loads

Entry = Mapping[str, Any]


class PlainAsk(Message):
    """A client asks for an entry of the log."""

    software: str  # study, method and versions
    step: int
    phase: Literal["begin", "reply", "done"]


class PlainAnswer(Message):
    """What there is for a client, or for whom the server waits."""

    what: Literal["", "reply", "entry", "state"]
    size: int = 0
    waiting: dict[str, float] = msgspec.field(default_factory=dict)  # seconds since the last call


class PlainReply(Message):
    """A client's update, for one step."""

    step: int
    content: bytes


@dataclass
class Attempt:
    """An attempt at a round: who takes part, and what it has come to."""

    round: int
    number: int
    members: list[str]
    missing: dict[str, str]
    exchanges: int = 0


@dataclass(frozen=True)
class Asked:
    """What clients are asked for in one step."""

    function: str
    template: Template | None
    one_by_one: bool


class Source(Protocol):
    """Where the entries of the log come from."""

    def begin(self, step: int, turn: int, attempt: int, round_: int, draw: Draw) -> Entry:
        """Return who takes part in an attempt at a round."""

    def add(
        self, step: int, attempt: Attempt, asked: Asked, own: Callable[[], bytes] | None
    ) -> Entry:
        """Return what a step comes to, with the own update where this client takes part."""

    def has(self, step: int) -> bool:
        """Whether an entry is there without any wait."""

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received so far."""

    def done(self, step: int) -> None:
        """Let the server know that this client has the model."""


class PlainClients:
    """`Clients` of the server, or of one client; see `Clients`.

    Parameters
    ----------
    source : Source
    names : sequence of str
        All clients.
    own : str
        The client whose program this is; "" is the server.
    door : Door or None
        That of the client.
    step, turn : int
        Entries and rounds that the checkpoint has the result of.
    notify : function
        Gets events.
    """

    hidden = False

    def __init__(
        self, source: Source, names: Sequence[str], own: str, door: Door | None, step: int,
        turn: int, notify: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self.names = sorted(names)
        self.step, self.turn = step, turn
        self._source = source
        self._own = own
        self._door = door
        self._notify = notify
        self._attempt: Attempt | None = None
        self._skipped: list[tuple[str, Mapping[str, Any], Moment]] = []

    def tell(self, function: str, **payload: Any) -> None:
        """Execute a function of this client; nothing leaves."""
        self._guarded(lambda door: door.repeat(function, payload, Moment(self.turn)))

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        return self._exchanged(Asked(function, template, True), payload)

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the total."""
        return self._exchanged(Asked(function, template, False), payload)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round, and repeat it without clients that are lost; see `Clients.round`."""
        self.turn += 1
        before, left_out = self._source.traffic(), dict[str, str]()
        for attempt_number in count(1):
            without = replace(draw, without=draw.without | left_out.keys())
            begun = self._source.begin(self.step, self.turn, attempt_number, number, without)
            self.step += 1
            missing = {**begun["missing"], **left_out}
            attempt = Attempt(number, attempt_number, list(begun["members"]), missing)
            self._attempt = attempt
            self._skipped.clear()
            try:
                result = work()
            except AgainError as again:
                left_out |= again.without
                continue
            finally:
                self._attempt = None
            if number == 0 and attempt.missing:
                self._notify(LeftOut(number, dict(attempt.missing)))
            return result, self._report(attempt, before)
        raise AssertionError

    def _report(self, attempt: Attempt, before: tuple[int, int]) -> RoundReport:
        sent, received = self._source.traffic()
        return {
            "clients": attempt.members, "missing": attempt.missing, "attempts": attempt.number,
            "bytes_sent": sent - before[0], "bytes_received": received - before[1],
        }  # fmt: skip

    def _exchanged(self, asked: Asked, payload: Mapping[str, Any]) -> dict[str, Any]:
        if self._attempt is None:  # an exchange outside of a round is a round of its own
            work = partial(self._exchanged, asked, payload)
            return self.round(int(payload.get("round", 0)), work)[0]
        attempt = self._attempt
        moment = Moment(self.turn, attempt.number, attempt.exchanges + 1)
        own = None
        if self._door is not None and self._own in attempt.members:
            if self._source.has(self.step):
                self._skipped.append((asked.function, payload, moment))
            else:
                own = partial(self._reply, asked.function, payload, moment)
        entry = self._source.add(self.step, attempt, asked, own)
        self.step += 1
        size = len(entry["content"])
        self._guarded(
            lambda door: door.came(asked.function, moment, digest(entry["content"]), size)
        )
        attempt.missing |= entry["missing"]
        attempt.members = [name for name in attempt.members if name not in entry["missing"]]
        if entry["again"]:
            raise AgainError(entry["missing"])
        attempt.exchanges += 1
        found: dict[str, Any] = loads(entry["content"])
        return found

    def _reply(self, function: str, payload: Mapping[str, Any], moment: Moment) -> bytes:
        """Return what the door lets out."""
        attempt = self._attempt
        for skipped in self._skipped:  # for what these leave behind at the client
            self._guarded(partial(_repeat, skipped))
        self._skipped.clear()
        if attempt is not None:
            members = attempt.members
            self._guarded(lambda door: door.check_members(members))
            self._notify(CallStarted(function, attempt.round, attempt.number))
        return dumps(
            self._guarded(lambda door: door.call(function, SharedPayload(payload), moment))
        )

    def done(self) -> None:
        """Let the server know that this client has the model."""
        self._source.done(self.step)

    def _guarded(self, work: Callable[[Door], Any]) -> Any:
        if self._door is None:
            return None
        try:
            return work(self._door)
        except FedTopicsError:
            raise
        except (OSError, MemoryError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            raise FedTopicsError(
                f"An update did not leave: {reason}. Make room on the disk or in memory, then "
                "start the same command again."
            ) from None
        except Exception as error:
            # Its type alone: its text could quote a document.
            self._notify(Defect("a function", self.turn, type(error).__name__))
            raise FederationError(
                f"This client's software has a defect ({type(error).__name__}); please report it."
            ) from None


def _repeat(skipped: tuple[str, Mapping[str, Any], Moment], door: Door) -> Any:
    return door.repeat(*skipped)
