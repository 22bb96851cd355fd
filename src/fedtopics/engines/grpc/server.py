"""The server's end of all lines: who is there, what each was asked, what came back.

Everything here runs in one thread of its own, an asyncio loop. The method's thread posts calls to
it and takes what happened out of `inbox`, in the order in which it happened.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Container, Coroutine, Iterable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.base import FAILURES, Arrived, Failed, Happening, Noted
from fedtopics.engines.grpc.frames import (
    HEARTBEAT,
    OPTIONS,
    SERVICE,
    DisconnectedError,
    Line,
    chunk_size,
    chunks,
)
from fedtopics.engines.grpc.members import Budget, Call, Member
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.values import Packed, body_size, pack
from fedtopics.errors import FederationError

GRACE = 5.0  # seconds in which a line that broke may be taken up again
HANDSHAKE = 30.0  # seconds for each of its steps, counting documents apart
SAME_NAME = 10.0  # seconds in which the first of two clients of a name must answer
IN_FLIGHT = 24 << 20  # bytes of replies that were received and not yet added up

GOODBYE = 2.0
# Bytes by glibc's numbers of its options: M_MMAP_THRESHOLD (larger blocks go back at once) and
# M_TRIM_THRESHOLD (free memory that is kept for the smaller ones).
KEPT_MEMORY = {-3: 8 << 20, -1: 32 << 20}

T = TypeVar("T")


class Server:
    """Listen for the clients of one study.

    Parameters
    ----------
    proposal : Proposal
    names : iterable of str
        The clients.
    address : str
        HOST:PORT to listen on; port 0 takes a free one.
    credentials : grpc server credentials, or None
        None speaks without TLS and believes the name a client gives: for one machine only.
    largest : int
        Most bytes of a message.
    """

    def __init__(
        self,
        proposal: Proposal,
        names: Iterable[str],
        address: str,
        credentials: grpc.ServerCredentials | None,
        largest: int = 1 << 30,
    ) -> None:
        self.members = {name: Member(name) for name in sorted(names)}
        self.inbox: SimpleQueue[Happening] = SimpleQueue()
        self.largest = largest
        self._chunk = chunk_size(len(self.members))
        self._proposal = proposal
        self._address = address
        self._credentials = credentials
        self._run = os.urandom(8)
        self._standing: dict[str, Call] = {}
        self._last_id = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._grpc: Any = None
        self._budget = Budget(IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()

    # What the method's thread calls.

    def start(self) -> int:
        """Listen; return the port.

        Raises
        ------
        FederationError
            If the address cannot be listened on.
        """
        _return_freed_memory()
        self._thread.start()
        return self._wait(self._listen())

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say goodbye to all clients, with a reason if the study failed, and stop listening."""
        if self._thread.is_alive():
            self._wait(self._close(reason, again))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

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

        A standing call is repeated to every client process that joins later.
        """
        self._last_id += 1
        packed = pack(payload)
        round_ = int(payload.get("round", 0))
        cut = chunks(packed, self._chunk)
        call = Call(self._last_id, function, round_, attempt, packed, cut, bounded)
        self._loop.call_soon_threadsafe(self._dispatch, call, list(names), standing)
        return call.id

    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call; or for those alone that have not come."""
        self._loop.call_soon_threadsafe(self._abandon, call, reason, everyone)

    def room(self, size: int, next_name: str) -> None:
        """Give back the room of replies that were added up; say whose is next."""
        asyncio.run_coroutine_threadsafe(self._budget.give(size, next_name), self._loop)

    def exclude(self, name: str, reason: str) -> None:
        """Send a client away for good."""
        member = self.members[name]
        member.excluded = reason
        if (line := member.line) is not None:
            self._wait(self._refuse(line, f"The server has excluded this client: {reason}."))

    def hand_out(self, files: Mapping[str, Any], patience: float) -> list[str]:
        """Give the final model to all clients that are there; return who has it."""
        return self._wait(self._hand_out(pack(files), patience))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # What the loop's thread does.

    async def _listen(self) -> int:
        handler = grpc.stream_stream_rpc_method_handler(self._join)
        self._grpc = grpc.aio.server(options=OPTIONS)
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Join": handler}),)
        )
        try:
            if self._credentials is None:
                port = self._grpc.add_insecure_port(self._address)
            else:
                port = self._grpc.add_secure_port(self._address, self._credentials)
            await self._grpc.start()
        except RuntimeError:
            port = 0
        if not port:
            raise FederationError(
                f"The server cannot listen on {self._address}: the port is in use or the address "
                "is not this machine's; name another with --listen."
            )
        return int(port)

    async def _close(self, reason: str, again: bool) -> None:
        lines = [member.line for member in self.members.values() if member.line is not None]
        if reason:
            await asyncio.gather(*(self._refuse(line, reason, again) for line in lines))
        await self._grpc.stop(grace=1.0)

    def _dispatch(self, call: Call, names: list[str], standing: bool) -> None:
        if standing:
            self._standing[call.function] = call
        for name in names:
            member = self.members[name]
            if member.available:
                member.call = call
                self._spawn(self._send_call(member, call))
            else:
                self.inbox.put(Failed(name, call.id, member.state, bad=False))
        if standing:
            for member in self.members.values():
                if member.call is not call:  # it came late, or is late
                    self._catch_up(member)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)  # the loop itself holds them weakly
        task.add_done_callback(self._tasks.discard)

    async def _send_call(self, member: Member, call: Call) -> None:
        with suppress(DisconnectedError):  # whoever reads the line notices as well
            if member.line is not None:
                await member.line.send(call.frame, call.chunks)

    def _abandon(self, call: int, reason: str, everyone: bool) -> None:
        for member in self.members.values():
            asked = member.call is not None and member.call.id == call
            if asked and (everyone or not member.waits):
                member.late = call
                self._fail(member, reason)

    def _fail(self, member: Member, reason: str, bad: bool = False) -> None:
        if member.call is not None:
            self.inbox.put(Failed(member.name, member.call.id, reason, bad))
            member.call = None

    async def _join(self, _: Any, context: Any) -> None:
        """Serve one stream, whoever opened it and whatever comes."""
        line = Line(context.read, context.write)
        try:
            hello = (await asyncio.wait_for(line.next(), HANDSHAKE)).hello
            member = await self._admit(line, hello, self._name(hello, context))
            if member is not None:
                await self._attend(member, line, hello.process)
        except (DisconnectedError, TimeoutError):
            return
        except FederationError as error:
            await self._refuse(line, str(error), again=True)

    def _name(self, hello: wire.Hello, context: Any) -> str:
        """Return the name in the certificate; without TLS, the name that is claimed."""
        if self._credentials is None:
            return hello.name
        names = context.auth_context().get("x509_common_name", [b""])
        return bytes(names[0]).decode("utf-8", "replace")

    async def _refuse(self, line: Line, reason: str, again: bool = False) -> None:
        with suppress(DisconnectedError, TimeoutError):
            refusal = wire.Frame(refusal=wire.Refusal(reason=reason, again=again))
            await asyncio.wait_for(line.send(refusal), GOODBYE)

    async def _admit(self, line: Line, hello: wire.Hello, name: str) -> Member | None:
        """Shake hands; return who it is, or None for someone who does not take part."""
        objection = self._objection(name, hello)
        if hello.look and not objection:
            await line.send(wire.Frame(offer=self._offer()))
            return None
        objection = objection or await self._same_name(name, hello)
        if not objection:
            await line.send(wire.Frame(offer=self._offer()))
            # The client counts its words before it answers, however long that takes.
            answer = await line.next()
            if answer.HasField("refusal"):
                self.inbox.put(
                    Noted("declined", name, "its policy or its settings keep it from joining")
                )
                return None
            if answer.accept.fingerprint == self._proposal.fingerprint:
                return self.members[name]
            objection = (
                f"The client joins the study {answer.accept.fingerprint or 'without a name'}, this "
                f"server runs {self._proposal.fingerprint}; begin the client anew."
            )
        self.inbox.put(Noted("refused", name, objection))
        await self._refuse(line, objection)
        return None

    def _objection(self, name: str, hello: wire.Hello) -> str:
        if name not in self.members:
            return (
                f"The study has no client named {name!r}; name the client in the study under "
                "[clients], or give it a certificate with a name that is there."
            )
        if self.members[name].excluded:
            return f"This client was excluded: {self.members[name].excluded}."
        return self._proposal.objection(hello.product, hello.wire, dict(hello.methods))

    def _offer(self) -> wire.Offer:
        return self._proposal.offer(run=self._run, chunk=self._chunk)

    async def _same_name(self, name: str, hello: wire.Hello) -> str:
        """Object to a second client of a name while the first one answers."""
        first = self.members[name]
        line = first.line
        if line is None or first.process == hello.process:
            return ""
        asked = time.monotonic()
        with suppress(DisconnectedError, TimeoutError):
            await asyncio.wait_for(line.send(wire.Frame(heartbeat=wire.Heartbeat())), SAME_NAME)
        while time.monotonic() < asked + SAME_NAME and first.line is line:
            if line.heard > asked:
                return (
                    f"A client named {name!r} is connected already, from another process; stop "
                    "it first, or give each client an identity of its own."
                )
            await asyncio.sleep(0.05)
        return ""

    async def _attend(self, member: Member, line: Line, process: bytes) -> None:
        """Keep a member's line until it breaks."""
        if member.line is not None:
            self._leave(member, member.line)
        anew = process != member.process
        if anew:
            self._fail(member, "it was started anew")
            member.process, member.heard = process, set()
        # A reply that was still to come was lost with the old line.
        member.line, member.late, member.ready = line, None, False
        beats = self._loop.create_task(self._beat(line))
        try:
            self.inbox.put(Noted("joined", member.name))
            self._catch_up(member)
            if member.call is not None:
                await line.send(member.call.frame, member.call.chunks)
            while member.line is line:
                await self._take(member, line, await line.next())
        finally:
            beats.cancel()
            if member.line is line:
                self._leave(member, line)

    def _catch_up(self, member: Member) -> None:
        """Repeat the standing calls to a member that has not heard them, one after the other."""
        missed = [call for call in self._standing.values() if call.id not in member.heard]
        if not missed and not member.ready:
            self.inbox.put(Noted("ready", member.name))
        member.ready = not missed
        if missed and member.line is not None and member.call is None and member.late is None:
            member.late = missed[0].id
            self._spawn(self._send_call(member, missed[0]))

    def _leave(self, member: Member, line: Line) -> None:
        member.line = None
        member.gone_bytes = [
            before + now
            for before, now in zip(member.gone_bytes, (line.sent, line.received), strict=True)
        ]
        self.inbox.put(Noted("lost", member.name))
        if member.call is not None:
            self._loop.call_later(GRACE, self._expire, member, member.call)

    def _expire(self, member: Member, call: Call) -> None:
        if member.line is None and member.call is call:
            self._fail(member, "its connection was lost")

    async def _take(self, member: Member, line: Line, frame: wire.Frame) -> None:
        """Take what a member sends of its own accord or in reply."""
        kind = frame.WhichOneof("kind")
        standing = {call.id: call for call in self._standing.values()}
        if kind == "reply":
            await self._reply(member, line, frame.reply, standing.keys())
        elif kind == "failure":
            failure = frame.failure
            reason = FAILURES.get(failure.kind, "it failed")
            if failure.leaves:
                self.inbox.put(Noted("declined", member.name, reason))
            if member.call is not None and failure.id == member.call.id:
                self._fail(member, reason, bad=not failure.leaves)
            elif failure.id == member.late:
                member.late = None
                if failure.id in standing:
                    function = standing[failure.id].function
                    raise FederationError(f"The client could not repeat {function!r}.")
        elif kind == "received":
            member.received_model.set()
        elif kind == "refusal":
            raise DisconnectedError
        else:
            raise FederationError("The client sent a message that has no place here.")
        self._catch_up(member)

    async def _reply(
        self, member: Member, line: Line, reply: wire.Reply, standing: Container[int]
    ) -> None:
        call, size = member.call, body_size(reply.body)
        if size > self.largest:
            self._fail(
                member, f"its reply has {size:,} bytes, more than {self.largest:,}", bad=True
            )
            raise FederationError(
                f"The reply of {size:,} bytes is over the server's limit of {self.largest:,}; "
                "raise largest_message in the study's [federation]."
            )
        if call is None or reply.id != call.id:
            await line.body(reply.body)
            if reply.id == member.late:
                member.late = None
            if reply.id in standing:
                member.heard.add(reply.id)
            else:
                self.inbox.put(Noted("old reply", member.name))
            return
        if call.bounded:
            member.waits = True
            try:
                await self._budget.take(member.name, size)
            finally:
                member.waits = False
        try:
            buffer = await line.body(reply.body)
        except BaseException:
            if call.bounded:
                await self._budget.give(size)
            raise
        if member.call is call and reply.study == self._proposal.fingerprint:
            member.call = None
            if reply.id in standing:
                member.heard.add(reply.id)
            self.inbox.put(Arrived(member.name, call.id, reply.body, buffer, reply.seconds))
            return
        if call.bounded:
            await self._budget.give(size)
        if member.call is call:
            self._fail(member, f"its reply is of the study {reply.study!r}", bad=True)
        else:  # given up meanwhile
            member.late = None

    async def _beat(self, line: Line) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            try:
                await line.send(wire.Frame(heartbeat=wire.Heartbeat()))
            except DisconnectedError:
                return

    async def _hand_out(self, packed: Packed, patience: float) -> list[str]:
        frame, cut = wire.Frame(result=wire.Result(body=packed.header)), chunks(packed, self._chunk)

        async def give(member: Member) -> bool:
            if member.line is None or member.excluded:
                return False
            try:
                await member.line.send(frame, cut)
                await asyncio.wait_for(member.received_model.wait(), patience)
            except (DisconnectedError, TimeoutError):
                return False
            return True

        members = list(self.members.values())
        given = await asyncio.gather(*(give(member) for member in members))
        return [member.name for member, has in zip(members, given, strict=True) if has]


def _return_freed_memory() -> None:
    """Let the C library give large blocks back to the system when they are freed.

    By default it keeps them, and the replies of fifty clients leave holes of a gigabyte.
    """
    with suppress(OSError, AttributeError):  # not glibc
        for option, size in KEPT_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)
