"""Turn plain data into bytes and back: MessagePack, then the numbers of arrays. No code is sent.

A body is the length of its MessagePack in 8 bytes, the MessagePack, and pieces: numbers of arrays,
little-endian, each starting at a multiple of 64 bytes. In the MessagePack, an extension stands for
an array whose pieces come next. It contains unsigned numbers of 8 bytes; see the codes below.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from msgspec.msgpack import Ext
from numpy.typing import NDArray

from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.errors import FederationError
from fedtopics.protocol.structures import MOST_FIELDS, check_structure

ALIGNMENT = 64  # bytes, as in torch: it decides the last bits of matrix products
LENGTH = 8  # bytes
SPARSE_FROM = 1 << 14  # bytes of the smallest matrix that is searched for zero rows
TEXT = 64  # bytes of memory per text of a list, plus its characters
NAMES = ("bool", "uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64")
DTYPES = {name: np.dtype(name) for name in NAMES}

ARRAY = 1  # index of its type in NAMES, lengths
SPARSE = 2  # the same; first piece: one bit per row, whether the second has it or it is zero
ROWS = 3  # the same, but absent rows are not zero
TEXTS = 4  # number, bytes of all characters; pieces: characters of each (uint32), UTF-8
NAMED = 5  # the same, columns; a third piece has the counts (int64), one row per text


# Errors from reading bytes that `dumps` did not make.
_DAMAGES = (msgspec.MsgspecError, ValueError, LookupError, OverflowError, MemoryError)


def dumps(value: Any) -> bytes:
    """Turn plain data into bytes; TypeError for anything else."""
    writer = _Writer()
    structure = msgspec.msgpack.encode(writer.plain(value))
    head = len(structure).to_bytes(LENGTH, "little") + structure
    return b"".join([head, _padding(len(head)), *writer.pieces])


def loads(content: bytes, largest: int = 1 << 31, fields: int = MOST_FIELDS) -> Any:
    """Turn bytes into plain data with writable arrays; FederationError if they are damaged.

    `largest` limits the bytes of all arrays, zero rows included, and texts; `fields` the values.
    """
    buffer = _aligned(len(content), np.empty)
    buffer[:] = content
    try:
        end = LENGTH + int.from_bytes(buffer[:LENGTH], "little")
        structure = buffer[LENGTH:end]
        data = buffer[end + len(_padding(end)) :]
        check_structure(structure, fields)
        reader = _Reader(data, largest)
        value = msgspec.msgpack.decode(structure, ext_hook=reader.read)
        if reader.place != len(data):  # pieces of nothing
            raise ValueError
    except _DAMAGES:
        raise FederationError("A message has a damaged body.") from None
    return value


def _aligned(size: int, new: Callable[..., NDArray[Any]]) -> memoryview:
    raw = new(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].data


def _padding(size: int) -> bytes:
    return bytes(-size % ALIGNMENT)


@dataclass
class _Writer:
    """Turns plain data into MessagePack's types, and keeps the pieces of arrays."""

    pieces: list[bytes | memoryview] = field(default_factory=list)

    def plain(self, value: Any) -> Any:
        match value:
            case None:
                return None
            case bool() | np.bool_():
                return bool(value)
            case float() | np.floating():
                return float(value)
            case str():
                return str(value)
            case bytes():
                return bytes(value)
            case int() | np.integer() if -(2**63) <= value < 2**63:
                return int(value)
            case np.ndarray():
                return self._array(value)
            case SparseRows():
                present = np.zeros(value.n_rows, bool)
                present[value.index] = True
                return self._rows(ROWS, value.values, present)
            case CountsByWord():
                counts = value.values.astype(np.int64, casting="safe", copy=False)
                return self._texts(NAMED, value.names, counts)
            case Mapping() if all(isinstance(name, str) for name in value):
                return {name: self.plain(item) for name, item in value.items()}
            case list() | tuple() if value and all(isinstance(item, str) for item in value):
                return self._texts(TEXTS, value)
            case list() | tuple():
                return [self.plain(item) for item in value]
        beyond = " beyond 64 bits" if isinstance(value, int) else ""
        raise TypeError(f"{type(value).__name__}{beyond} is not plain data")

    def _array(self, array: NDArray[Any]) -> Ext:
        if array.ndim == 2 and array.nbytes >= SPARSE_FROM:
            # As integers, so that a row of negative zeros is kept.
            present = np.any(np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}"), axis=1)
            share_present = int(present.sum()) / len(array)
            if share_present * array.nbytes + len(array) / 8 + ALIGNMENT < array.nbytes:
                return self._rows(SPARSE, array[present], present)
        return self._extension(ARRAY, [_number(array.dtype), *array.shape], array)

    def _rows(self, code: int, rows: NDArray[Any], present: NDArray[np.bool_]) -> Ext:
        return self._extension(
            code,
            [_number(rows.dtype), len(present), *rows.shape[1:]],
            np.packbits(present),
            rows,
        )

    def _texts(self, code: int, texts: Sequence[str], *counts: NDArray[np.int64]) -> Ext:
        lengths = np.fromiter(map(len, texts), np.uint32, len(texts))
        characters = np.frombuffer("".join(texts).encode(), np.uint8)
        numbers = [len(texts), len(characters), *(array.shape[1] for array in counts)]
        return self._extension(code, numbers, lengths, characters, *counts)

    def _extension(self, code: int, numbers: Sequence[int], *arrays: NDArray[Any]) -> Ext:
        """Keep pieces; return the extension that stands for them."""
        for array in arrays:
            ordered = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
            self.pieces += [ordered.reshape(-1).view(np.uint8).data, _padding(ordered.nbytes)]
        return Ext(code, np.array(numbers, "<u8").tobytes())


