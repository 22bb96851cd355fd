"""For engines that carry whole messages for us, one answer each: Flower, FLARE.

A message is a frame of ``wire.proto`` and its body, as bytes. `Messages` is the server's end, on
top of a `Carrier`; `answering` has the client's. Nothing here runs in a thread of its own: what has
come is taken while the method waits for it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.base import FAILURES, Arrived, Failed, Happening, Noted
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.values import Packed, aligned, body_size, pack
from fedtopics.errors import FederationError

LOOK = 1.0  # seconds between two looks at who is there
GREET_AGAIN = 5.0  # seconds, where an offer was lost
GOODBYE = 5.0
LENGTH = 8  # bytes that say how long the frame is


class Carrier(Protocol):
    """Brings messages to clients and their answers back."""

    def addresses(self) -> Collection[str]:
        """Say who can be reached now."""

    def send(self, address: str, message: bytes) -> None:
        """Send a message, which is answered once at most."""

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Return what has come, after so many seconds at most; None: that client failed."""


def to_message(frame: wire.Frame, packed: Packed | None = None) -> bytes:
    """Write a frame and its body."""
    head = frame.SerializeToString()
    body = () if packed is None or packed.is_small else packed.pieces
    return b"".join([len(head).to_bytes(LENGTH, "little"), head, *body])


def from_message(message: bytes) -> tuple[wire.Frame, memoryview]:
    """Read a frame and its body.

    Raises
    ------
    FederationError
        If the bytes are not what `to_message` makes.
    """
    raw = memoryview(message)
    end = LENGTH + int.from_bytes(raw[:LENGTH], "little")
    try:
        frame = wire.Frame.FromString(bytes(raw[LENGTH:end]))
    except DecodeError:
        raise FederationError("A message is damaged.") from None
    content = getattr(frame, frame.WhichOneof("kind") or "heartbeat")
    body = getattr(content, "body", wire.Body())
    rest = memoryview(body.small) if body.small and end == len(raw) else raw[end:]
    if end > len(raw) or len(rest) != body_size(body):
        raise FederationError("A message has another length than it announced.")
    buffer = aligned(len(rest))
    buffer[:] = rest
    return frame, buffer


