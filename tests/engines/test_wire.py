"""What travels: plain data and back, damaged messages, chunks, versions, the generated code."""

from __future__ import annotations

import ast
import asyncio
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedtopics.engines.call_handler import proposed

import fedtopics
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.grpc import frames
from fedtopics.engines.grpc.connection import check_loopback, join_address, split_address
from fedtopics.engines.grpc.frames import DisconnectedError, Stream, chunks
from fedtopics.engines.handshake import Proposal
from fedtopics.engines.values import (
    ALIGNMENT,
    DTYPES,
    SMALL,
    SPARSE_FROM,
    Packed,
    aligned,
    body_size,
    from_value,
    pack,
    plain_value,
    unpack,
)
from fedtopics.errors import FederationError
from fedtopics.methods.aggregation import Named, Rows
from tests.helpers.federation import assert_same

SOURCE = Path(fedtopics.__file__).parent


def there_and_back(value: Any) -> Any:
    packed = pack(value)
    return unpack(packed.header, joined(packed))


def joined(packed: Packed) -> memoryview:
    buffer = aligned(packed.size)
    buffer[:] = b"".join(packed.pieces)
    assert len(buffer) == packed.size == body_size(packed.header)
    return buffer


# Plain data

PLAIN = [
    None, True, False, 0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1 / 3, 5e-324,
    1.7976931348623157e308, float("inf"), float("-inf"), "", "oak", "Grüße, Straße, ẞ",
    "🌳🦆\u0301", "\x00\n", [], [1, "two", None], ["a", "b"], [[], [[]]], ["one", 2], {}, {"": {}},
    {"z": 1, "a": {"y": 2, "b": [3.5, {"x": None}]}}, [{"a": 1}, {"a": 2}],
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_arrives_as_it_was(value: Any) -> None:
    assert_same(there_and_back(value), value)
    assert_same(from_value(plain_value(value)), value)


def test_maps_keep_their_order() -> None:
    value = {name: {"y": 1, "x": 2} for name in ("z", "a", "ä", "m")}
    back = there_and_back(value)
    assert list(back) == ["z", "a", "ä", "m"]
    assert list(back["z"]) == ["y", "x"]


def test_tuples_and_numpys_numbers_arrive_as_pythons() -> None:
    value = {"t": (1, 2), "i": np.int32(-7), "f": np.float32(0.5), "b": np.bool_(True)}
    assert_same(there_and_back(value), {"t": [1, 2], "i": -7, "f": 0.5, "b": True})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4), (4, 0), (2, 1, 3)])
def test_arrays_of_every_kind(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2 if dtype == "bool" else 100, shape)
    array = np.asarray(array).astype(dtype)
    if array.size and array.dtype.kind in "iu":
        array.reshape(-1)[0] = np.iinfo(dtype).max
    back = there_and_back({"odd": np.zeros(3, np.uint8), "x": array, "last": np.ones(2)})
    assert_same(back["x"], array)
    assert_same(back["last"], np.ones(2))


def test_arrays_arrive_as_aligned_as_torchs() -> None:
    """Matrix products differ in the last bit with the alignment of their factors."""
    sparse, odd = matrix(5000, 2, 3), np.zeros(3, np.uint8)
    values = {"odd": odd, "x": np.ones(5), "y": np.ones((3, 3)), "sparse": sparse, "z": np.ones(7)}
    back = there_and_back({**values, "rows": Rows(np.array([1]), np.ones((1, 9)), 2)})
    back["rows"] = back["rows"].values
    assert [array.ctypes.data % 64 for array in back.values()] == [0] * 6


def test_arrays_arrive_in_the_usual_order() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for array in (np.asfortranarray(matrix), matrix.T, matrix[:, ::2], matrix[::-1]):
        back = there_and_back(array)
        assert_same(back, np.ascontiguousarray(array))
        assert back.flags.c_contiguous


def test_special_numbers_keep_their_bits() -> None:
    bits = np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001, 0x8000000000000000], np.uint64)
    assert_same(there_and_back(bits.view(np.float64)), bits.view(np.float64))


