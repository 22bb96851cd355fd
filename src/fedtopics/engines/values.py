"""Plain data to bytes and back: a typed structure, then the numbers of its arrays as they are.

Numbers, strings, lists, maps, arrays, `Rows` and `Named` travel; nothing else does, above all no
code. A matrix of which many rows are zero travels as its other rows: the first layer of a network
that reads words has a gradient only for the words of a minibatch. That loses nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.structures import MOST_FIELDS, read_structure
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named, Rows

ALIGNMENT = 64  # bytes, as torch's: what matrix products make of the last bit depends on it
SMALL = 1 << 16  # bytes
SPARSE_FROM = 1 << 14  # bytes of a matrix from which on its zero rows are looked for
TEXT = 64  # bytes that a text of a list takes, beside its characters
DTYPES = {
    name: np.dtype(name)
    for name in (
        "bool", "uint8", "int8", "uint32", "int32", "uint64", "int64", "float32", "float64",
    )
}  # fmt: skip

Piece = bytes | memoryview

# What reading bytes that `pack` did not make can raise.
_DAMAGES = (DecodeError, ValueError, LookupError, OverflowError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Packed:
    """A value's bytes, in pieces: the structure first, then arrays."""

    structure: int
    pieces: Sequence[Piece]

    @property
    def size(self) -> int:
        """Bytes of all pieces."""
        return sum(len(piece) for piece in self.pieces)

    @property
    def header(self) -> wire.Body:
        """What announces the pieces, and holds them where they are small."""
        small = b"".join(self.pieces) if self.is_small else b""
        data = self.size - _padded(self.structure)
        return wire.Body(structure=self.structure, data=data, small=small)

    @property
    def is_small(self) -> bool:
        """Whether the pieces travel in the header, without chunks."""
        return self.size <= SMALL


def pack(value: Any) -> Packed:
    """Turn plain data into bytes; arrays are not copied. A `TypeError` if it is not plain."""
    arrays: list[NDArray[Any]] = []
    structure = _structure(value, arrays).SerializeToString()
    pieces: list[Piece] = [structure, _padding(len(structure))]
    for array in arrays:
        pieces += [array.reshape(-1).view(np.uint8).data, _padding(array.nbytes)]
    return Packed(len(structure), [piece for piece in pieces if len(piece)])


def size_of(value: Any) -> int:
    """Return bytes that plain data do not exceed as a message; some less for arrays of few rows."""
    if isinstance(value, Mapping):
        return sum(TEXT + 4 * len(name) + size_of(each) for name, each in value.items())
    if isinstance(value, (str, bytes)):
        return TEXT + 4 * len(value)
    if isinstance(value, Rows):
        return 2 * TEXT + int(value.values.nbytes) + value.n_rows // 8
    if isinstance(value, Named):
        return size_of(value.names) + size_of(value.values)
    if isinstance(value, Sequence) and value and all(isinstance(each, str) for each in value):
        return 4 * TEXT + 4 * len(value) + len("".join(value).encode())
    if isinstance(value, Sequence):
        return TEXT + sum(map(size_of, value))
    return 2 * TEXT + int(getattr(value, "nbytes", 0))


def dumps(value: Any) -> bytes:
    """Turn plain data into one piece of bytes that says its own sizes."""
    packed = pack(value)
    head = packed.structure.to_bytes(8, "little")
    return b"".join([head, bytes(ALIGNMENT - len(head)), *packed.pieces])


def loads(content: Piece, largest: int = 1 << 31, fields: int = MOST_FIELDS) -> Any:
    """Turn what `dumps` returned into plain data again; a `FederationError` if it is damaged.

    Arrays are views of an aligned copy: whoever computes with them changes no content. There are
    at most so many `fields`, as of a message, unless it is more by whose content it is.
    """
    raw = memoryview(content)
    structure = int.from_bytes(raw[:8], "little")
    if len(raw) < ALIGNMENT or structure > len(raw):
        raise FederationError("A message has a damaged body.")
    body = wire.Body(structure=structure, data=len(raw) - ALIGNMENT - _padded(structure))
    copied = aligned(len(raw) - ALIGNMENT)
    copied[:] = raw[ALIGNMENT:]
    return unpack(body, copied, largest, fields)


