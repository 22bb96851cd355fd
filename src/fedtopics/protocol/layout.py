"""Updates as vectors of whole numbers; other numbers are multiplied by 2**f and rounded.

The template's bound and the number of members determine f, so all members use the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract import replies
from fedtopics.contract.payload import SparseRows, mapped
from fedtopics.errors import FederationError, StudyError
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.masks import TOTAL_BOUND, Whole

FINEST = 52  # bits after the point: more than a float64 near 1 has
UNBOUNDED = 36  # bits after the point of numbers without a bound
LARGEST_UNBOUNDED = (1 << 24) - 1  # sum of numbers without a bound


@dataclass(frozen=True)
class Layout:
    """The place and format of each field of an update in a vector."""

    size: int  # words of the vector
    _parts: Mapping[str, Any]  # by field: a `_Part`, or a map for a map

    @classmethod
    def of(cls, template: replies.Template, members: Sequence[str], n: int) -> Layout:
        """Return the layout of updates of these `members` of all n; StudyError if there is none."""
        documents = _most(template.get("documents", replies.Announced({})), members)

        def part(of: Any, name: str, start: int) -> _Part:
            if isinstance(of, replies.Announced):
                of = replies.Bounds((), _most(of, members), 0, dtype="int64")
            field = replies.Bounds(of) if isinstance(of, tuple) else of
            if not isinstance(field, replies.Bounds) or not all(
                isinstance(n, int) for n in field.shape
            ):
                raise StudyError(
                    f"The method adds up {f'a field {name!r}' if name else 'updates'} without a "
                    "known number of values, which secure aggregation cannot hide; choose another "
                    'method. Only with a trusted server, aggregation = "plain" is possible.'
                )
            return _Part.of(name, field, start, documents, n)

        parts, size = _placed(template, "", 0, part)
        return cls(size, parts)

    @property
    def digest(self) -> bytes:
        """The digest that members compare: names, shapes and bits of all fields."""
        return digest_of_fields(
            *(
                f"{part.name} {part.shape} {part.field.dtype} {part.fraction}"
                for part, _ in _pairs(self._parts, self._parts)
            )
        )

    def encode(self, update: Mapping[str, Any]) -> tuple[Whole, float]:
        """Return an update as a vector, and the smallest factor by which a field was scaled."""
        vector = np.zeros(self.size, np.int64)
        factors = [
            part.write(value, vector[part.start : part.end])
            for part, value in _pairs(self._parts, update)
        ]
        return vector, min(factors, default=1.0)

    def decode(self, total: Whole) -> dict[str, Any]:
        """Return a total in the form of an update, in the precision of its fields."""
        return dict(mapped(lambda part: part.read(total[part.start : part.end]), self._parts))


@dataclass(frozen=True, eq=False)
class _Part:
    """A field whose numbers, between two bounds, are written as multiples of 2**-fraction."""

    name: str
    field: replies.Bounds
    shape: tuple[int, ...]
    start: int
    low: float
    high: float
    reach: float  # numbers further from 0 are scaled down
    fraction: int

    @classmethod
    def of(
        cls, name: str, field: replies.Bounds, start: int, documents: int, members: int
    ) -> _Part:
        """Derive a part from a member's largest number of documents, and the number of members."""
        low, high = _bounds(field, documents)
        share = (TOTAL_BOUND - 1) // members
        most = max(-low, high)
        is_whole = field.dtype == "int64"
        has_bounds = is_whole or most < np.inf
        finest = min(FINEST, math.frexp(0.999 * share / max(most, 1.0))[1] - 1)
        return cls(
            name=name,
            field=field,
            shape=tuple(n for n in field.shape if isinstance(n, int)),
            start=start,
            low=max(low, -share) if is_whole else low,
            high=min(high, share) if is_whole else high,
            reach=np.inf if has_bounds else LARGEST_UNBOUNDED / members,
            fraction=0 if is_whole else finest if has_bounds else UNBOUNDED,
        )

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape)

    def write(self, value: Any, words: Whole) -> float:
        """Write a field's numbers; return the factor by which they were scaled."""
        numbers = value.dense() if isinstance(value, SparseRows) else np.asarray(value)
        least = numbers.min(initial=0).item()
        most = numbers.max(initial=0).item()
        fits = self.low <= least and most <= self.high and np.inf not in (-least, most)
        if not fits or numbers.shape != self.shape:
            raise FederationError(
                f"The field {self.name!r} of an update was not sent: it has another shape, or "
                "numbers that are NaN or larger than the method allows. If training diverges, "
                "lower learning_rate; otherwise check this client's software."
            )
        if self.field.dtype == "int64":
            words[:] = numbers.ravel()
            return 1.0
        largest = max(-least, most)
        factor = 1.0 if largest <= self.reach else self.reach / largest
        scaled = np.multiply(numbers.ravel(), factor * 2.0**self.fraction, dtype=np.float64)
        np.copyto(words, np.rint(scaled, out=scaled), casting="unsafe")
        return factor

    def read(self, words: Whole) -> Any:
        total = words.reshape(self.shape)
        if self.field.rows:
            index = np.flatnonzero(total.any(1))
            return SparseRows(index, self._numbers(total[index]), len(total))
        numbers = self._numbers(total)
        return numbers if self.shape else numbers.item()

    def _numbers(self, whole: Whole) -> NDArray[Any]:
        if self.field.dtype == "int64":
            return whole
        return np.multiply(
            whole,
            2.0**-self.fraction,
            out=np.empty(whole.shape, self.field.dtype),
            casting="same_kind",
        )


def _most(announced: Any, members: Sequence[str]) -> int:
    """Return the largest number of documents of any of these members."""
    sizes = announced.sizes if isinstance(announced, replies.Announced) else {}
    largest = max(sizes.values(), default=replies.MOST_DOCUMENTS)
    return max(sizes.get(name, largest) for name in members)


def _bounds(field: replies.Bounds, documents: int) -> tuple[float, float]:
    """Return the bounds of all numbers of one update; infinite if they are not known."""
    bound = field.per_document * max(documents, 1)
    low = min(max(float(np.min(field.least)), -bound), 0.0)
    high = max(min(float(np.max(field.most)), bound), 0.0)
    if field.dtype != "int64":
        low = low - replies.ROUNDING * abs(low)
        high = high + replies.ROUNDING * abs(high)
    return low if low > -replies.LIMIT else -np.inf, high if high < replies.LIMIT else np.inf


def _placed(
    template: Any, name: str, start: int, part: Callable[[Any, str, int], _Part]
) -> tuple[Any, int]:
    """Return the part of a field, or a map of parts for a map, and the start of the next one."""
    if isinstance(template, (replies.Windows, replies.AgreeingPairs)):
        template = template.fields
    if not isinstance(template, Mapping):
        made = part(template, name, start)
        return made, made.end
    parts = {}
    for key in sorted(template):
        parts[key], start = _placed(template[key], f"{name}.{key}".lstrip("."), start, part)
    return {key: parts[key] for key in template}, start


def _pairs(parts: Mapping[str, Any], update: Mapping[str, Any]) -> Iterator[tuple[_Part, Any]]:
    for name, part in parts.items():
        if isinstance(part, Mapping):
            yield from _pairs(part, update[name])
        else:
            yield part, update[name]
