"""Messages as frames on a stream: chunks, heartbeats, damage."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from fedtopics.engines.grpc import frames
from fedtopics.engines.grpc.frames import BEAT, CHUNK, HEAD, PART, SMALL, Head, Stream, frames_of
from fedtopics.engines.messages import Done, Reply, read_message
from fedtopics.engines.values import Packed
from fedtopics.errors import FederationError
from tests.helpers.damage import mutate
from tests.helpers.federation import assert_same


def stream_of(raws: Sequence[Any], sent: list[bytes] | None = None, echo: bool = False) -> Stream:
    """The end of a stream on which these frames arrive, then nothing."""
    waiting = iter(raws)

    async def read() -> Any:
        return next(waiting, frames.grpc.aio.EOF)

    async def write(raw: bytes) -> None:
        if sent is not None:
            sent.append(raw)

    return Stream(read, write, echo)


def collected(raws: Sequence[bytes], size: int, **how: Any) -> memoryview:
    return asyncio.run(stream_of(raws, **how).body(Head("reply", size)))


@pytest.mark.parametrize("over", [1 - CHUNK, -1, 0, 1, 3 * CHUNK + 5])
def test_bodies_are_cut_into_chunks(over: int) -> None:
    content = np.random.default_rng(0).bytes(CHUNK + over)
    raws = frames.chunks(Packed([content[:7], content[7:100], memoryview(content)[100:]]), CHUNK)
    assert raws == [PART + content[i : i + CHUNK] for i in range(0, len(content), CHUNK)]
    assert all(len(raw) < 4 << 20 for raw in raws), "gRPC's limit"
    assert collected(raws, len(content)) == content


@pytest.mark.parametrize("number", [SMALL // 2, SMALL])
def test_small_bodies_are_in_their_frame(number: int) -> None:
    message = Reply(1, b"", b"", {"x": np.ones(number, np.uint8)})
    raws, is_small = frames_of(message, CHUNK), number < SMALL
    stream = stream_of(raws)
    head = asyncio.run(stream.next())
    assert (head.kind, bool(head.small), len(raws)) == ("reply", is_small, 1 if is_small else 2)
    found: Any = read_message("reply", asyncio.run(stream.body(head)))
    assert_same(found.reply, message.reply)
    assert stream.received == sum(map(len, raws))


@pytest.mark.parametrize("size", [1, 63, 65, 200])
def test_a_small_body_of_another_length(size: int) -> None:
    with pytest.raises(FederationError, match="another length than it announced"):
        asyncio.run(stream_of([]).body(Head("done", 64, bytes(size))))


def test_heartbeats_between_chunks_are_answered() -> None:
    sent: list[bytes] = []
    raws = [BEAT, PART + b"oa", BEAT, BEAT, PART + b"k"]
    assert collected(raws, 3, sent=sent, echo=True) == b"oak"
    assert sent == [BEAT] * 3
    assert collected(raws, 3, sent=sent) == b"oak"
    assert len(sent) == 3


@pytest.mark.parametrize(
    ("raws", "message"),
    [
        ([PART + bytes(8), PART + bytes(9)], "another length than it announced"),
        ([PART], "another length than it announced"),
        ([b""], "ended before its body"),
        ([b"x" + bytes(16)], "ended before its body"),
        (frames_of(Done(), CHUNK), "ended before its body"),
    ],
)
def test_damaged_chunks(raws: list[bytes], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        collected(raws, 16)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff\xff", PART + b"oak", HEAD, HEAD + b"\x92\xa1\xff\x00", HEAD + b"\xdd\xff\xff\xff",
     HEAD + msgspec.msgpack.encode(["done", -1]), HEAD + msgspec.msgpack.encode({"kind": "done"}),
     HEAD + b"\x94\xa4done\x00\xc4\x00" + b"\x91" * 99_999],
)  # fmt: skip
def test_damaged_heads(raw: bytes) -> None:
    with pytest.raises(FederationError, match="is damaged"):
        asyncio.run(stream_of([raw]).next())


def test_a_stream_that_ends() -> None:
    with pytest.raises(frames.DisconnectedError):
        asyncio.run(stream_of([]).next())
    with pytest.raises(frames.DisconnectedError):
        collected([PART + bytes(8)], 16)


def test_mutated_frames_never_break_the_reader() -> None:
    whole = frames_of(Reply(1, b"", b"", {"x": np.arange(9000), "w": ["oak"] * 9}), 30_000)
    rng, broken = random.Random(1), 0  # noqa: S311

    async def read(raws: list[bytearray]) -> None:
        stream = stream_of([bytes(raw) for raw in raws])
        head = await stream.next()
        if head.size < 1 << 20:  # callers look before they read
            read_message(head.kind, await stream.body(head), 1 << 20)

    for _ in range(2000):
        raws = [bytearray(raw) for raw in whole]
        for raw in rng.sample(raws, rng.randint(1, 2)):
            mutate(raw, rng)
        try:
            asyncio.run(read(raws))
        except (FederationError, frames.DisconnectedError):
            broken += 1
    assert broken > 500
