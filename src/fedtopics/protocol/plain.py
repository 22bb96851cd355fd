"""Plain aggregation: a trusted server adds up the clients' updates and tolerates absent clients.

Server and clients run the same program; the server writes the log that the clients read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal, Protocol

import msgspec

from fedtopics.contract.events import CallStarted, Event, LeftOut, RoundReport
from fedtopics.contract.interfaces import EVERYONE, AgainError, Call, Draw, Position, T
from fedtopics.contract.replies import Template
from fedtopics.errors import FederationError
from fedtopics.escaping import as_sentence
from fedtopics.protocol.client_side import ClientSide, MemberDoor
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.messages import Message
from fedtopics.protocol.structures import MOST_FIELDS, VALUES_PER_MEMBER
from fedtopics.protocol.values import dumps, loads

Phase = Literal["begin", "reply", "done", "left"]
What = Literal["", "reply", "entry", "state"]


class PlainAsk(Message):
    """A client asks for an entry of the log, or reports its end."""

    software: str  # study, method and versions
    run: bytes  # its identity, if the client knows it
    step: int
    phase: Phase
    least: int = 1  # clients that its policy requires in a sum
    reason: str = ""  # why it ends


class PlainAnswer(Message):
    """What a client can fetch or has to send, or whom the server waits for."""

    what: What
    run: bytes
    waiting: dict[str, str] = msgspec.field(default_factory=dict)  # name to state


class PlainReply(Message):
    """A client's update of one step."""

    step: int
    content: bytes


@dataclass
class Attempt:
    """An attempt at a round."""

    round: int
    number: int
    members: list[str]
    missing: dict[str, str]
    exchanges: int = 0

    @property
    def name(self) -> str:
        """The name of the log entry that begins the attempt."""
        return f"round {self.round}, attempt {self.number}"


@dataclass(frozen=True)
class Request:
    """The request to all clients in one step."""

    function: str
    template: Template
    is_call: bool  # whether all see each reply, or only the sum


class Source(Protocol):
    """The source of log entries, as bytes."""

    def begin(self, step: int, attempt: Attempt, draw: Draw, left_out: Mapping[str, str]) -> bytes:
        """Return the clients of an attempt at a round, without those lost in earlier attempts."""

    def add(self, step: int, attempt: Attempt, request: Request, own: bytes | None) -> bytes:
        """Return the result of a step; `own` is this client's update, if it takes part."""

    def has(self, step: int) -> bool:
        """Whether the server had the entry before this client could contribute to it."""

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received so far."""

    def leave(self, reason: str) -> None:
        """Tell the server why this client ends without a model."""

    def done(self, step: int) -> None:
        """Tell the server that this client has the model."""


class PlainClients:
    """`Clients` of the server ("" as `own`) or of one client; `step`, `turn` as checkpointed."""

    hidden = False
    apart = True

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        own: str,
        door: MemberDoor | None,
        step: int,
        turn: int,
        notify: Callable[[Event], None],
    ) -> None:
        self.names = sorted(names)
        self.step = step
        self.turn = turn
        self._source = source
        self._own = own
        self._side = ClientSide(door, source.leave, notify)
        self._notify = notify
        self._attempt: Attempt | None = None

    def tell(self, function: str, **payload: Any) -> None:
        """Execute a function of this client; nothing is sent."""
        self._side.repeat(Call(function, payload, Position(self.turn)))

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        return self._exchanged(Request(function, template, True), payload)

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        return self._exchanged(Request(function, template, False), payload)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Run a round, and repeat it without clients that are lost; see `Clients.round`."""
        self.turn += 1
        before = self._source.traffic()
        left_out = dict[str, str]()
        for attempt_number in count(1):
            attempt = Attempt(number, attempt_number, [], {})
            begun = self._read(self._source.begin(self.step, attempt, draw, left_out), attempt.name)
            attempt.members = [name for name in begun["members"] if name in self.names]
            attempt.missing = dict(begun["missing"])
            self._attempt = attempt
            self._side.begin(number)
            try:
                result = work()
            except AgainError as again:
                left_out |= again.without
                continue
            finally:
                self._attempt = None
            if number == 0 and attempt.missing:
                self._notify(LeftOut(number, attempt.missing))
            sent, received = self._source.traffic()
            return result, {
                "clients": attempt.members,
                "missing": attempt.missing,
                "attempts": attempt.number,
                "bytes_sent": sent - before[0],
                "bytes_received": received - before[1],
            }
        raise AssertionError

    def _exchanged(self, request: Request, payload: Mapping[str, Any]) -> dict[str, Any]:
        attempt = self._attempt
        if attempt is None:  # an exchange outside a round is a round of its own
            return self.round(
                int(payload.get("round", 0)), partial(self._exchanged, request, payload)
            )[0]
        function = request.function
        position = Position(self.turn, attempt.number, attempt.exchanges + 1)
        own_reply = None
        if self._side.door is not None and self._own in attempt.members:
            call = Call(function, payload, position)
            if self._source.has(self.step):
                self._side.skipped.append(call)
            else:
                own_reply = self._reply(call, attempt)
        content = self._source.add(self.step, attempt, request, own_reply)
        entry = self._read(content, function)
        self._side.guarded(
            lambda door: door.write_total(
                function, position, digest_of_fields(content), len(content)
            )
        )
        attempt.missing |= entry["missing"]
        attempt.members = [name for name in attempt.members if name not in entry["missing"]]
        if entry["again"]:
            raise AgainError(entry["missing"])
        attempt.exchanges += 1
        return dict(entry["result"])

    def _reply(self, call: Call, attempt: Attempt) -> bytes:
        """Return the update that the door permits."""
        self._side.repeat_skipped()
        self._side.guarded(lambda door: door.check_members(attempt.members))
        self._notify(CallStarted(call.function, attempt.round, attempt.number))
        return dumps(self._side.guarded(lambda door: door.call(call)))

    def _read(self, content: bytes, name: str) -> Mapping[str, Any]:
        """Read the entry of this step; FederationError if the program expects another."""
        entry: Mapping[str, Any] = loads(
            content, fields=MOST_FIELDS + VALUES_PER_MEMBER * len(self.names)
        )
        if entry["name"] != name:
            raise FederationError(
                f"At step {self.step}, {self._own or 'the server'} expects {name!r}, and the log "
                f"has {entry['name']!r:.80}; install the same fedtopics and packages everywhere."
            )
        self.step += 1
        # People read these reasons, and a server may lie.
        return {
            **entry,
            "missing": {
                client: as_sentence(str(reason))
                for client, reason in entry["missing"].items()
                if client in self.names
            },
        }

    def done(self) -> None:
        self._source.done(self.step)
