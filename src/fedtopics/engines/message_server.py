"""The server's end of engines that carry whole messages for us, one answer each: Flower, FLARE.

`message_client` is the other end. Nothing here runs in a thread of its own: messages are taken from
the carrier while the method waits for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.connections import FAILURES, Call, Connections, Incoming, ReplyArrived
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.message_roster import LOOK, MessageMember, MessageRoster
from fedtopics.engines.messages import Carrier, from_message, to_message
from fedtopics.engines.values import Packed, body_size, pack
from fedtopics.errors import FederationError

GOODBYE = 5.0  # seconds for the clients to read why the study failed


class MessageServer(Connections):
    """Call clients by messages of at most `largest` bytes; an engine's `Connections`.

    The carrier vouches for its addresses; the name of an address is what its answer to an offer
    says, and does not change while it can be reached.
    """

    members: Mapping[str, MessageMember]

    def __init__(
        self, proposal: Proposal, names: Iterable[str], carrier: Carrier, largest: int = 1 << 30
    ) -> None:
        self.largest = largest
        self._carrier = carrier
        self._fingerprint = proposal.fingerprint
        self._roster = MessageRoster(proposal, names, carrier)
        self.members, self.inbox = self._roster.members, self

    def get(self, *, timeout: float) -> Incoming:
        """Take the next event; raise `Empty` if nothing happens for so many seconds."""
        inbox = self._roster.inbox
        ends = time.monotonic() + timeout
        while inbox.empty():
            self._roster.look()
            left = max(0.0, ends - time.monotonic())
            self._receive(min(left, LOOK))
            if time.monotonic() >= ends:
                break
        return inbox.get_nowait()

    def _send(
        self, call: wire.Call, packed: Packed, names: list[str], bounded: bool, standing: bool
    ) -> None:
        call.standing = standing
        frame = wire.Frame(call=call)
        ready = Call(call.id, call.function, frame, [to_message(frame, packed)])
        self._roster.dispatch(ready, names, standing)

    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call."""
        self._roster.give_up(call, reason, everyone)

    def release(self, size: int, next_name: str) -> None:
        """Do nothing: the engine has its messages in memory in any case."""

    def exclude(self, name: str, reason: str) -> None:
        """Send a client away for good."""
        member = self.members[name]
        member.excluded = reason
        self._roster.refuse(member.address, f"The server has excluded this client: {reason}.")

    def send_model(self, files: Mapping[str, Any], patience: float) -> list[str]:
        """Send the final model to all clients that are there; return who has it."""
        packed = pack(files)
        message = to_message(wire.Frame(result=wire.Result(body=packed.header)), packed)
        receivers = [m for m in self.members.values() if m.address and not m.excluded]
        for member in receivers:
            self._roster.send_message(member, message)
        ends = time.monotonic() + patience
        while any(m.address and not m.has_model for m in receivers) and time.monotonic() < ends:
            self._roster.look()
            self._receive(LOOK)
        return [member.name for member in receivers if member.has_model]

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say to all clients why the study failed, if it did."""
        left = {m.address for m in self.members.values() if m.address} if reason else set()
        for address in left:
            self._roster.refuse(address, reason, again)
        ends = time.monotonic() + GOODBYE
        while left and time.monotonic() < ends:
            left -= {address for address, _ in self._carrier.receive(LOOK)}

    def _receive(self, seconds: float) -> None:
        for address, message in self._carrier.receive(seconds):
            member = self._roster.at(address)
            if message is None:  # a restarted client needs the offer again
                self._roster.offer_again(address)
                if member is not None:
                    self._roster.leave(member)
                continue
            try:
                self._take(address, member, message)
            except FederationError as error:
                if member is not None:
                    self._roster.fail(member, f"sent a bad reply: {error}", bad=True)
                    self._roster.leave(member)
                self._roster.offer_again(address)

    def _take(self, address: str, member: MessageMember | None, message: bytes) -> None:
        frame, buffer = from_message(message)
        kind = frame.WhichOneof("kind")
        if kind == "accept":
            self._roster.join(address, frame.accept)
        elif kind == "refusal":
            name_in_reply = frame.refusal.reason if member is None else member.name
            name = name_in_reply if name_in_reply in self.members else address
            self._roster.decline(name, member, "its policy or its settings keep it from joining")
        elif member is None:
            return  # an answer to a refusal, or of a client that was given up
        elif kind == "received":
            member.has_model = True
        elif kind in ("reply", "failure"):
            member.received += len(message)
            if kind == "reply":
                self._take_reply(member, frame.reply, buffer)
            else:
                self._take_failure(member, frame.failure)
            self._roster.catch_up(member)

    def _take_failure(self, member: MessageMember, failure: wire.Failure) -> None:
        if failure.id == member.late:
            member.late = None
        reason = FAILURES.get(failure.kind, "it failed")
        if failure.leaves:
            self._roster.decline(member.name, member, reason)
        elif member.has(failure.id):
            self._roster.fail(member, reason, bad=True)
        if self._roster.standing_call(failure.id) and member.address:
            # Without the standing calls it is of no use: it gets the offer again, not the call.
            self._roster.offer_again(member.address)
            self._roster.leave(member)

    def _take_reply(self, member: MessageMember, reply: wire.Reply, buffer: memoryview) -> None:
        """Pass on the reply to the call that a member was asked, or drop a late one."""
        if reply.id == member.late:
            member.late = None
        if self._roster.standing_call(reply.id):
            member.answered.add(reply.id)
        if not member.has(reply.id):
            return
        size = body_size(reply.body)
        if size > self.largest:
            reason = f"its reply has {size:,} bytes, more than {self.largest:,}"
            self._roster.fail(member, reason, bad=True)
        elif reply.study != self._fingerprint:
            self._roster.fail(member, f"its reply is of the study {reply.study!r}", bad=True)
        else:
            member.call = None
            arrived = ReplyArrived(member.name, reply.id, reply.body, buffer, reply.seconds)
            self._roster.inbox.put(arrived)
