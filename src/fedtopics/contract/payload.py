"""What replies are made of, and sums of them that do not depend on the order of arrival."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import FedTopicsError

Payload = Mapping[str, Any]


@dataclass(frozen=True)
class SparseRows:
    index: NDArray[np.int64]  # of shape (n_present,), ascending
    values: NDArray[Any]  # of shape (n_present, n_columns)
    n_rows: int

    def dense(self) -> NDArray[Any]:
        matrix = np.zeros((self.n_rows, *self.values.shape[1:]), self.values.dtype)
        matrix[self.index] = self.values
        return matrix


@dataclass(frozen=True)
class CountsByWord:
    """Counts by word; the sum of several contains the words of all of them."""

    names: list[str]  # sorted, each once
    values: NDArray[np.int64]  # (n_names, n_columns), first the number of documents with the word

    @classmethod
    def columns(cls, n: int) -> CountsByWord:
        return cls([], np.zeros((0, n), np.int64))


def flat_fields(reply: Payload, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in reply.items():
        match value:
            case Mapping():
                yield from flat_fields(value, f"{prefix}{name}.")
            case SparseRows():
                yield f"{prefix}{name}.index", value.index
                yield f"{prefix}{name}.values", value.values
            case CountsByWord():
                yield f"{prefix}{name}.names", value.names
                yield f"{prefix}{name}.values", value.values
            case _:
                yield prefix + name, value


def digest_of(payload: Payload) -> str:
    content = hashlib.sha256()
    for name, value in flat_fields(payload):
        data, shape, dtype = content_shape_and_type(value)
        content.update(json.dumps([name, shape, dtype, len(data)]).encode())
        content.update(data)
    return content.hexdigest()


def content_shape_and_type(value: Any) -> tuple[memoryview, list[int], str]:
    if isinstance(value, np.ndarray):
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        return flat.data, list(value.shape), str(value.dtype)
    shape = [len(value)] if isinstance(value, list) else []
    kind = type(value[0]).__name__ if isinstance(value, list) and value else type(value).__name__
    return memoryview(json.dumps(value).encode()), shape, kind


@dataclass(repr=False)  # its own repr would print a total
class RunningSum:
    """The sum of the clients' replies, in float64 and in the order of their names."""

    _total: dict[str, Any] | None = None
    _first: Payload = field(default_factory=dict)
    _changeable: bool = False  # whether the total was allocated here and may be changed

    def add(self, reply: Payload, name: str = "") -> None:
        if self._total is None:
            self._total = dict(reply)
            self._first = mapped(lambda array: getattr(array, "dtype", None), reply)
        else:
            self._total = _add(self._total, reply, self._changeable)
            self._changeable = True

    def total(self) -> dict[str, Any]:
        # float32 if the replies were float32
        return dict(mapped(_rounded, self._total or {}, self._first))


def mapped(change: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply `change` to all arrays of plain data, with those at the same places in `others`."""
    match value:
        case Mapping():
            return {n: mapped(change, value[n], *(other[n] for other in others)) for n in value}
        case SparseRows():
            return replace(value, values=change(value.values, *(other.values for other in others)))
    return change(value, *others)


def _rounded(array: Any, precision: Any) -> Any:
    single = precision == np.float32 and isinstance(array, np.ndarray)
    return array.astype(np.float32, copy=False) if single else array


def _add(total: Any, value: Any, in_place: bool) -> Any:
    shape = _shape(total)
    other = _shape(value)
    if shape != other:
        raise FedTopicsError(
            f"Clients sent replies of different shapes, {shape} and {other}; check that all run "
            "the same study."
        )
    match total:
        case Mapping():
            return {key: _add(total[key], value[key], in_place) for key in total}
        case SparseRows():
            return _add_rows(total, value)
        case CountsByWord():
            return _add_named(total, value)
        case np.ndarray():
            exact = np.int64 if total.dtype.kind in "biu" else np.float64
            added: NDArray[Any] = total.astype(exact, copy=not in_place)
            return np.add(added, value, out=added, dtype=exact)  # casts by blocks; torch copies
        case int() | float():
            return total + value
    raise FedTopicsError(f"Replies of type {type(total).__name__} cannot be added up.")


def _shape(value: Any) -> tuple[Any, ...]:
    """Return what all replies must share: type, keys, shape of an array."""
    match value:
        case np.ndarray():
            return "integers" if value.dtype.kind in "biu" else "numbers", value.shape
        case Mapping():
            return "map", *sorted(value)
        case SparseRows():
            return "rows", (value.n_rows, *value.values.shape[1:])
        case CountsByWord():
            return "named", value.values.shape[1:]  # words differ
        case int() | float():
            return "number", ()
    return (type(value).__name__.lower(),)


def _add_rows(*both: SparseRows) -> SparseRows:
    index = np.union1d(both[0].index, both[1].index)
    first, second = (np.searchsorted(index, rows.index) for rows in both)
    total = np.zeros((len(index), *both[0].values.shape[1:]))
    total[first] = both[0].values
    total[second] += both[1].values  # each row occurs once
    return SparseRows(index, total, both[0].n_rows)


def _add_named(*both: CountsByWord) -> CountsByWord:
    further = set(both[1].names).difference(both[0].names)
    names = sorted([*both[0].names, *further]) if further else both[0].names
    place = {name: number for number, name in enumerate(names)}
    values = np.zeros((len(names), both[0].values.shape[1]), np.int64)
    for named in both:
        values[[place[name] for name in named.names]] += named.values
    return CountsByWord(names, values)
