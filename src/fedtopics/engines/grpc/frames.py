"""Messages as frames on a stream; large ones in chunks, far below gRPC's limit of 4 MB."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.messages import read_frame
from fedtopics.engines.values import Packed, aligned, body_size
from fedtopics.errors import FederationError

SERVICE = "fedtopics.v2.Federation"
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

# A frame that holds a chunk, in protobuf's encoding: field 8, length, bytes. Written and read by
# hand, since protobuf would copy the chunk three times more.
CHUNK_TAG = b"\x42"


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

    async def send(self, frame: wire.Frame, chunks: Iterable[bytes] = ()) -> None:
        """Send a message: a frame and the chunks of its body."""
        async with self._lock:
            for raw in (frame.SerializeToString(), *chunks):
                self._writing = asyncio.ensure_future(self._write(raw))
                self._writing.add_done_callback(_looked_at)
                try:
                    await asyncio.shield(self._writing)
                except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    raise DisconnectedError from None
                self.sent += len(raw)

    async def settle(self, seconds: float) -> None:
        """Wait for what is being sent, when nobody sends any more: gRPC ends no stream before."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=seconds)

    async def next(self) -> wire.Frame:
        """Wait for a frame that is no heartbeat.

        A `DisconnectedError` if the other side is gone, a `FederationError` if it sent no frame.
        """
        while True:
            frame = read_frame(await self._next_raw())
            if not frame.HasField("heartbeat"):
                return frame
            await self._beat()

    async def body(self, body: wire.Body) -> memoryview:
        """Collect the chunks of a body."""
        buffer = aligned(body_size(body))
        place = len(body.small)
        if place:
            if place != len(buffer):
                raise FederationError("A message has another length than it announced.")
            buffer[:] = body.small
        while place < len(buffer):
            raw = await self._next_raw()
            if raw[:1] != CHUNK_TAG:
                if not read_frame(raw).HasField("heartbeat"):
                    raise FederationError("A message ended before its body.")
                await self._beat()
                continue
            chunk = memoryview(raw)[_header_size(raw) :]
            if place + len(chunk) > len(buffer) or not len(chunk):
                raise FederationError("A message has another length than it announced.")
            buffer[place : place + len(chunk)] = chunk
            place += len(chunk)
        return buffer

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

    async def _beat(self) -> None:
        if self._echo:
            await self.send(wire.Frame(heartbeat=wire.Heartbeat()))


def _looked_at(done: asyncio.Future[None]) -> None:
    """Look at an exception that nobody waits for any more, so that it is not printed."""
    if not done.cancelled():
        done.exception()


def chunk_size(n_clients: int) -> int:
    """Return the bytes of a chunk: the more clients, the smaller, since each holds some."""
    return min(CHUNK, max(SMALLEST_CHUNK, (16 << 20) // n_clients))


def chunks(packed: Packed, size: int) -> list[bytes]:
    """Cut a body into frames of so many bytes; the result can be sent to many."""
    if packed.is_small:
        return []
    frames, parts, room = [], [], size
    for piece in packed.pieces:
        rest = memoryview(piece)
        while len(rest):
            parts.append(rest[:room])
            room -= len(parts[-1])
            rest = rest[len(parts[-1]) :]
            if not room:
                frames.append(_chunk(parts))
                parts, room = [], size
    if parts:
        frames.append(_chunk(parts))
    return frames


def _chunk(parts: list[memoryview]) -> bytes:
    size = sum(map(len, parts))
    digits = bytearray()
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    digits.append(size)
    return b"".join([CHUNK_TAG, digits, *parts])


def _header_size(raw: bytes) -> int:
    """Return where a chunk's bytes begin, after checking that they are all of the frame."""
    size, place = 0, 1
    while place < len(raw) and place < 6:
        digit = raw[place]
        size |= (digit & 0x7F) << 7 * (place - 1)
        place += 1
        if digit < 0x80:
            break
    if size != len(raw) - place:
        raise FederationError("A message is damaged.")
    return place
