"""Plain data to bytes and back; damaged bodies."""

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.msgpack import Ext

from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.errors import FederationError
from fedtopics.protocol.structures import DEEPEST, LARGEST_STRUCTURE, MOST_FIELDS
from fedtopics.protocol.values import ARRAY, NAMED, NAMES, ROWS, SPARSE, TEXTS, dumps, loads
from tests.helpers.federation import assert_same


def there_and_back(value: Any) -> Any:
    return loads(dumps(value))


def within_lists(depth: int) -> Any:
    return [within_lists(depth - 1)] if depth else 1


PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    1 / 3,
    5e-324,
    1.7976931348623157e308,
    float("inf"),
    float("-inf"),
    "",
    "oak",
    "Grüße, Straße, ẞ",
    "🌳🦆\u0301",
    "\x00\n",
    [],
    [1, "two", None],
    ["a", "b"],
    [[], [[]]],
    ["one", 2],
    {},
    {"": {}},
    b"",
    b"\0\xff",
    {"z": 1, "a": {"y": 2, "b": [3.5, {"x": None}]}},
    [{"a": 1}, {"a": 2}],
    SparseRows(np.array([0, 3, 8]), np.arange(6, dtype=np.float32).reshape(3, 2), 9),
    SparseRows(np.zeros(0, np.int64), np.zeros((0, 2), np.float64), 9),
    SparseRows(np.arange(4), np.full((4, 1), -0.0, np.float32), 4),
    SparseRows(np.array([7]), np.zeros((1, 0)), 8),
    SparseRows(np.zeros(0, np.int64), np.zeros((0, 2)), 0),
    SparseRows(np.array([1]), np.arange(6.0).reshape(1, 2, 3), 2),
    CountsByWord(["elm", "Ähre"], np.array([[1, 2**60, 3], [0, 0, 0]])),
    np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001, 1 << 63], np.uint64).view(np.float64),
    CountsByWord.columns(3),
    CountsByWord(["oak"], np.zeros((1, 0), np.int64)),
    [None] * (MOST_FIELDS - 1),
    within_lists(DEEPEST - 1),
    {f"{i}": {"signature": b"x" * 72, "certificate": b"x" * 1200} for i in range(1500)},
]


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: repr(value)[:30])
def test_plain_data_arrive_as_they_were(value: Any) -> None:
    assert_same(there_and_back(value), value)


def test_tuples_and_numpys_numbers_arrive_as_pythons() -> None:
    value = {"t": (1, 2), "i": np.int32(-7), "f": np.float32(0.5), "b": np.bool_(True)}
    assert_same(there_and_back(value), {"t": [1, 2], "i": -7, "f": 0.5, "b": True})


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4), (4, 0), (2, 1, 3)])
def test_arrays_of_every_kind(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape)
    array = np.asarray(array).astype(dtype)
    if array.size and array.dtype.kind in "iu":
        array.reshape(-1)[0] = np.iinfo(dtype).max
    back = there_and_back({"odd": np.zeros(3, np.uint8), "x": array, "last": np.ones(2)})
    assert_same(back["x"], array)
    assert_same(back["last"], np.ones(2))


def test_arrays_arrive_as_aligned_as_torchs() -> None:
    """Matrix products differ in the last bit with the alignment of their factors."""
    sparse = matrix(5000, 2, 3)
    odd = np.zeros(3, np.uint8)
    values = {"odd": odd, "x": np.ones(5), "y": np.ones((3, 3)), "sparse": sparse, "z": np.ones(7)}
    back = there_and_back({**values, "rows": SparseRows(np.array([1]), np.ones((1, 9)), 2)})
    back["rows"] = back["rows"].values
    assert [array.ctypes.data % 64 for array in back.values()] == [0] * 6