def _number(dtype: np.dtype[Any]) -> int:
    if dtype.name not in DTYPES:
        raise TypeError(f"arrays of {dtype.name} are not plain data")
    return NAMES.index(dtype.name)


@dataclass
class _Reader:
    """Makes arrays of extensions and pieces, in order; any mismatch is an error."""

    data: memoryview
    room: int  # bytes that arrays and texts may still take
    place: int = 0

    def read(self, code: int, content: memoryview) -> Any:
        numbers = np.frombuffer(content, "<u8").tolist()
        if code in (ARRAY, SPARSE, ROWS):
            return self._array(code, DTYPES[NAMES[numbers[0]]], tuple(numbers[1:]))
        if code not in (TEXTS, NAMED):
            raise ValueError
        number, size, *columns = numbers
        texts = self._texts(number, size)
        if code == TEXTS:
            return texts
        (n_columns,) = columns
        self._take_room(8 * n_columns * len(texts))
        return CountsByWord(texts, self._piece(np.dtype(np.int64), (len(texts), n_columns)))

    def _array(self, code: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        size = math.prod(shape) * dtype.itemsize
        self._take_room(size if code == ARRAY else max(size, 8 * shape[0]))  # 8: of its place
        if code == ARRAY:
            return self._piece(dtype, shape)
        if len(shape) < 2:
            raise ValueError
        bits = self._piece(np.dtype(np.uint8), (-(-shape[0] // 8),))
        present = np.unpackbits(bits, count=shape[0]).astype(bool)
        rows = self._piece(dtype, (int(present.sum()), *shape[1:]))
        if code == ROWS:
            return SparseRows(np.flatnonzero(present), rows, shape[0])
        array = np.frombuffer(_aligned(size, np.zeros), dtype).reshape(shape)
        array[present] = rows
        return array

    def _texts(self, number: int, size: int) -> list[str]:
        self._take_room(TEXT * number + 3 * size)  # a character has up to 4 bytes
        lengths = self._piece(np.dtype(np.uint32), (number,))
        joined = self._piece(np.dtype(np.uint8), (size,)).tobytes().decode()
        ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        if ends[-1] != len(joined):
            raise ValueError
        return [joined[start:end] for start, end in pairwise(ends)]

    def _piece(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        end = self.place + math.prod(shape) * dtype.itemsize
        if end > len(self.data):
            raise ValueError
        array = np.frombuffer(self.data[self.place : end], dtype.newbyteorder("<"))
        if dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise ValueError
        self.place = end + len(_padding(end))
        return array.astype(dtype, copy=False).reshape(shape)

    def _take_room(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise ValueError
