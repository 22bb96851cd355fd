"""Who is there, over an engine that carries messages: addresses, names, and what each was asked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.connections import Call, Member
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.messages import Carrier, to_message
from fedtopics.engines.roster import Roster
from fedtopics.errors import FederationError
from fedtopics.methods.events import StatusChange

LOOK = 1.0  # seconds between two looks at who is there
OFFER_AGAIN = 5.0  # seconds, where an offer was lost


@dataclass
class MessageMember(Member):
    """A client of the study, and the address at which it answers."""

    address: str = ""
    has_model: bool = False
    sent: int = 0
    received: int = 0

    @property
    def connected(self) -> bool:
        """Whether it has an address."""
        return bool(self.address)

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes sent to it and received from it."""
        return self.sent, self.received


class MessageRoster(Roster[MessageMember]):
    """Offer the study to whoever can be reached, and keep who joined."""

    def __init__(self, proposal: Proposal, names: Iterable[str], carrier: Carrier) -> None:
        super().__init__({name: MessageMember(name) for name in sorted(names)})
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
        reachable = set(self._carrier.addresses())
        for member in self.members.values():
            if member.address and member.address not in reachable:
                self.leave(member)
        offer = self._proposal.offer(run=self._run)
        self._next_offer = {a: at for a, at in self._next_offer.items() if a in reachable}
        for address in sorted(reachable):
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
            self.inbox.put(StatusChange("refused", accept.name, objection))
            self.refuse(address, objection)
            return
        member.address, member.answered = address, set()
        self.inbox.put(StatusChange("joined", member.name))
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
        self.inbox.put(StatusChange("lost", member.name))
        self.fail(member, "its connection was lost")

    def decline(self, name: str, member: MessageMember | None, reason: str) -> None:
        """Note that a client does not take part; its address is not asked again."""
        self.inbox.put(StatusChange("declined", name, reason))
        if member is not None:
            self.fail(member, reason)
            member.address, member.late = "", None

    def refuse(self, address: str, reason: str, again: bool = False) -> None:
        """Send whoever is at an address away, with a sentence."""
        if address:
            refusal = wire.Refusal(reason=reason, again=again)
            self._carrier.send(address, to_message(wire.Frame(refusal=refusal)))

    def send(self, member: MessageMember, call: Call) -> None:
        """Send a call, which is one message."""
        self.send_message(member, call.pieces[0])

    def send_message(self, member: MessageMember, message: bytes) -> None:
        """Send a message to a member."""
        member.sent += len(message)
        self._carrier.send(member.address, message)