def test_arrays_arrive_in_the_usual_order() -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    for array in (np.asfortranarray(matrix), matrix.T, matrix[:, ::2], matrix[::-1]):
        back = there_and_back(array)
        assert_same(back, np.ascontiguousarray(array))
        assert back.flags.c_contiguous


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        object(),
        1j,
        np.zeros(1, complex),
        np.zeros(1, np.float16),
        np.array(["a"]),
        np.array([None]),
        {"x": lambda: 0},
        int,
        {1: 2},
        {None: 1},
        2**63,
        -(2**63) - 1,
        np.uint64(2**63),
        bytearray(1),
        memoryview(b"x"),
        np.ones((200, 100), np.float16),
        CountsByWord(["oak"], np.ones((1, 1))),
    ],
)
def test_nothing_else_travels(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_bytes_follow_from_values() -> None:
    """In the order in which they were put: digests are over them."""
    assert dumps({"b": 1, "a": ["x"]}) == dumps({"b": 1, "a": ["x"]}) != dumps({"a": ["x"], "b": 1})


def matrix(n_rows: int, n_columns: int, n_present: int, dtype: str = "float32") -> Any:
    array = np.zeros((n_rows, n_columns), dtype)
    array[np.random.default_rng(0).choice(n_rows, n_present, replace=False)] = 1.5
    return array


@pytest.mark.parametrize(
    ("array", "data"),
    [
        # Of 4,096 rows of four bytes a bitmap has 512 bytes: 128 rows.
        (matrix(4096, 1, 4096), 4 * 4096),
        (matrix(4096, 1, 4096 - 144), 4 * 4096),  # and 64 where it ends
        (matrix(4096, 1, 4096 - 145), 512 + 4 * (4096 - 144)),
        (matrix(4096, 1, 1), 512 + 64),
        (matrix(4096, 1, 0), 512),
        (matrix(2048, 1, 0, "float64"), 256),
        (matrix(2048, 1, 9, "int64"), 256 + 128),
        (matrix(4095, 1, 0), 4 * 4096),  # too small to look
        (matrix(4096, 2, 0, "int8"), 8192),
        (np.zeros(1 << 14), 1 << 17),
        (np.zeros((64, 64, 4)), 1 << 17),
    ],
)
def test_zero_rows_stay_behind_where_that_is_smaller(array: Any, data: int) -> None:
    assert len(dumps({"x": array})) - 64 == data  # the structure fits into one piece
    assert_same(there_and_back(array), array)


def test_rows_of_negative_zeros_and_nan_are_something() -> None:
    words = np.zeros((1 << 11, 2), np.uint32)
    words[3] = 0x80000000  # -0.0
    words[5, 1] = 0x7FC0BEEF
    words[9, 0] = 0xFF800001
    words[11, 0] = 1
    array = words.view(np.float32)
    assert len(dumps(array)) < array.nbytes // 8
    assert_same(there_and_back(array), array)


ALIGNMENT = 64
LENGTH = 8


def body(structure: Any, data: bytes = b"") -> bytes:
    """A structure, or its bytes, and the pieces that follow it."""
    raw = structure if isinstance(structure, bytes) else msgspec.msgpack.encode(structure)
    return beside(len(raw).to_bytes(LENGTH, "little") + raw, data)


def stands(code: int, *numbers: int) -> Ext:
    return Ext(code, np.array(numbers, "<u8").tobytes())


def array(dtype: str, *shape: int, code: int = ARRAY) -> Ext:
    return stands(code, NAMES.index(dtype), *shape)


def beside(*parts: bytes) -> bytes:
    return b"".join(part + bytes(-len(part) % ALIGNMENT) for part in parts)


HUGE = 2**64 - 1
DAMAGED: dict[str, tuple[Any, bytes]] = {
    "no MessagePack": (b"\xc1", b""),
    "nothing": (b"", b""),
    "cut off": (msgspec.msgpack.encode(array("float64", 1))[:-1], bytes(8)),
    "more than a value": (b"\xc0\xc0", b""),
    "invalid UTF-8": (b"\xa2\xff\xfe", b""),
    "too little data": (array("float64", 9), bytes(64)),
    "too much data": (array("float64", 1), bytes(65)),
    "data of nothing": (1, bytes(8)),
    "no dtype": (stands(ARRAY), bytes(8)),
    "an unknown dtype": (stands(ARRAY, len(NAMES), 1), bytes(8)),
    "an extension of MessagePack": (Ext(-1, bytes(8)), b""),
    "a time": (b"\xc7\x0c\xff" + bytes(12), b""),
    "another extension": (stands(9, 0, 1), bytes(8)),
    "half a number": (Ext(ARRAY, bytes(12)), bytes(8)),
    "no numbers": (Ext(ARRAY, b""), bytes(8)),
    "a long extension": (b"\xc9\x00\x00\x00\x08\x01" + bytes(8), bytes(8)),
    "no truth": (array("bool", 8), b"\0\1\0\7\0\0\1\xff"),
    "a terabyte": (array("float64", 2**37), b""),
    "more than memory": (array("float64", 2**62), b""),
    "a product beyond 64 bits": (array("float64", HUGE, HUGE, HUGE), b""),
    "a product that wraps to zero": (array("uint8", 2**32, 2**32), b""),
    "nothing, endlessly long": (array("float64", 0, HUGE), b""),
    "nothing, of impossible strides": (array("float64", 0, 2**62, 2**62), b""),
    "zero rows, a terabyte": (array("float64", 8, 2**34, code=SPARSE), bytes(64)),
    "zero rows without end": (array("float64", 2**60, 2**60, code=SPARSE), bytes(64)),
    "rows of no column without end": (array("uint8", 2**20, 0, code=SPARSE), bytes(2**17)),
    "bitmap too short": (array("float32", 9, 1, code=SPARSE), b"\1"),
    "bitmap of no rows": (array("float32", code=SPARSE), bytes(64)),
    "bitmap of more rows than data": (array("float32", 8, 1, code=SPARSE), b"\x0f" + bytes(63)),
    "rows without bitmap": (array("float32", 2, 1, code=ROWS), b""),
    "rows of no matrix": (array("float32", 2, code=ROWS), beside(b"\xc0", bytes(8))),
    "counts of more words": (stands(NAMED, 2, 0, 1), bytes(64)),
    "counts without columns": (stands(NAMED, 0, 0), bytes(64)),
    "counts that are not there": (stands(NAMED, 1, 0, 1), bytes(64)),
    "counts of no word without end": (stands(NAMED, 0, 0, HUGE), b""),
    "texts that end early": (stands(TEXTS, 2, 3), beside(b"\1\0\0\0\1\0\0\0", b"oak")),
    "texts that go on": (stands(TEXTS, 1, 3), beside(b"\4\0\0\0", b"oak")),
    "texts that wrap": (stands(TEXTS, 2, 3), beside(b"\xff" * 4 + bytes(4), b"oak")),
    "texts that are no UTF-8": (stands(TEXTS, 1, 1), beside(b"\1\0\0\0", b"\xff")),
    "texts without lengths": (stands(TEXTS), b""),
    "more texts than there is room for": (stands(TEXTS, 1 << 16, 0), bytes(1 << 18)),
    "too many values": ([None] * (MOST_FIELDS + 1), b""),
    "too many values together": ([[None] * 9] * (MOST_FIELDS // 9), b""),
    "lists that do not come": (b"\xdd\xff\xff\xff\xff", b""),
    "lists in lists that do not come": (b"\xdd\0\0\xff\xff" * DEEPEST + bytes(MOST_FIELDS), b""),
    "lists in lists": (within_lists(DEEPEST), b""),
    "maps that do not come": (b"\xdf\xff\xff\xff\xff", b""),
    "names that are numbers": ({1: 2}, b""),
    "names that are lists": (b"\x81\x90\xc0", b""),
    "a number beyond 63 bits": (2**63, b""),
    "sixteen million letters": ("x" * LARGEST_STRUCTURE, b""),
    "many arrays, together too large": ([array("uint8", 8, 2**16, code=SPARSE)] * 9, bytes(64)),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_bodies(case: str) -> None:
    raw = body(*DAMAGED[case])
    tracemalloc.start()
    try:
        with pytest.raises(FederationError, match="A message has a damaged body"):
            loads(raw, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < (4 << 20) + 3 * len(raw)
    finally:
        tracemalloc.stop()


def test_lists_of_many_texts_are_read() -> None:
    words = [f"wörd{i}" for i in range(200_000)]
    back = there_and_back(
        {"words": words, "named": CountsByWord(words, np.ones((len(words), 2), np.int64))}
    )
    assert back["words"] == back["named"].names == words
    with pytest.raises(FederationError):
        loads(dumps(words), 64 * len(words))


def test_arrays_up_to_the_limit_are_read() -> None:
    raw = body([array("uint8", 8, 2**16, code=SPARSE)] * 2, bytes(128))
    assert [read.shape for read in loads(raw, 1 << 20)] == [(8, 2**16)] * 2
    with pytest.raises(FederationError):
        loads(raw, (1 << 20) - 1)


@pytest.mark.parametrize("size", [0, 1, 40, 2**62, HUGE])
def test_wrong_sizes_are_noticed(size: int) -> None:
    raw = dumps({"n": 1, "x": np.arange(6)})
    assert raw[0] != size
    for content in (size.to_bytes(LENGTH, "little") + raw[LENGTH:], raw[: min(size, 70)]):
        with pytest.raises(FederationError):
            loads(content)