def unpack(
    body: wire.Body, buffer: memoryview, largest: int = 1 << 31, fields: int = MOST_FIELDS
) -> Any:
    """Turn bytes into plain data; arrays are views of the buffer, which is `aligned`.

    All arrays together, with their zero rows, and texts have at most `largest` bytes. A
    `FederationError` if the bytes are not what `pack` makes, or the structure is too large.
    """
    try:
        structure = read_structure(bytes(buffer[: body.structure]), fields)
        reader = _Reader(buffer[_padded(body.structure) :], largest)
        value = reader.value(structure)
        if reader.place != len(reader.data):  # data that no tensor names
            raise ValueError
    except _DAMAGES:
        raise FederationError("A message has a damaged body.") from None
    return value


def aligned(size: int, new: Callable[..., NDArray[Any]] = np.empty) -> memoryview:
    """Return so many bytes, aligned; they take memory when they are written."""
    raw = new(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].data


def body_size(body: wire.Body) -> int:
    """Return the bytes that an announced body has."""
    return _padded(body.structure) + int(body.data)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padding(size: int) -> bytes:
    return bytes(_padded(size) - size)


def _structure(value: Any, arrays: list[NDArray[Any]]) -> wire.Value:
    if value is None:
        return wire.Value(nothing=True)
    if isinstance(value, (bool, np.bool_)):
        return wire.Value(truth=bool(value))
    if isinstance(value, (int, np.integer)):
        return wire.Value(integer=int(value))
    if isinstance(value, (float, np.floating)):
        return wire.Value(real=float(value))
    if isinstance(value, str):
        return wire.Value(text=value)
    if isinstance(value, bytes):
        return wire.Value(octets=value)
    if isinstance(value, np.ndarray):
        return wire.Value(tensor=_tensor(value, arrays))
    if isinstance(value, Rows):
        present = np.zeros(value.n_rows, bool)
        present[value.index] = True
        return wire.Value(rows=_part(value.values, present, arrays))
    if isinstance(value, Named):
        names, values = _texts(value.names, arrays), _tensor(value.values, arrays)
        return wire.Value(named=wire.Named(names=names, values=values))
    if isinstance(value, Mapping):
        entries = [wire.Entry(name=n, value=_structure(v, arrays)) for n, v in value.items()]
        return wire.Value(map=wire.Map(entries=entries))
    if isinstance(value, Sequence) and not isinstance(value, bytearray):
        if value and all(isinstance(entry, str) for entry in value):
            return wire.Value(texts=_texts(value, arrays))
        return wire.Value(list=wire.List(values=[_structure(entry, arrays) for entry in value]))
    raise TypeError(f"{type(value).__name__} is not plain data")


def _texts(texts: Sequence[str], arrays: list[NDArray[Any]]) -> wire.Texts:
    lengths = np.fromiter(map(len, texts), np.uint32, len(texts))
    characters = np.frombuffer("".join(texts).encode(), np.uint8)
    return wire.Texts(lengths=_tensor(lengths, arrays), characters=_tensor(characters, arrays))


def _tensor(array: NDArray[Any], arrays: list[NDArray[Any]]) -> wire.Tensor:
    if array.dtype.name not in DTYPES:
        raise TypeError(f"arrays of {array.dtype.name} are not plain data")
    if array.ndim == 2 and array.nbytes >= SPARSE_FROM and array.dtype.itemsize in (4, 8):
        # As integers, so that a row of negative zeros counts as something.
        words = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
        present: NDArray[np.bool_] = np.any(words, axis=1)
        kept = int(present.sum()) / len(array)
        if kept * array.nbytes + len(array) / 8 < array.nbytes:
            return _part(array[present], present, arrays)
    arrays.append(_little_endian(array))
    return wire.Tensor(dtype=array.dtype.name, shape=array.shape)


