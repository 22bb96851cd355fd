"""Plain data to bytes and back; damaged bodies."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.structures import DEEPEST, LARGEST, MOST_FIELDS
from fedtopics.engines.values import (
    ALIGNMENT,
    DTYPES,
    SPARSE_FROM,
    dumps,
    loads,
    pack,
    unpack,
)
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Rows
from tests.helpers.damage import HUGE, joined
from tests.helpers.federation import assert_same


def there_and_back(value: Any) -> Any:
    packed = pack(value)
    return unpack(packed.header, joined(packed))


# Plain data

PLAIN = [
    None, True, False, 0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1 / 3, 5e-324,
    1.7976931348623157e308, float("inf"), float("-inf"), "", "oak", "Grüße, Straße, ẞ",
    "🌳🦆\u0301", "\x00\n", [], [1, "two", None], ["a", "b"], [[], [[]]], ["one", 2], {}, {"": {}},
    b"", b"\0\xff",
    {"z": 1, "a": {"y": 2, "b": [3.5, {"x": None}]}}, [{"a": 1}, {"a": 2}],
]  # fmt: skip


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
    "value", [{1, 2}, object(), 1j, np.zeros(1, complex), np.zeros(1, np.float16),
              np.array(["a"]), np.array([None]), {"x": lambda: 0}, int, {1: 2}],
)  # fmt: skip
def test_nothing_else_travels(value: Any) -> None:
    with pytest.raises(TypeError):
        pack(value)


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_one_piece_of_bytes(value: Any) -> None:
    assert_same(loads(dumps(value)), value)


@pytest.mark.parametrize("content", [b"", b"x" * 63, b"\xff" * 64, b"\xff" * 200])
def test_pieces_that_are_none(content: bytes) -> None:
    with pytest.raises(FederationError):
        loads(content)


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


# Damaged bodies


def written(structure: wire.Value | bytes) -> bytes:
    return structure if isinstance(structure, bytes) else structure.SerializeToString()


def broken(structure: wire.Value | bytes, data: bytes = b"", largest: int = 1 << 20) -> str:
    """Say what happens with a structure and the data that follow it."""
    raw = written(structure)
    buffer = memoryview(raw + bytes(-len(raw) % ALIGNMENT) + data)
    with pytest.raises(FederationError) as error:
        unpack(wire.Body(structure=len(raw), data=len(data)), buffer, largest)
    return str(error.value)


def tensor(dtype: str, shape: Sequence[int], present: bytes = b"") -> wire.Value:
    return wire.Value(tensor=wire.Tensor(dtype=dtype, shape=shape, present=present))


def rows(dtype: str, shape: Sequence[int], present: bytes = b"") -> wire.Value:
    return wire.Value(rows=wire.Tensor(dtype=dtype, shape=shape, present=present))


def texts(n_lengths: int, size: int, of: str = "uint32") -> wire.Texts:
    """A list of so many texts, whose characters have so many bytes."""
    lengths, characters = tensor(of, [n_lengths]), tensor("uint8", [size])
    return wire.Texts(lengths=lengths.tensor, characters=characters.tensor)


def counts(n_names: int, dtype: str, shape: Sequence[int]) -> wire.Value:
    """Counts of words without a letter."""
    names, values = texts(n_names, 0), tensor(dtype, shape).tensor
    return wire.Value(named=wire.Named(names=names, values=values))


def within_lists(depth: int) -> wire.Value:
    value = wire.Value(integer=1)
    for _ in range(depth):
        value = wire.Value(list=wire.List(values=[value]))
    return value


def beside(*parts: bytes) -> bytes:
    """Arrays as they follow a structure."""
    return b"".join(part + bytes(-len(part) % ALIGNMENT) for part in parts)


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
    "counts of more words": (counts(2, "int64", [1, 1]), bytes(128)),
    "counts of fewer words": (counts(0, "int64", [1, 1]), bytes(64)),
    "counts that are no whole numbers": (counts(1, "float64", [1, 1]), bytes(128)),
    "counts in a row": (counts(1, "int64", [1]), bytes(128)),
    "texts that end early": (wire.Value(texts=texts(2, 3)), beside(b"\1\0\0\0\1\0\0\0", b"oak")),
    "texts that go on": (wire.Value(texts=texts(1, 3)), beside(b"\4\0\0\0", b"oak")),
    "texts that wrap": (wire.Value(texts=texts(2, 3)), beside(b"\xff" * 4 + bytes(4), b"oak")),
    "texts that are no UTF-8": (wire.Value(texts=texts(1, 1)), beside(b"\1\0\0\0", b"\xff")),
    "texts of signed lengths": (
        wire.Value(texts=texts(2, 3, "int32")), beside(b"\4\0\0\0\xff\xff\xff\xff", b"oak")
    ),
    "texts without lengths": (wire.Value(texts=wire.Texts()), b""),
    "more texts than there is room for": (wire.Value(texts=texts(1 << 16, 0)), bytes(1 << 18)),
    "too many values": (wire.Value(list=wire.List(values=[wire.Value()] * MOST_FIELDS)), b""),
    "too many values, again and again": (b"\x32\x02\x0a\x00" * MOST_FIELDS, b""),
    "too many lengths": (tensor("uint8", [1] * (MOST_FIELDS + 1)), bytes(8)),
    "lists in lists": (within_lists(DEEPEST // 2), b""),
    "a group": (b"\x0b\x0c", b""),
    "a field without an end": (b"\x32\xff\xff\xff\xff\x0f", b""),
    "a number without an end": (b"\x18" + b"\xff" * 12, b""),
    "sixteen million letters": (wire.Value(text="x" * LARGEST), b""),
    "rows of no column without end": (tensor("uint8", [2**20, 0], bytes(2**17)), b""),
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
        before = sum(map(len, map(written, DAMAGED[case])))  # a structure is copied once
        assert broken(*DAMAGED[case]) == "A message has a damaged body."
        assert tracemalloc.get_traced_memory()[1] < (4 << 20) + 3 * before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value",
    [
        [None] * (MOST_FIELDS // 2 - 1),
        {f"{i}": {"signature": b"x" * 72, "certificate": b"x" * 1200} for i in range(1500)},
    ],
)
def test_structures_up_to_the_limit_are_read(value: Any) -> None:
    assert_same(there_and_back(value), value)


def test_lists_of_many_texts_are_read() -> None:
    words = [f"wörd{i}" for i in range(200_000)]
    counts = np.ones((len(words), 2), np.int64)
    back = there_and_back({"words": words, "named": Named(words, counts)})
    assert back["words"] == back["named"].names == words
    packed = pack(words)
    with pytest.raises(FederationError):
        unpack(packed.header, joined(packed), 64 * len(words))


def test_arrays_up_to_the_limit_are_read() -> None:
    value = wire.Value(list=wire.List(values=[tensor("uint8", [8, 2**16], b"\0")] * 2))
    raw = value.SerializeToString()
    body = wire.Body(structure=len(raw), data=0)
    buffer = memoryview(raw + bytes(-len(raw) % ALIGNMENT))
    assert [array.shape for array in unpack(body, buffer, 1 << 20)] == [(8, 2**16)] * 2
    with pytest.raises(FederationError):
        unpack(body, buffer, (1 << 20) - 1)


@pytest.mark.parametrize("structure", [-8, -1, 1, 64, 2**62])
def test_wrong_sizes_are_noticed(structure: int) -> None:
    packed = pack({"n": 1, "x": np.arange(6)})
    body = wire.Body(structure=packed.structure + structure, data=packed.header.data)
    with pytest.raises(FederationError):
        unpack(body, joined(packed))