@pytest.mark.parametrize(
    "rows",
    [
        Rows(np.array([0, 3, 8]), np.arange(6, dtype=np.float32).reshape(3, 2), 9),
        Rows(np.zeros(0, np.int64), np.zeros((0, 2), np.float64), 9),
        Rows(np.arange(4), np.full((4, 1), -0.0, np.float32), 4),
        Rows(np.array([7]), np.zeros((1, 0)), 8),
        Rows(np.zeros(0, np.int64), np.zeros((0, 2)), 0),
        Rows(np.array([1]), np.arange(6.0).reshape(1, 2, 3), 2),
    ],
)
def test_rows(rows: Rows) -> None:
    assert_same(there_and_back({"r": rows})["r"], rows)


@pytest.mark.parametrize(
    "named",
    [
        Named(["elm", "Ähre"], np.array([[1, 2**60, 3], [0, 0, 0]])),
        Named.columns(3),
        Named(["oak"], np.zeros((1, 0), np.int64)),
        Named([f"w{i}" for i in range(4096)], np.eye(4096, 3, dtype=np.int64)),  # mostly zero rows
    ],
)
def test_counts_by_word(named: Named) -> None:
    assert_same(there_and_back({"n": named, "x": np.ones(3)})["n"], named)


@pytest.mark.parametrize(
    "value", [b"bytes", {1, 2}, object(), 1j, np.zeros(1, complex), np.zeros(1, np.float16),
              np.array(["a"]), np.array([None]), {"x": lambda: 0}, int, {1: 2}],
)  # fmt: skip
def test_nothing_else_travels(value: Any) -> None:
    with pytest.raises(TypeError):
        pack(value)


# Matrices with rows of zeros


def matrix(n_rows: int, n_columns: int, n_present: int, dtype: str = "float32") -> Any:
    array = np.zeros((n_rows, n_columns), dtype)
    array[np.random.default_rng(0).choice(n_rows, n_present, replace=False)] = 1.5
    return array


@pytest.mark.parametrize(
    ("array", "data"),
    [
        # Of 4,096 rows of four bytes a bitmap has 512 bytes: 128 rows.
        (matrix(4096, 1, 4096), 4 * 4096),
        (matrix(4096, 1, 4096 - 128), 4 * 4096),
        (matrix(4096, 1, 4096 - 144), 4 * (4096 - 144)),  # and 16 for what says so
        (matrix(4096, 1, 1), 64),
        (matrix(4096, 1, 0), 0),
        (matrix(2048, 1, 0, "float64"), 0),
        (matrix(2048, 1, 9, "int64"), 128),
        (matrix(4095, 1, 0), 4 * 4096),  # too small to look
        (matrix(4096, 2, 0, "int8"), 8192),
        (np.zeros(1 << 14), 1 << 17),
        (np.zeros((64, 64, 4)), 1 << 17),
    ],
)
def test_zero_rows_stay_behind_where_that_is_smaller(array: Any, data: int) -> None:
    packed = pack({"x": array})
    assert packed.header.data == data
    if data < array.nbytes:
        assert packed.size < pack({"x": np.ones_like(array)}).size
    assert_same(unpack(packed.header, joined(packed))["x"], array)