def _part(
    rows: NDArray[Any], present: NDArray[np.bool_], arrays: list[NDArray[Any]]
) -> wire.Tensor:
    arrays.append(_little_endian(rows))
    shape = (len(present), *rows.shape[1:])
    return wire.Tensor(dtype=rows.dtype.name, shape=shape, present=np.packbits(present).tobytes())


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    array = np.ascontiguousarray(array)
    return array.byteswap() if sys.byteorder == "big" else array


class _Reader:
    """Reads a structure's arrays off the data, in order; whatever does not fit is an error."""

    def __init__(self, data: memoryview, largest: int) -> None:
        self.data = data
        self._room = largest
        self.place = 0

    def value(self, structure: wire.Value) -> Any:
        kind = structure.WhichOneof("kind")
        if kind == "list":
            return [self.value(entry) for entry in structure.list.values]
        if kind == "texts":
            return self._texts(structure.texts)
        if kind == "map":
            entries = {entry.name: self.value(entry.value) for entry in structure.map.entries}
            if len(entries) < len(structure.map.entries):
                raise ValueError
            return entries
        if kind == "tensor":
            rows, present = self._rows(structure.tensor)
            return rows if present is None else _spread(rows, present)
        if kind == "rows":
            rows, present = self._rows(structure.rows, some=True)
            if present is None or rows.ndim < 2:
                raise ValueError
            return Rows(np.flatnonzero(present), rows, len(present))
        if kind == "named":
            names, values = self._texts(structure.named.names), self._rows(structure.named.values)
            return _named(names, *values)
        if kind in (None, "nothing"):
            return None
        return getattr(structure, kind)

    def _texts(self, texts: wire.Texts) -> list[str]:
        lengths, sparse = self._rows(texts.lengths)
        characters, also_sparse = self._rows(texts.characters)
        if sparse is not None or also_sparse is not None or lengths.dtype != np.uint32:
            raise ValueError
        self._room -= TEXT * lengths.size + 3 * characters.nbytes  # a character has up to 4 bytes
        if self._room < 0 or lengths.ndim != 1 or characters.dtype != np.uint8:
            raise ValueError
        joined = characters.tobytes().decode()
        ends = [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
        if ends[-1] != len(joined):
            raise ValueError
        return [joined[start:end] for start, end in pairwise(ends)]

    def _rows(
        self, tensor: wire.Tensor, some: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        shape = tuple(int(length) for length in tensor.shape)
        dtype = DTYPES[tensor.dtype]
        sparse = bool(tensor.present) or some
        index = 8 * shape[0] if sparse else 0  # bytes of the places of all rows
        self._room -= max(math.prod(shape) * dtype.itemsize, index)
        if self._room < 0:
            raise ValueError
        present = None
        if sparse:
            if len(tensor.present) != -(-shape[0] // 8):
                raise ValueError
            bits = np.frombuffer(tensor.present, np.uint8)
            present = np.unpackbits(bits, count=shape[0]).astype(bool)
            shape = (int(present.sum()), *shape[1:])
        size = math.prod(shape) * dtype.itemsize
        end = self.place + size
        if end > len(self.data):
            raise ValueError
        array = np.frombuffer(self.data[self.place : end], dtype.newbyteorder("<"))
        if dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise ValueError
        self.place = _padded(end)
        return array.astype(dtype, copy=False).reshape(shape), present


def _named(names: list[str], values: NDArray[Any], present: NDArray[np.bool_] | None) -> Named:
    values = values if present is None else _spread(values, present)
    if values.ndim != 2 or values.dtype != np.int64 or len(values) != len(names):
        raise ValueError
    return Named(names, values)


def _spread(rows: NDArray[Any], present: NDArray[np.bool_]) -> NDArray[Any]:
    shape = (len(present), *rows.shape[1:])
    size = math.prod(shape) * rows.dtype.itemsize
    array = np.frombuffer(aligned(size, np.zeros), rows.dtype).reshape(shape)
    array[present] = rows
    return array
