"""What an engine between machines offers to `rounds`: who is there, calls, events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.values import Packed, pack
from fedtopics.methods.events import StatusChange


@dataclass(frozen=True)
class ReplyArrived:
    """A reply, as `values.unpack` takes it."""

    name: str
    call: int
    body: wire.Body
    buffer: memoryview
    seconds: float  # that the client computed


@dataclass(frozen=True)
class CallFailed:
    """A call without a reply."""

    name: str
    call: int
    reason: str
    bad: bool  # the client's fault, not the network's


Incoming = ReplyArrived | CallFailed | StatusChange

# Kinds of failure that a client sends, as the server says them; the reason stays with the client.
FAILURES = {
    "policy": "its own policy keeps the reply",
    "input": "its documents or its settings do not allow it",
    "system": "its machine failed (disk or memory)",
    "defect": "it raised an unexpected error",
}


@dataclass(frozen=True)
class Call:
    """A call, ready to be sent to any number of clients."""

    id: int
    function: str
    frame: wire.Frame
    pieces: list[bytes] = field(repr=False)  # the body in chunks, or the frame and all of it
    bounded: bool = False  # whether replies may wait for room in memory


@dataclass
class Member(ABC):
    """A client of the study, here or not."""

    name: str
    answered: set[int] = field(default_factory=set)  # ids of standing calls
    ready: bool = False  # has answered all standing calls
    call: Call | None = None  # not answered yet
    late: int | None = None  # id of a call whose reply is still to come, and counts for nothing
    excluded: str = ""  # why it was sent away for good
    waits_for_memory: bool = False  # its reply has come, and the server has no room for it yet

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether it can be reached."""

    @property
    @abstractmethod
    def bytes(self) -> tuple[int, int]:
        """Bytes sent to it and received from it."""

    def has(self, call: int) -> bool:
        """Whether it was asked this call, and has not answered."""
        return self.call is not None and self.call.id == call

    @property
    def available(self) -> bool:
        """Whether it can be called."""
        idle = self.call is None and self.late is None
        return self.connected and self.ready and idle and not self.excluded

    @property
    def state(self) -> str:
        """What a person would say of it."""
        if self.excluded:
            return f"excluded: {self.excluded}"
        if not self.connected:
            return "not connected"
        if not self.ready:
            return "starting"
        if self.late is not None:
            return "still busy with an earlier call"
        return "working" if self.call is not None else "ready"


class Inbox(Protocol):
    """Events in the order in which they happened."""

    def get(self, *, timeout: float) -> Incoming:
        """Take the next; raise `queue.Empty` if nothing happens for so many seconds."""


class Connections(ABC):
    """The server's end of an engine: who is there, what each was asked, what came back."""

    members: Mapping[str, Member]  # the study's clients by name, sorted
    inbox: Inbox  # replies, failures, and who comes and goes
    largest: int  # most bytes of a reply
    _last_id = 0

    def post(
        self,
        function: str,
        payload: Mapping[str, Any],
        names: Iterable[str],
        attempt: int = 1,
        bounded: bool = False,
        standing: bool = False,
    ) -> int:
        """Call a function of some members; return the call's id.

        A standing call is repeated to every client that restarts later; replies to a bounded
        one may wait for `release`.
        """
        self._last_id += 1
        packed, round_ = pack(payload), int(payload.get("round", 0))
        call = wire.Call(
            id=self._last_id, round=round_, attempt=attempt, function=function, body=packed.header
        )
        self._send(call, packed, list(names), bounded, standing)
        return self._last_id

    @abstractmethod
    def _send(
        self, call: wire.Call, packed: Packed, names: list[str], bounded: bool, standing: bool
    ) -> None: ...

    @abstractmethod
    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call; or for those alone that have not come."""

    @abstractmethod
    def release(self, size: int, next_name: str) -> None:
        """Free the memory of replies that were added up; say whose reply is next."""

    @abstractmethod
    def exclude(self, name: str, reason: str) -> None:
        """Send a client away for good."""

    @abstractmethod
    def send_model(self, files: Mapping[str, Any], patience: float) -> list[str]:
        """Send the final model to all clients that are there; return who has it."""

    @abstractmethod
    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say goodbye to all clients, with a reason if the study failed."""