def test_rows_of_negative_zeros_and_nan_are_something() -> None:
    words = np.zeros((SPARSE_FROM // 8, 2), np.uint32)
    words[3] = 0x80000000  # -0.0
    words[5, 1] = 0x7FC0BEEF
    words[9, 0] = 0xFF800001
    words[11, 0] = 1
    array = words.view(np.float32)
    packed = pack(array)
    assert packed.header.data == 64
    assert_same(unpack(packed.header, joined(packed)), array)


def test_many_maps_share_no_bytes() -> None:
    """What came can be changed, and nothing else changes with it."""
    back = there_and_back({"a": np.zeros(3), "b": np.zeros(3)})
    back["a"] += 1
    assert back["b"].tolist() == [0, 0, 0]


# Damaged bodies

EXAMPLE = {
    "words": ["oak", "Ähre"],
    "n": 7,
    "loss": -2.5,
    "none": None,
    "map": {"list": [True, {"x": np.arange(5, dtype=np.int32)}]},
    "sparse": matrix(4096, 1, 9),
    "rows": Rows(np.array([1, 6]), np.ones((2, 3), np.float32), 11),
    "dense": np.arange(12.0).reshape(3, 4),
}


def broken(structure: wire.Value | bytes, data: bytes = b"", largest: int = 1 << 20) -> str:
    """Say what happens with a structure and the data that follow it."""
    raw = structure if isinstance(structure, bytes) else structure.SerializeToString()
    buffer = memoryview(raw + bytes(-len(raw) % ALIGNMENT) + data)
    with pytest.raises(FederationError) as error:
        unpack(wire.Body(structure=len(raw), data=len(data)), buffer, largest)
    return str(error.value)


def tensor(dtype: str, shape: Sequence[int], present: bytes = b"") -> wire.Value:
    return wire.Value(tensor=wire.Tensor(dtype=dtype, shape=shape, present=present))


def rows(dtype: str, shape: Sequence[int], present: bytes = b"") -> wire.Value:
    return wire.Value(rows=wire.Tensor(dtype=dtype, shape=shape, present=present))


def counts(names: list[str], dtype: str, shape: Sequence[int]) -> wire.Value:
    return wire.Value(named=wire.Named(names=names, values=tensor(dtype, shape).tensor))


HUGE = 2**64 - 1

DAMAGED: dict[str, tuple[wire.Value | bytes, bytes]] = {
    "no protobuf": (b"\xff\xff\xff", b""),
    "cut off": (tensor("float64", [1]).SerializeToString()[:-1], bytes(8)),
    "invalid UTF-8": (b"\x2a\x02\xff\xfe", b""),
    "too deep": (b"\x32\x82\x08\x0a\xff\x07" * 300, b""),
    "too little data": (tensor("float64", [3]), bytes(16)),
    "too much data": (tensor("float64", [1]), bytes(16)),
    "data of nothing": (wire.Value(integer=1), bytes(8)),
    "no dtype": (tensor("", [1]), bytes(8)),
    "objects": (tensor("object", [1]), bytes(8)),
    "objects, short": (tensor("O", [1]), bytes(8)),
    "half precision": (tensor("float16", [4]), bytes(8)),
    "complex": (tensor("complex128", [1]), bytes(16)),
    "text": (tensor("<U1", [2]), bytes(8)),
    "times": (tensor("datetime64[s]", [1]), bytes(8)),
    "big-endian": (tensor(">f8", [1]), bytes(8)),
    "no truth": (tensor("bool", [8]), b"\0\1\0\7\0\0\1\xff"),
    "a terabyte": (tensor("float64", [2**37]), b""),
    "more than memory": (tensor("float64", [2**62]), b""),
    "a product beyond 64 bits": (tensor("float64", [HUGE, HUGE, HUGE]), b""),
    "a product that wraps to zero": (tensor("uint8", [2**32, 2**32]), b""),
    "nothing, endlessly long": (tensor("float64", [0, HUGE]), b""),
    "nothing, of impossible strides": (tensor("float64", [0, 2**62, 2**62]), b""),
    "a hundred dimensions": (tensor("float64", [1] * 100), bytes(8)),
    "zero rows, a terabyte": (tensor("float64", [8, 2**34], b"\0"), b""),
    "zero rows without end": (tensor("float64", [2**60, 2**60], b"\0"), b""),
    "counts of more words": (counts(["a", "b"], "int64", [1, 1]), bytes(8)),
    "counts of fewer words": (counts([], "int64", [1, 1]), bytes(8)),
    "counts that are no whole numbers": (counts(["a"], "float64", [1, 1]), bytes(8)),
    "counts in a row": (counts(["a"], "int64", [1]), bytes(8)),
    "bitmap of no rows": (tensor("float32", [], b"\1"), bytes(4)),
    "bitmap too short": (tensor("float32", [9, 1], b"\1"), bytes(8)),
    "bitmap too long": (tensor("float32", [8, 1], b"\1\0"), bytes(8)),
    "bitmap of more rows than data": (tensor("float32", [8, 1], b"\x0f"), bytes(8)),
    "bitmap of fewer rows than data": (tensor("float32", [8, 1], b"\1"), bytes(16)),
    "rows without bitmap": (rows("float32", [2, 1]), bytes(8)),
    "rows of no matrix": (rows("float32", [2], b"\xc0"), bytes(8)),
    "rows of a number": (rows("float32", [], b"\xc0"), bytes(8)),
    "two entries of one name": (
        wire.Value(map=wire.Map(entries=[wire.Entry(name="x"), wire.Entry(name="x")])), b""
    ),
    "many arrays, together too large": (
        wire.Value(list=wire.List(values=[tensor("uint8", [8, 2**16], b"\0")] * 9)), b""
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_bodies(case: str) -> None:
    tracemalloc.start()
    try:
        assert broken(*DAMAGED[case]) == "A message has a damaged body."
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", ["no dtype", "two entries of one name", "a terabyte"])
def test_damaged_offers(case: str) -> None:
    value = DAMAGED[case][0]
    assert isinstance(value, wire.Value)
    with pytest.raises(FederationError, match="damaged value"):
        proposed(wire.Offer(study=value))


def test_an_offer_without_a_study() -> None:
    with pytest.raises(FederationError, match="offer holds no study"):
        proposed(wire.Offer(study=wire.Value(text="study")))


def test_arrays_up_to_the_limit_are_read() -> None:
    value = wire.Value(list=wire.List(values=[tensor("uint8", [8, 2**16], b"\0")] * 2))
    raw = value.SerializeToString()
    body = wire.Body(structure=len(raw), data=0)
    buffer = memoryview(raw + bytes(-len(raw) % ALIGNMENT))
    assert [array.shape for array in unpack(body, buffer, 1 << 20)] == [(8, 2**16)] * 2
    with pytest.raises(FederationError):
        unpack(body, buffer, (1 << 20) - 1)


def test_every_truncation_is_noticed() -> None:
    packed = pack({"n": 1, "x": np.arange(6, dtype=np.int32), "s": ["oak", "ash"]})
    buffer = joined(packed)
    assert unpack(wire.Body(), memoryview(b"")) is None  # which is no reply
    for length in range(1, len(buffer)):
        with pytest.raises(FederationError):
            unpack(packed.header, buffer[:length])
        # The header agrees with what came.
        data = max(0, length - body_size(wire.Body(structure=packed.structure)))
        body = wire.Body(structure=min(length, packed.structure), data=data)
        with pytest.raises(FederationError):
            unpack(body, buffer[:length])


@pytest.mark.parametrize("structure", [-8, -1, 1, 64, 2**62])
def test_wrong_sizes_are_noticed(structure: int) -> None:
    packed = pack({"n": 1, "x": np.arange(6)})
    body = wire.Body(structure=packed.structure + structure, data=packed.header.data)
    with pytest.raises(FederationError):
        unpack(body, joined(packed))


def test_mutated_messages_never_break_the_reader() -> None:
    packed = pack(EXAMPLE)
    whole, structure = joined(packed), packed.structure
    rng = random.Random(0)  # noqa: S311
    refused = 0
    tracemalloc.start()
    try:
        for _ in range(3000):
            raw, header = bytearray(whole), [structure, packed.header.data]
            for _ in range(rng.randint(1, 4)):
                mutate(raw, header, rng)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                unpack(wire.Body(structure=header[0], data=header[1]), memoryview(raw), 1 << 20)
            except FederationError:
                refused += 1
            assert tracemalloc.get_traced_memory()[1] - before < 4 << 20
    finally:
        tracemalloc.stop()
    assert refused > 1000


def mutate(raw: bytearray, header: list[int], rng: random.Random) -> None:
    """Damage a message, most often where its structure is."""
    place = rng.randrange(min(len(raw), rng.choice([header[0], 1 << 30])) or 1)
    kind = rng.randrange(6)
    if kind == 0:
        raw[place : place + 1] = bytes([rng.randrange(256)])
    elif kind == 1 and raw:
        raw[min(place, len(raw) - 1)] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del raw[place : place + rng.randint(1, 9)]
    elif kind == 3:
        raw[place:place] = rng.randbytes(rng.randint(1, 9))
    elif kind == 4:
        end = place + rng.randint(1, 40)
        raw[place:place] = raw[place:end]
    else:
        header[rng.randrange(2)] = rng.choice([0, 1, len(raw), rng.randrange(1 << 20), HUGE >> 1])


# Frames


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
        ([wire.Frame(received=wire.Received()).SerializeToString()], "ended before its body"),
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
    frame = wire.Frame(reply=wire.Reply(id=3, study="f00d", body=packed.header))
    whole, rng = joined(packed), random.Random(1)  # noqa: S311

    async def read(raws: list[bytes]) -> None:
        stream = stream_of(raws)
        reply = (await stream.next()).reply
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


# Versions

OFFERED = Proposal("0.3.1", "gfedntm", 2, {}, "f00d")


@pytest.mark.parametrize(
    ("product", "version", "methods", "objection"),
    [
        ("0.3.1", 1, {"gfedntm": 2}, ""),
        ("0.3.9", 1, {"gfedntm": 2, "other": 7}, ""),
        (
            "0.4.0", 1, {"gfedntm": 2},
            "The client has version 0.4.0 of fedtopics, the server 0.3.1; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "", 1, {"gfedntm": 2},
            "The client has version none of fedtopics, the server 0.3.1; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 2, {"gfedntm": 2},
            "The client has version 2 of the wire format, the server 1; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 1, {"gfedntm": 1},
            "The client has version 1 of the method 'gfedntm', the server 2; "
            "install fedtopics 0.3.1 on both sides.",
        ),
        (
            "0.3.0", 1, {"flda": 2},
            "The client has version none of the method 'gfedntm', the server 2; "
            "install fedtopics 0.3.1 on both sides.",
        ),
    ],
)  # fmt: skip
def test_versions(product: str, version: int, methods: dict[str, int], objection: str) -> None:
    assert OFFERED.objection(product, version, methods) == objection


# Addresses


@pytest.mark.parametrize(
    ("address", "host", "port", "joined"),
    [
        ("localhost:7000", "localhost", 7000, "localhost:7000"),
        ("localhost", "localhost", 7557, "localhost:7557"),
        ("10.0.0.7:0", "10.0.0.7", 0, "10.0.0.7:0"),
        ("[::1]:7000", "::1", 7000, "[::1]:7000"),
        ("[::1]", "::1", 7557, "[::1]:7557"),
        ("::1", "::1", 7557, "[::1]:7557"),
        ("2001:db8::7", "2001:db8::7", 7557, "[2001:db8::7]:7557"),
    ],
)
def test_addresses(address: str, host: str, port: int, joined: str) -> None:
    assert split_address(address) == (host, port)
    assert join_address(host, port) == joined


@pytest.mark.parametrize("address", ["", ":7000", "localhost:", "host:port", "a:65536", "a:-1",
                                     "a:²", "[]:1"])  # fmt: skip
def test_no_addresses(address: str) -> None:
    with pytest.raises(FederationError) as error:
        split_address(address)
    assert str(error.value) == f"{address!r} is no address; write HOST:PORT, as in localhost:7557."


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
def test_insecure_on_this_machine(address: str) -> None:
    check_loopback(address)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "10.0.0.7:1", "example.org:1", "[::]:1",
                                     "localhost.example.org:1"])  # fmt: skip
def test_insecure_between_machines(address: str) -> None:
    with pytest.raises(FederationError, match=r"--insecure speaks without encryption .* not with"):
        check_loopback(address)


# The package


def test_the_generated_code_is_due(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    proto = "fedtopics/engines/wire.proto"
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE.parent}", proto,
         f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"],
        check=True, cwd=SOURCE.parent,
    )  # fmt: skip
    for name in ("wire_pb2.py", "wire_pb2.pyi"):
        committed = SOURCE / "engines" / name
        generated = tmp_path / "fedtopics/engines" / name
        assert committed.read_text() == generated.read_text(), "run: make proto"


FORBIDDEN_MODULES = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "copyreg", "joblib", "marshal", "shelve"
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("torch", "save"), ("np", "load"), ("numpy", "load"), ("np", "save")}


def test_no_code_travels() -> None:
    """Nothing in the package can turn bytes into code."""
    files = [path for path in SOURCE.rglob("*.py") if not path.name.endswith("_pb2.py")]
    assert len(files) > 30
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {a.name.split(".")[0] for a in node.names} & FORBIDDEN_MODULES, where
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, where
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in LOADERS, where
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", where
