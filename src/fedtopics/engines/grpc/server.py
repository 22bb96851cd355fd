"""The server's end of all streams: what the method's thread calls, and where clients come in.

Clients are served in a thread of its own, an asyncio loop (`roster`). The method's thread posts
calls to it and takes events out of `inbox`.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.connections import Call, Connections, Incoming
from fedtopics.engines.grpc.admission import Admission, refuse
from fedtopics.engines.grpc.frames import (
    OPTIONS,
    SERVICE,
    DisconnectedError,
    Stream,
    chunk_size,
    chunks,
)
from fedtopics.engines.grpc.members import GrpcMember
from fedtopics.engines.grpc.roster import GrpcRoster
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.values import Packed, pack
from fedtopics.errors import FederationError

T = TypeVar("T")
HANDSHAKE = 30.0  # seconds for a client's first frame
# Bytes by glibc's numbers of its options: M_MMAP_THRESHOLD (larger blocks go back at once) and
# M_TRIM_THRESHOLD (free memory that is kept for the smaller ones).
KEPT_MEMORY = {-3: 8 << 20, -1: 32 << 20}


class Server(Connections):
    """Listen for the clients of one study; an engine's `Connections`.

    The address is HOST:PORT; port 0 takes a free one. Without credentials it speaks without TLS and
    believes the name a client says: for one machine only. Messages have at most `largest` bytes.
    """

    members: Mapping[str, GrpcMember]
    inbox: SimpleQueue[Incoming]

    def __init__(
        self,
        proposal: Proposal,
        names: Iterable[str],
        address: str,
        credentials: grpc.ServerCredentials | None,
        largest: int = 1 << 30,
    ) -> None:
        self.members = {name: GrpcMember(name) for name in sorted(names)}
        self.largest = largest
        self._roster = GrpcRoster(self.members, proposal.fingerprint, largest)
        self.inbox = self._roster.inbox
        self._chunk = chunk_size(len(self.members))
        self._admission = Admission(proposal, self.members, self._chunk, self.inbox.put)
        self._address = address
        self._credentials = credentials
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._grpc: Any = None

    def start(self) -> int:
        """Listen; return the port. A `FederationError` if the address cannot be listened on."""
        _return_freed_memory()
        self._thread.start()
        return self._result(self._listen())

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say goodbye to all clients, with a reason if the study failed, and stop listening."""
        if self._thread.is_alive():
            self._result(self._close(reason, again))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _send(
        self, call: wire.Call, packed: Packed, names: list[str], bounded: bool, standing: bool
    ) -> None:
        pieces = chunks(packed, self._chunk)
        ready = Call(call.id, call.function, wire.Frame(call=call), pieces, bounded)
        self._loop.call_soon_threadsafe(self._roster.dispatch, ready, names, standing)

    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call; or for those alone that have not come."""
        self._loop.call_soon_threadsafe(self._roster.give_up, call, reason, everyone)

    def release(self, size: int, next_name: str) -> None:
        """Free the memory of replies that were added up; say whose reply is next."""
        asyncio.run_coroutine_threadsafe(self._roster.budget.give(size, next_name), self._loop)

    def exclude(self, name: str, reason: str) -> None:
        """Send a client away for good."""
        member = self.members[name]
        member.excluded = reason
        if (stream := member.stream) is not None:
            self._result(refuse(stream, f"The server has excluded this client: {reason}."))

    def send_model(self, files: Mapping[str, Any], patience: float) -> list[str]:
        """Send the final model to all clients that are there; return who has it."""
        return self._result(self._send_model(pack(files), patience))

    def _result(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop's thread; wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # In the loop's thread.

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
        streams = [member.stream for member in self.members.values() if member.stream is not None]
        if reason:
            await asyncio.gather(*(refuse(stream, reason, again) for stream in streams))
        await self._grpc.stop(grace=1.0)

    async def _join(self, _: Any, context: Any) -> None:
        """Serve one stream, whoever opened it and whatever comes."""
        stream = Stream(context.read, context.write)
        try:
            hello = (await asyncio.wait_for(stream.next(), HANDSHAKE)).hello
            member = await self._admission.admit(stream, hello, self._name(hello, context))
            if member is not None:
                await self._roster.attend(member, stream, hello.process)
        except (DisconnectedError, TimeoutError):
            return
        except FederationError as error:
            await refuse(stream, str(error), again=True)

    def _name(self, hello: wire.Hello, context: Any) -> str:
        """Return the name in the certificate; without TLS, the name that is claimed."""
        if self._credentials is None:
            return hello.name
        names = context.auth_context().get("x509_common_name", [b""])
        return bytes(names[0]).decode("utf-8", "replace")

    async def _send_model(self, packed: Packed, patience: float) -> list[str]:
        frame, cut = wire.Frame(result=wire.Result(body=packed.header)), chunks(packed, self._chunk)

        async def send(member: GrpcMember) -> bool:
            if member.stream is None or member.excluded:
                return False
            try:
                await member.stream.send(frame, cut)
                await asyncio.wait_for(member.received_model.wait(), patience)
            except (DisconnectedError, TimeoutError):
                return False
            return True

        members = list(self.members.values())
        received = await asyncio.gather(*(send(member) for member in members))
        return [member.name for member, has in zip(members, received, strict=True) if has]


def _return_freed_memory() -> None:
    """Let the C library give large blocks back to the system when they are freed.

    By default it keeps them, and the replies of fifty clients leave holes of a gigabyte.
    """
    with suppress(OSError, AttributeError):  # not glibc
        for option, size in KEPT_MEMORY.items():
            ctypes.CDLL(None).mallopt(option, size)
