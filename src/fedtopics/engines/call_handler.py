"""A client's end of any engine between machines: look at an offer, join, execute calls.

The server learns only what kind of failure happened on a client; the sentence stays here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.handshake import WIRE_VERSION, Proposal
from fedtopics.engines.values import Packed, from_value, pack, unpack
from fedtopics.errors import FederationError, FedTopicsError, PolicyError
from fedtopics.methods.events import CallStarted, Defect, Event

LARGEST_CALL = 1 << 31  # bytes of a call
Notify = Callable[[Event], None]
Versions = tuple[str, Mapping[str, int]]
"""Of fedtopics, and of the methods it has."""


class Door(Protocol):
    """What answers calls: a client's door."""

    def call(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function, return what may leave."""

    def repeat(self, function: str, payload: Mapping[str, Any]) -> None:
        """Execute a call again, whose reply has left before; nothing leaves."""


class Participant(Protocol):
    """What a client does about an offer, a model, a server it cannot reach."""

    def consider(self, proposal: Proposal) -> Door:
        """Look at what a server proposes; return what answers it, or raise to decline.

        The fingerprint of the study is the client's own computation, not the server's word.
        """

    def receive(self, files: Mapping[str, Any]) -> None:
        """Take the final model."""

    def diagnose(self) -> str:
        """Say why the server cannot be reached, or nothing; raise if waiting is no use."""


@dataclass(frozen=True)
class Answer:
    """A reply or a failure, ready to be sent, again if need be."""

    frame: wire.Frame
    packed: Packed | None = None
    error: FedTopicsError | None = None  # ends the client


class CallHandler:
    """Execute the calls of one study; `notify` gets each event."""

    def __init__(self, participant: Participant, versions: Versions, notify: Notify) -> None:
        self._participant = participant
        self._versions = versions
        self._notify = notify
        self._door: Door | None = None
        self.fingerprint = ""

    @property
    def joined(self) -> bool:
        """Whether there is a study."""
        return self._door is not None

    def check(self, offer: wire.Offer) -> Proposal:
        """Read an offer; raise a `FederationError` if it is nothing for this client."""
        proposal = proposed(offer)
        product, methods = self._versions
        if objection := proposal.objection(product, WIRE_VERSION, methods):
            raise FederationError(objection)
        if self.joined and proposal.fingerprint != self.fingerprint:
            raise FederationError(
                f"This client joined the study {self.fingerprint}, the server now runs "
                f"{proposal.fingerprint}; restart the client to take part in that."
            )
        return proposal

    def join(self, proposal: Proposal) -> None:
        """Consider what is proposed, once; raise to decline."""
        if not self.joined:
            self._door = self._participant.consider(proposal)
            self.fingerprint = proposal.fingerprint

    def handle(self, call: wire.Call, buffer: memoryview) -> Answer:
        """Execute a call; pack its reply, or say what kind of failure keeps it."""
        before = time.perf_counter()
        self._notify(CallStarted(call.function, call.round, call.attempt))
        try:
            packed = pack(self._open_door.call(call.function, unpack(call.body, buffer)))
        except (OSError, MemoryError) as error:
            return _failed(call, "system", _machine_failed(call, error))
        except FedTopicsError as error:
            return _failed(call, "policy" if isinstance(error, PolicyError) else "input", error)
        except Exception as error:
            # Its type alone: its text could quote a document.
            self._notify(Defect(call.function, call.round, type(error).__name__))
            return _failed(call, "defect", None)
        seconds = time.perf_counter() - before
        reply = wire.Reply(id=call.id, study=self.fingerprint, body=packed.header, seconds=seconds)
        return Answer(wire.Frame(reply=reply), packed)

    def repeat(self, call: wire.Call, buffer: memoryview) -> None:
        """Execute a call again that an earlier process answered; nothing leaves."""
        self._open_door.repeat(call.function, unpack(call.body, buffer))

    @property
    def _open_door(self) -> Door:
        if self._door is None:
            raise FederationError("The server called before this client joined its study.")
        return self._door


def proposed(offer: wire.Offer) -> Proposal:
    """Read an offer."""
    study = from_value(offer.study)
    if not isinstance(study, dict):
        raise FederationError("The server's offer holds no study.")
    return Proposal(
        offer.product, offer.method, offer.method_version, study, offer.fingerprint, offer.time
    )


def _machine_failed(call: wire.Call, error: OSError | MemoryError) -> FedTopicsError:
    reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
    return FedTopicsError(
        f"The reply to {call.function!r} in round {call.round} did not leave: {reason}. Make room "
        "on the disk or in memory, then restart the client."
    )


def _failed(call: wire.Call, kind: str, error: FedTopicsError | None) -> Answer:
    failure = wire.Failure(id=call.id, kind=kind, leaves=error is not None)
    return Answer(wire.Frame(failure=failure), error=error)
