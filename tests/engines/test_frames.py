"""Messages as frames on a stream: chunks, heartbeats, damage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc import frames
from fedtopics.engines.grpc.frames import DisconnectedError, Stream, chunks
from fedtopics.engines.values import (
    SMALL,
    Packed,
    body_size,
    pack,
    unpack,
)
from fedtopics.errors import FederationError
from tests.helpers.damage import joined, mutate

DONE = wire.Frame(message=wire.Message(kind="done")).SerializeToString()


def stream_of(raws: Sequence[Any], sent: list[bytes] | None = None, echo: bool = False) -> Stream:
    """The end of a stream on which these frames arrive, then nothing."""
    waiting = iter(raws)

    async def read() -> Any:
        return next(waiting, frames.grpc.aio.EOF)

    async def write(raw: bytes) -> None:
        if sent is not None:
            sent.append(raw)

    return Stream(read, write, echo)


def heartbeat() -> bytes:
    return wire.Frame(heartbeat=wire.Heartbeat()).SerializeToString()


def cut(
    content: bytes | memoryview,
    size: int = frames.CHUNK,
    pieces: Callable[[bytes], list[bytes]] | None = None,
) -> list[bytes]:
    return chunks(Packed(0, [content] if pieces is None else pieces(content)), size)


@pytest.mark.parametrize("over", [SMALL + 1 - frames.CHUNK, -1, 0, 1, 3 * frames.CHUNK + 5])
def test_chunks_are_frames(over: int) -> None:
    size = frames.CHUNK + over
    content = np.random.default_rng(0).bytes(size)
    raws = cut(content)
    found = [wire.Frame.FromString(raw) for raw in raws]
    assert all(frame.WhichOneof("kind") == "chunk" for frame in found)
    assert [len(frame.chunk) for frame in found[:-1]] == [frames.CHUNK] * (len(found) - 1)
    assert len(found) == -(-size // frames.CHUNK)
    assert b"".join(frame.chunk for frame in found) == content
    assert all(len(raw) < 4 << 20 for raw in raws), "gRPC's limit"
    stream = stream_of(raws)
    assert asyncio.run(stream.body(wire.Body(structure=0, data=size))) == content
    assert stream.received == sum(map(len, raws))


@pytest.mark.parametrize("size", [127, 128, 129, 16_383, 16_384, 16_385, 65_536])
def test_chunks_of_all_lengths_are_protobufs(size: int) -> None:
    content = np.random.default_rng(0).bytes(SMALL + 3 * size + size // 2)
    raws = cut(content, size, lambda c: [c[:1], c[1 : size + 1], c[size + 1 :]])
    assert raws == [
        wire.Frame(chunk=content[i : i + size]).SerializeToString()
        for i in range(0, len(content), size)
    ]
    assert [frames._header_size(raw) for raw in raws] == [
        len(raw) - len(wire.Frame.FromString(raw).chunk) for raw in raws
    ]


@pytest.mark.parametrize("size", [64, SMALL, SMALL + 64])
def test_small_bodies_are_in_their_frame(size: int) -> None:
    content = np.random.default_rng(0).bytes(size)
    packed = Packed(0, [content[:50], content[50:]])
    small = size <= SMALL
    assert packed.header == wire.Body(data=size, small=content if small else b"")
    raws = chunks(packed, frames.CHUNK)
    assert len(raws) == (0 if small else 1)
    assert asyncio.run(stream_of(raws).body(packed.header)) == content


@pytest.mark.parametrize("size", [1, 63, 65, 200])
def test_a_small_body_of_another_length(size: int) -> None:
    with pytest.raises(FederationError, match="another length than it announced"):
        asyncio.run(stream_of([]).body(wire.Body(data=64, small=bytes(size))))


def test_heartbeats_between_chunks_are_answered() -> None:
    content, sent = np.random.default_rng(0).bytes(2 * SMALL + 2), []
    raws = cut(content, SMALL + 1)
    beaten = [heartbeat(), raws[0], heartbeat(), heartbeat(), raws[1]]
    stream = stream_of(beaten, sent, echo=True)
    assert asyncio.run(stream.body(wire.Body(data=len(content)))) == content
    assert sent == [heartbeat()] * 3
    assert stream.sent == 3 * len(heartbeat())


@pytest.mark.parametrize(
    ("raws", "message"),
    [
        ([b"\x42\x08" + bytes(8), b"\x42\x09" + bytes(9)], "another length than it announced"),
        ([b"\x42\x00"], "another length than it announced"),
        ([b"\x42"], "another length than it announced"),
        ([b"\x42\x05" + bytes(8)], "is damaged"),
        ([b"\x42\xff\xff\xff\xff\xff\xff" + bytes(8)], "is damaged"),
        ([b"\x42\x80\x80\x80\x80\x80\x80"], "is damaged"),
        ([b""], "ended before its body"),
        ([b"\x07\x07"], "is damaged"),
        ([DONE], "ended before its body"),
    ],
)
def test_damaged_chunks(raws: list[bytes], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        asyncio.run(stream_of(raws).body(wire.Body(data=16)))


def test_a_stream_that_ends() -> None:
    with pytest.raises(DisconnectedError):
        asyncio.run(stream_of([]).next())
    with pytest.raises(DisconnectedError):
        asyncio.run(stream_of([b"\x42\x08" + bytes(8)]).body(wire.Body(data=16)))
    with pytest.raises(FederationError, match="is damaged"):
        asyncio.run(stream_of([b"\xff\xff"]).next())


def test_mutated_frames_never_break_the_reader() -> None:
    packed = pack({"x": np.arange(9000), "words": ["oak"] * 9})
    frame = wire.Frame(message=wire.Message(kind="reply", body=packed.header))
    whole, rng = joined(packed), random.Random(1)  # noqa: S311

    async def read(raws: list[bytes]) -> None:
        stream = stream_of(raws)
        reply = (await stream.next()).message
        if body_size(reply.body) < 1 << 20:  # callers look before they read
            unpack(reply.body, await stream.body(reply.body), 1 << 20)

    async def all_of_them() -> int:
        broken = 0
        for _ in range(2000):
            raws = [bytearray(frame.SerializeToString()), *map(bytearray, cut(whole, 30_000))]
            for raw in rng.sample(raws, rng.randint(1, 2)):
                mutate(raw, [len(raw), 0], rng)
            try:
                await read([bytes(raw) for raw in raws])
            except (FederationError, DisconnectedError):
                broken += 1
        return broken

    assert asyncio.run(all_of_them()) > 500
