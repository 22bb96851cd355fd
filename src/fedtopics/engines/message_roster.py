"""Who is there, over an engine that carries messages: addresses, names, and what each was asked."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.connections import CallFailed, Event, StatusChange
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.messages import Carrier, to_message
from fedtopics.errors import FederationError

LOOK = 1.0  # seconds between two looks at who is there
OFFER_AGAIN = 5.0  # seconds, where an offer was lost


@dataclass
class MessageMember:
    """A client of the study, here or not."""

    name: str
    address: str = ""
    answered: set[int] = field(default_factory=set)  # ids of standing calls
    call: int | None = None  # not answered yet
    late: int | None = None  # id of a call whose reply is still to come, and counts for nothing
    excluded: str = ""
    ready: bool = False  # has answered all standing calls
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


class Roster:
    """Offer the study to whoever can be reached, and keep who joined."""

    def __init__(self, proposal: Proposal, names: Iterable[str], carrier: Carrier) -> None:
        self.members = {name: MessageMember(name) for name in sorted(names)}
        self.events: deque[Event] = deque()
        self.standing: dict[str, tuple[int, bytes]] = {}  # function to id and message
        self._proposal = proposal
        self._carrier = carrier
        self._run = os.urandom(8)
        self._next_offer: dict[str, float] = {}  # address to when it may get an offer again
        self._looked = 0.0

    def at(self, address: str) -> MessageMember | None:
        """Return the member of an address."""
        return next((m for m in self.members.values() if m.address == address), None)

    def look(self) -> None:
        """Offer the study to whoever is new; notice who is gone."""
        now = time.monotonic()
        if now < self._looked + LOOK:
            return
        self._looked = now
        there = set(self._carrier.addresses())
        for member in self.members.values():
            if member.address and member.address not in there:
                self.leave(member)
        offer = self._proposal.offer(run=self._run)
        self._next_offer = {a: at for a, at in self._next_offer.items() if a in there}
        for address in sorted(there):
            if self._next_offer.get(address, 0.0) <= now:
                self._next_offer[address] = float("inf")
                self._carrier.send(address, to_message(wire.Frame(offer=offer)))

    def offer_again(self, address: str) -> None:
        """Offer the study to an address once more, after a pause."""
        self._next_offer[address] = time.monotonic() + OFFER_AGAIN

    def join(self, address: str, accept: wire.Accept) -> None:
        """Take a client in that accepts the study, or refuse it."""
        if self.at(address) is not None:
            raise FederationError("it joined twice, and may have one name")
        member = self.members.get(accept.name)
        objection = self._objection(address, accept)
        if objection or member is None:
            self.events.append(StatusChange("refused", accept.name, objection))
            self.refuse(address, objection)
            return
        member.address, member.answered = address, set()
        self.events.append(StatusChange("joined", member.name))
        self.catch_up(member)

    def _objection(self, address: str, accept: wire.Accept) -> str:
        member = self.members.get(accept.name)
        if member is None:
            return (
                f"The study has no client named {accept.name!r}; name the client in the study "
                "under [clients], or call it there as it is called here."
            )
        if member.address:
            self.offer_again(address)  # the other one may be gone by then
            return f"A client named {accept.name!r} is connected already; stop it first."
        if accept.fingerprint != self._proposal.fingerprint:
            return (
                f"The client joins the study {accept.fingerprint or 'without a name'}, this server "
                f"runs {self._proposal.fingerprint}; restart the client."
            )
        return f"This client was excluded: {member.excluded}." if member.excluded else ""

    def leave(self, member: MessageMember) -> None:
        """Note that a member is gone."""
        member.address, member.late, member.ready = "", None, False
        self.events.append(StatusChange("lost", member.name))
        self.fail(member, "its connection was lost")

    def decline(self, name: str, member: MessageMember | None, reason: str) -> None:
        """Note that a client does not take part; its address is not asked again."""
        self.events.append(StatusChange("declined", name, reason))
        if member is not None:
            self.fail(member, reason)
            member.address, member.late = "", None

    def refuse(self, address: str, reason: str, again: bool = False) -> None:
        """Send whoever is at an address away, with a sentence."""
        if address:
            refusal = wire.Refusal(reason=reason, again=again)
            self._carrier.send(address, to_message(wire.Frame(refusal=refusal)))

    def catch_up(self, member: MessageMember) -> None:
        """Repeat the standing calls that a member has not answered, one after the other."""
        missed = [(i, m) for i, m in self.standing.values() if i not in member.answered]
        if not missed and not member.ready and member.address:
            self.events.append(StatusChange("ready", member.name))
        member.ready = bool(member.address) and not missed
        if missed and member.address and member.call is None and member.late is None:
            member.late, message = missed[0]
            self.send(member, message)

    def send(self, member: MessageMember, message: bytes) -> None:
        """Send a message to a member."""
        member.sent += len(message)
        self._carrier.send(member.address, message)

    def fail(self, member: MessageMember, reason: str, bad: bool = False) -> None:
        """Note that a member's call, if there is one, gets no reply."""
        if member.call is not None:
            self.events.append(CallFailed(member.name, member.call, reason, bad))
            member.call = None
