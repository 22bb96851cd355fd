"""Messages as frames on a stream; large ones in chunks, far below gRPC's limit of 4 MB.

The first byte of a frame says what it is: a message's head in MessagePack, with its body if that is
small; a chunk of a body; or a heartbeat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

import grpc
import msgspec

from fedtopics.engines.messages import Message
from fedtopics.engines.values import Packed, aligned, pack
from fedtopics.errors import FederationError

SERVICE = "fedtopics.v2.Federation"
HEAD, PART, BEAT = b"m", b"c", b"h"  # first bytes of frames
SMALL = 1 << 16  # bytes of a body that needs no chunks
CHUNK = 3 << 20
SMALLEST_CHUNK = 256 << 10
HEARTBEAT = 20.0  # seconds; proxies close streams that are silent for a minute

# A dead connection is noticed within half a minute, with pings that servers tolerate.
OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
    ("grpc.enable_retries", 0),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a few bytes could become many
    ("grpc.server_handshake_timeout_ms", 20_000),  # of TLS, for sockets that say nothing
    # Without the probe a stream holds half a megabyte that nobody has read yet, with it many.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 512 << 10),
]


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What a message is, before its body is read."""

    kind: str
    size: Annotated[int, msgspec.Meta(ge=0)]  # bytes of its body
    small: bytes = b""  # the body, if that has no chunks


class DisconnectedError(Exception):
    """The other side is gone."""


class Stream:
    """One end of a stream of bytes: whole messages out, frames in, bytes counted.

    With `echo` it answers heartbeats, so that both directions carry something.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        echo: bool = False,
    ) -> None:
        self._read = read
        self._write = write
        self._echo = echo
        self._lock = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self.sent = 0
        self.received = 0
        self.last_received = time.monotonic()

    async def send(self, frames: Iterable[bytes]) -> None:
        """Send the frames of a message, or a heartbeat."""
        async with self._lock:
            for raw in frames:
                self._writing = asyncio.ensure_future(self._write(raw))
                self._writing.add_done_callback(looked_at)
                try:
                    await asyncio.shield(self._writing)
                except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    raise DisconnectedError from None
                self.sent += len(raw)

    async def settle(self, seconds: float) -> None:
        """Wait for what is being sent, when nobody sends any more: gRPC ends no stream before."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=seconds)

    async def next(self) -> Head:
        """Wait for a message's head.

        A `DisconnectedError` if the other side is gone, a `FederationError` if it sent no head.
        """
        what, content = await self._next_frame()
        if what != HEAD:
            raise FederationError("A message is damaged.")
        try:
            return msgspec.msgpack.decode(content, type=Head)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise FederationError("A message is damaged.") from None

    async def body(self, head: Head) -> memoryview:
        """Collect the chunks of a body."""
        if head.small and len(head.small) != head.size:
            raise FederationError("A message has another length than it announced.")
        buffer = aligned(head.size)
        place = len(head.small)
        buffer[:place] = head.small
        while place < len(buffer):
            what, chunk = await self._next_frame()
            if what != PART:
                raise FederationError("A message ended before its body.")
            if place + len(chunk) > len(buffer) or not len(chunk):
                raise FederationError("A message has another length than it announced.")
            buffer[place : place + len(chunk)] = chunk
            place += len(chunk)
        return buffer

    async def _next_frame(self) -> tuple[bytes, memoryview]:
        """Wait for a frame that is no heartbeat; return what it is, and its content."""
        while (raw := await self._next_raw()) == BEAT:
            if self._echo:
                await self.send([BEAT])
        return raw[:1], memoryview(raw)[1:]

    async def _next_raw(self) -> bytes:
        try:
            raw = await self._read()
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            raise DisconnectedError from None
        if raw is grpc.aio.EOF:
            raise DisconnectedError
        self.received += len(raw)
        self.last_received = time.monotonic()
        return bytes(raw)


def looked_at(done: asyncio.Future[Any]) -> None:
    """Look at an exception that nobody waits for any more, so that it is not printed."""
    if not done.cancelled():
        done.exception()


def chunk_size(n_clients: int) -> int:
    """Return the bytes of a chunk: the more clients, the smaller, since each holds some."""
    return min(CHUNK, max(SMALLEST_CHUNK, (16 << 20) // n_clients))


def frames_of(message: Message, size: int) -> list[bytes]:
    """Write a message as frames, its body in chunks of so many bytes, for any number of others."""
    packed = pack(message)
    is_small = packed.size <= SMALL
    small = b"".join(packed.pieces) if is_small else b""
    head = msgspec.msgpack.encode(Head(message.kind, packed.size, small))
    return [HEAD + head, *([] if is_small else chunks(packed, size))]


def chunks(packed: Packed, size: int) -> list[bytes]:
    """Cut a body into frames of so many bytes."""
    frames: list[list[bytes | memoryview]] = []
    room = 0
    for piece in packed.pieces:
        rest = memoryview(piece)
        while len(rest):
            if not room:
                frames.append([PART])
                room = size
            frames[-1].append(rest[:room])
            rest, room = rest[room:], max(0, room - len(rest))
    return [b"".join(parts) for parts in frames]
