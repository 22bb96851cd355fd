"""Who is there, what each was asked, what came back; all of it in the loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.connections import FAILURES, Call, ReplyArrived
from fedtopics.engines.grpc.frames import HEARTBEAT, DisconnectedError, Stream
from fedtopics.engines.grpc.members import Budget, GrpcMember
from fedtopics.engines.roster import Roster
from fedtopics.engines.values import body_size
from fedtopics.errors import FederationError
from fedtopics.methods.events import StatusChange

GRACE = 5.0  # seconds in which a client whose connection broke may come back for its call
IN_FLIGHT = 24 << 20  # bytes of replies that were received and not yet added up


class GrpcRoster(Roster[GrpcMember]):
    """Send calls over streams, take replies of at most `largest` bytes."""

    def __init__(self, members: Mapping[str, GrpcMember], fingerprint: str, largest: int) -> None:
        super().__init__(members)
        self.budget = Budget(IN_FLIGHT)
        self._fingerprint = fingerprint
        self._largest = largest
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, member: GrpcMember, call: Call) -> None:
        """Send a call in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._send_call(member, call))
        self._tasks.add(task)  # the loop itself holds them weakly
        task.add_done_callback(self._tasks.discard)

    async def _send_call(self, member: GrpcMember, call: Call) -> None:
        with suppress(DisconnectedError):  # whoever reads the stream notices as well
            if member.stream is not None:
                await member.stream.send(call.frame, call.pieces)

    async def attend(self, member: GrpcMember, stream: Stream, process: bytes) -> None:
        """Serve a member's stream until it breaks: a `DisconnectedError`.

        A `FederationError` if the client sends what it may not.
        """
        if member.stream is not None:
            self._leave(member, member.stream)
        if process != member.process:
            self.fail(member, "it was restarted")
            member.process, member.answered = process, set()
        # A reply that was still to come was lost with the old stream.
        member.stream, member.late, member.ready = stream, None, False
        beats = asyncio.get_running_loop().create_task(_beat(stream))
        try:
            self.inbox.put(StatusChange("joined", member.name))
            self.catch_up(member)
            if member.call is not None:
                await stream.send(member.call.frame, member.call.pieces)
            while member.stream is stream:
                await self._take(member, stream, await stream.next())
                self.catch_up(member)
        finally:
            beats.cancel()
            if member.stream is stream:
                self._leave(member, stream)

    def _leave(self, member: GrpcMember, stream: Stream) -> None:
        member.stream = None
        sent, received = member.earlier_bytes
        member.earlier_bytes = sent + stream.sent, received + stream.received
        self.inbox.put(StatusChange("lost", member.name))
        if member.call is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(GRACE, self._expire, member, member.call)

    def _expire(self, member: GrpcMember, call: Call) -> None:
        if member.stream is None and member.call is call:
            self.fail(member, "its connection was lost")

    async def _take(self, member: GrpcMember, stream: Stream, frame: wire.Frame) -> None:
        kind = frame.WhichOneof("kind")
        if kind == "reply":
            await self._take_reply(member, stream, frame.reply)
        elif kind == "failure":
            self._take_failure(member, frame.failure)
        elif kind == "received":
            member.received_model.set()
        elif kind == "refusal":
            raise DisconnectedError
        else:
            raise FederationError("The client sent a message that has no place here.")

    def _take_failure(self, member: GrpcMember, failure: wire.Failure) -> None:
        reason = FAILURES.get(failure.kind, "it failed")
        if failure.leaves:
            self.inbox.put(StatusChange("declined", member.name, reason))
        if member.has(failure.id):
            self.fail(member, reason, bad=not failure.leaves)
        elif failure.id == member.late:
            member.late = None
            if call := self.standing_call(failure.id):
                raise FederationError(f"The client could not repeat {call.function!r}.")

    async def _take_reply(self, member: GrpcMember, stream: Stream, reply: wire.Reply) -> None:
        call, size = member.call, body_size(reply.body)
        if size > self._largest:
            reason = f"its reply has {size:,} bytes, more than {self._largest:,}"
            self.fail(member, reason, bad=True)
            raise FederationError(
                f"The reply of {size:,} bytes is over the server's limit of {self._largest:,}; "
                "raise largest_message in the study's [federation]."
            )
        standing = self.standing_call(reply.id) is not None
        if call is None or reply.id != call.id:
            await stream.body(reply.body)
            if reply.id == member.late:
                member.late = None
            if standing:
                member.answered.add(reply.id)
            else:
                self.inbox.put(StatusChange("old reply", member.name))
            return
        buffer = await self._body(member, stream, reply.body, call.bounded)
        if member.call is call and reply.study == self._fingerprint:
            member.call = None
            if standing:
                member.answered.add(reply.id)
            arrived = ReplyArrived(member.name, call.id, reply.body, buffer, reply.seconds)
            self.inbox.put(arrived)
            return
        if call.bounded:
            await self.budget.give(size)
        if member.call is call:
            self.fail(member, f"its reply is of the study {reply.study!r}", bad=True)
        else:  # given up meanwhile
            member.late = None

    async def _body(
        self, member: GrpcMember, stream: Stream, body: wire.Body, bounded: bool
    ) -> memoryview:
        """Read a reply's body, when there is room for it in memory."""
        if not bounded:
            return await stream.body(body)
        member.waits_for_memory = True
        try:
            await self.budget.take(member.name, body_size(body))
        finally:
            member.waits_for_memory = False
        try:
            return await stream.body(body)
        except BaseException:
            await self.budget.give(body_size(body))
            raise


async def _beat(stream: Stream) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT)
        try:
            await stream.send(wire.Frame(heartbeat=wire.Heartbeat()))
        except DisconnectedError:
            return