@dataclass
class Correspondent:
    """A client of the study, here or not."""

    name: str
    address: str = ""
    heard: set[int] = field(default_factory=set)  # ids of the standing calls that it answered
    call: int | None = None  # not answered yet
    late: int | None = None  # id of a call whose reply is still to come, and counts for nothing
    excluded: str = ""
    ready: bool = False  # has heard all standing calls
    has_model: bool = False
    sent: int = 0
    received: int = 0

    @property
    def available(self) -> bool:
        """Whether it can be called."""
        idle = self.call is None and self.late is None
        return bool(self.address) and self.ready and idle and not self.excluded

    @property
    def state(self) -> str:
        """What a person would say of it."""
        if self.excluded:
            return f"excluded: {self.excluded}"
        if not self.address:
            return "not connected"
        if self.late is not None:
            return "still busy with an earlier call"
        if not self.ready:
            return "starting"
        return "working" if self.call is not None else "ready"

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes sent to it and received from it."""
        return self.sent, self.received


class Messages:
    """The server's end: who is there, what each was asked, what came back.

    Parameters
    ----------
    proposal : Proposal
    names : iterable of str
        The clients.
    carrier : Carrier
        It vouches for its addresses; the name of an address is what its answer to an offer says,
        and stays its own while it can be reached.
    largest : int
        Most bytes of a message.
    """

    def __init__(
        self, proposal: Proposal, names: Iterable[str], carrier: Carrier, largest: int = 1 << 30
    ) -> None:
        self.members = {name: Correspondent(name) for name in sorted(names)}
        self.largest = largest
        self._carrier = carrier
        self._proposal = proposal
        self._run = os.urandom(8)
        self._standing: dict[str, tuple[int, bytes]] = {}
        self._last_id = 0
        self._happened: deque[Happening] = deque()
        self._greeted: dict[str, float] = {}  # addresses, and when they may be greeted again
        self._looked = 0.0

    @property
    def inbox(self) -> Messages:
        """What happened."""
        return self

    def get(self, *, timeout: float) -> Happening:
        """Take what happened next; raise `Empty` if that is nothing in so many seconds."""
        ends = time.monotonic() + timeout
        while not self._happened:
            self._look()
            left = max(0.0, ends - time.monotonic())
            self._receive(min(left, LOOK))
            if not self._happened and time.monotonic() >= ends:
                raise Empty
        return self._happened.popleft()

    def post(
        self,
        function: str,
        payload: Mapping[str, Any],
        names: Iterable[str],
        attempt: int = 1,
        bounded: bool = False,
        standing: bool = False,
    ) -> int:
        """Call a function of some members; return the call's id."""
        self._last_id += 1
        packed = pack(payload)
        call = wire.Call(
            id=self._last_id,
            round=int(payload.get("round", 0)),
            attempt=attempt,
            function=function,
            body=packed.header,
            standing=standing,
        )
        message = to_message(wire.Frame(call=call), packed)
        if standing:
            self._standing[function] = (call.id, message)
        for name in names:
            member = self.members[name]
            if member.available:
                member.call = call.id
                self._send(member, message)
            else:
                self._happened.append(Failed(name, call.id, member.state, bad=False))
        for member in self.members.values() if standing else ():
            if member.call != call.id:
                self._catch_up(member)
        return call.id

    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call."""
        for member in self.members.values():
            if member.call == call:
                member.late = call
                self._fail(member, reason)

    def room(self, size: int, next_name: str) -> None:
        """Do nothing: the engine has its messages in memory in any case."""

    def exclude(self, name: str, reason: str) -> None:
        """Send a client away for good."""
        member = self.members[name]
        member.excluded = reason
        self._refuse(member.address, f"The server has excluded this client: {reason}.")

    def hand_out(self, files: Mapping[str, Any], patience: float) -> list[str]:
        """Give the final model to all clients that are there; return who has it."""
        packed = pack(files)
        message = to_message(wire.Frame(result=wire.Result(body=packed.header)), packed)
        there = [m for m in self.members.values() if m.address and not m.excluded]
        for member in there:
            self._send(member, message)
        ends = time.monotonic() + patience
        while any(m.address and not m.has_model for m in there) and time.monotonic() < ends:
            self._look()
            self._receive(LOOK)
        return [member.name for member in there if member.has_model]

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Tell all clients why the study failed, if it did."""
        told = {m.address for m in self.members.values() if m.address} if reason else set()
        for address in told:
            self._refuse(address, reason, again)
        ends = time.monotonic() + GOODBYE
        while told and time.monotonic() < ends:
            told -= {address for address, _ in self._carrier.receive(LOOK)}

    # Who is there.

    def _look(self) -> None:
        """Offer the study to whoever is new; notice who is gone."""
        now = time.monotonic()
        if now < self._looked + LOOK:
            return
        self._looked = now
        there = set(self._carrier.addresses())
        for member in self.members.values():
            if member.address and member.address not in there:
                self._leave(member)
        offer = self._proposal.offer(run=self._run)
        self._greeted = {a: at for a, at in self._greeted.items() if a in there}
        for address in sorted(there):
            if self._greeted.get(address, 0.0) <= now:
                self._greeted[address] = float("inf")
                self._carrier.send(address, to_message(wire.Frame(offer=offer)))

    def _leave(self, member: Correspondent) -> None:
        member.address, member.late, member.ready = "", None, False
        self._happened.append(Noted("lost", member.name))
        self._fail(member, "its connection was lost")

    def _refuse(self, address: str, reason: str, again: bool = False) -> None:
        if address:
            refusal = wire.Refusal(reason=reason, again=again)
            self._carrier.send(address, to_message(wire.Frame(refusal=refusal)))

    def _join(self, address: str, accept: wire.Accept) -> None:
        member = self.members.get(accept.name)
        objection = ""
        if any(other.address == address for other in self.members.values()):
            raise FederationError("it joined twice, and may have one name")
        if member is None:
            objection = (
                f"The study has no client named {accept.name!r}; name the client in the study "
                "under [clients], or call it there as it is called here."
            )
        elif member.address:
            objection = f"A client named {accept.name!r} is connected already; stop it first."
            self._greeted[address] = time.monotonic() + GREET_AGAIN  # that one may be gone by then
        elif accept.fingerprint != self._proposal.fingerprint:
            objection = (
                f"The client joins the study {accept.fingerprint or 'without a name'}, this server "
                f"runs {self._proposal.fingerprint}; begin the client anew."
            )
        elif member.excluded:
            objection = f"This client was excluded: {member.excluded}."
        if objection or member is None:
            self._happened.append(Noted("refused", accept.name, objection))
            self._refuse(address, objection)
            return
        member.address, member.heard = address, set()
        self._happened.append(Noted("joined", member.name))
        self._catch_up(member)

    def _catch_up(self, member: Correspondent) -> None:
        """Repeat the standing calls to a member that has not heard them, one after the other."""
        missed = [(i, m) for i, m in self._standing.values() if i not in member.heard]
        if not missed and not member.ready and member.address:
            self._happened.append(Noted("ready", member.name))
        member.ready = bool(member.address) and not missed
        if missed and member.address and member.call is None and member.late is None:
            member.late, message = missed[0]
            self._send(member, message)

    # What comes.

    def _send(self, member: Correspondent, message: bytes) -> None:
        member.sent += len(message)
        self._carrier.send(member.address, message)

    def _fail(self, member: Correspondent, reason: str, bad: bool = False) -> None:
        if member.call is not None:
            self._happened.append(Failed(member.name, member.call, reason, bad))
            member.call = None

    def _receive(self, seconds: float) -> None:
        for address, message in self._carrier.receive(seconds):
            found = [m for m in self.members.values() if m.address == address]
            member = found[0] if found else None
            if message is None:
                self._lost(address, member)
                continue
            try:
                self._take(address, member, *from_message(message), len(message))
            except FederationError as error:
                if member is not None:
                    self._fail(member, f"sent a bad reply: {error}", bad=True)
                    self._leave(member)
                self._greeted[address] = time.monotonic() + GREET_AGAIN

    def _lost(self, address: str, member: Correspondent | None) -> None:
        """Take note that a message got no answer; offer the study again, to a client begun anew."""
        self._greeted[address] = time.monotonic() + GREET_AGAIN
        if member is not None:
            self._leave(member)

    def _take(
        self,
        address: str,
        member: Correspondent | None,
        frame: wire.Frame,
        buffer: memoryview,
        size: int,
    ) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "accept":
            self._join(address, frame.accept)
        elif kind == "refusal":
            said = frame.refusal.reason if member is None else member.name
            name = said if said in self.members else address
            self._decline(name, member, "its policy or its settings keep it from joining")
        elif member is None:
            return  # an answer to a refusal, or of a client that was given up
        elif kind == "received":
            member.has_model = True
        elif kind in ("reply", "failure"):
            member.received += size
            self._settle(member, frame, buffer)
            self._catch_up(member)

    @property
    def _ids(self) -> set[int]:
        """Those of the standing calls."""
        return {standing for standing, _ in self._standing.values()}

    def _decline(self, name: str, member: Correspondent | None, reason: str) -> None:
        """Let a client go that does not take part; its address is not asked again."""
        self._happened.append(Noted("declined", name, reason))
        if member is not None:
            self._fail(member, reason)
            member.address, member.late = "", None

    def _settle(self, member: Correspondent, frame: wire.Frame, buffer: memoryview) -> None:
        """Hand on the answer to the call that a member works, or drop a late one."""
        reply, failure = frame.reply, frame.failure
        answered = reply.id if frame.HasField("reply") else failure.id
        if answered == member.late:
            member.late = None
        if frame.HasField("failure"):
            reason = FAILURES.get(failure.kind, "it failed")
            if failure.leaves:
                self._decline(member.name, member, reason)
            elif answered == member.call:
                self._fail(member, reason, bad=True)
            if answered in self._ids and member.address:
                # It cannot do what all begin with: it is offered the study again, not that call.
                self._greeted[member.address] = time.monotonic() + GREET_AGAIN
                self._leave(member)
            return
        if answered in self._ids:
            member.heard.add(answered)
        if answered != member.call:
            return
        if body_size(reply.body) > self.largest:
            limit = f"more than {self.largest:,}"
            self._fail(member, f"its reply has {body_size(reply.body):,} bytes, {limit}", bad=True)
        elif reply.study != self._proposal.fingerprint:
            self._fail(member, f"its reply is of the study {reply.study!r}", bad=True)
        else:
            member.call = None
            self._happened.append(Arrived(member.name, answered, reply.body, buffer, reply.seconds))
