"""Replies as whole numbers modulo a prime, which add up to what the replies add up to.

How many bits a field's numbers need follows from its template, from who is in the sum and maybe
from its last total (`ranges`), so it is the same at all participants, and no sum wraps around.
Small numbers share a residue; of others, if their range is known, three are in two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import FederationError, StudyError
from fedtopics.methods.core.aggregation import Rows
from fedtopics.methods.core.replies import (
    LIMIT,
    MOST_DOCUMENTS,
    ROUNDING,
    AgreeingPairs,
    Announced,
    Field,
    Template,
    Windows,
)
from fedtopics.secure.field import PRIME, Residues
from fedtopics.secure.packing import BITS, Pieces, read_pieces, rounded, write_pieces, write_signed
from fedtopics.secure.ranges import key_of

FINE = 40  # bits, of numbers that are not whole
FRACTION = 32  # of those without a bound, where some are too large for it
LARGEST = (1 << BITS) - (1 << 20)  # sum; rounding may add to it
ENOUGH = 36  # bits of a number of a known range: weights are as without masks
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Where in a vector of residues each field of a reply is, and how it is written there.

    Fields are in the order of their names; each begins a residue.
    """

    size: int  # residues of the vector
    fraction: int  # bits, of numbers without a bound
    _parts: Mapping[str, Any]  # by field: a `_Part`, or a map for a map

    @classmethod
    def of(
        cls, template: Template | None, members: Sequence[str], fraction: int = FRACTION,
        ranges: Mapping[str, float] = MappingProxyType({}),
    ) -> Layout:  # fmt: skip
        """Return that of the replies of some clients; `fraction` bits where there is no bound.

        Fields that have one of the `ranges` are written as numbers within that. StudyError if there
        is no template, or one of words, or of numbers without a known shape.
        """
        said = template.get("documents") if isinstance(template, Mapping) else None
        documents = _most(said if isinstance(said, Announced) else Announced({}), members)

        def part(of: Any, name: str, start: int) -> _Part:
            if isinstance(of, Announced):
                of = Field((), _most(of, members), 0, dtype="int64")
            field = Field(of) if isinstance(of, tuple) else of
            if not isinstance(field, Field) or not all(isinstance(n, int) for n in field.shape):
                raise StudyError(
                    f"The method adds up {f'a field {name!r}' if name else 'replies'} that cannot "
                    "be masked, as it has no numbers of a known shape; choose another method, or "
                    "set secure = false."
                )
            made = _Part.of(name, field, start, documents, len(members), fraction)
            range_ = ranges.get(key_of(name, made.shape))
            return made.within(range_, len(members)) if range_ else made

        parts, size = _placed(template, "", 0, part)
        return cls(size, fraction, parts)

    def encode(self, reply: Mapping[str, Any]) -> tuple[Residues, float]:
        """Return a reply's residues, and the smallest factor by which a field was scaled.

        Where a field has no bound and the sum could not hold it, it is scaled down as a whole; 1.0
        says that none was. FederationError if a field has another shape, or exceeds its bound.
        """
        residues, smallest = np.zeros(self.size, np.uint64), 1.0
        for part, value in _pairs(self._parts, reply):
            whole, factor = part.whole(value)
            part.write(whole, residues[part.start : part.end])
            smallest = min(smallest, factor)
        return residues, smallest

    def decode(self, total: Residues, n: int) -> dict[str, Any]:
        """Return the sum of `n` replies, as `RunningSum` would."""

        def value(part: Any) -> Any:
            if isinstance(part, Mapping):
                return {name: value(each) for name, each in part.items()}
            return part.value(part.read(total[part.start : part.end], n))

        decoded: dict[str, Any] = value(self._parts)
        return decoded


@dataclass(frozen=True, eq=False)
class _Part:
    """A field whose numbers, between two bounds, are written as multiples of 2**-fraction.

    If a sum needs few bits, a residue holds one of each of several lanes; all are counted from the
    lowest number, so that none is below 0, as where they are in pieces. Else a residue holds one.
    """

    name: str
    field: Field
    shape: tuple[int, ...]
    start: int
    low: float
    high: float
    reach: float  # what is further from 0 is scaled down
    fraction: int
    lowest: int  # that can be written
    bits: int  # of a sum
    lanes: int
    pieces: Pieces | None = None

    @classmethod
    def of(
        cls, name: str, field: Field, start: int, documents: int, members: int, fraction: int
    ) -> _Part:
        """Derive it from the most documents of a client, and the number of clients in a sum."""
        low, high = _bounds(field, documents)
        share = LARGEST // members
        if field.dtype == "int64":
            low, high, fraction = max(low, -share), min(high, share), 0
        elif (most := max(-low, high)) < np.inf:
            fraction = min(FINE, math.frexp(share / max(most, 1.0))[1] - 1)
        unit, lowest, bits = 2.0**fraction, 0, BITS
        if high - low < np.inf:
            lowest = round(low * unit)
            bits = max(1, (members * (round(high * unit) - lowest)).bit_length())
        shape = tuple(n for n in field.shape if isinstance(n, int))
        reach, lanes = share / unit, max(1, BITS // bits)
        return cls(name, field, shape, start, low, high, reach, fraction, lowest, bits, lanes)

    def within(self, range_: float, members: int) -> _Part:
        """Return it for numbers of a known range, if that takes fewer bits."""
        if self.lanes > 1 or self.field.dtype == "int64" or range_ > self.reach:
            return self
        pieces, sides = Pieces.of(members, ENOUGH), 1 if self.low == 0 else 2
        share = ((1 << pieces.bits) - 1) // (sides * members)
        fraction = math.frexp(share / range_)[1] - 1
        lowest = 0 if self.low == 0 else -share
        return replace(
            self, reach=share * 2.0**-fraction, fraction=fraction, lowest=lowest, pieces=pieces
        )

    @property
    def end(self) -> int:
        size = math.prod(self.shape)
        packed = math.ceil(size / self.lanes) if self.pieces is None else self.pieces.size(size)
        return self.start + packed

    def whole(self, value: Any) -> tuple[Integers, float]:
        """Return a field's numbers as they are written, and the factor they were scaled by."""
        numbers = value.dense() if isinstance(value, Rows) else np.asarray(value)
        least, most = numbers.min(initial=0).item(), numbers.max(initial=0).item()
        fits = self.low <= least and most <= self.high and np.inf not in (-least, most)
        if not fits or numbers.shape != self.shape:
            raise FederationError(
                f"The field {self.name!r} of a reply was not masked, as it has another shape, or "
                "numbers that are larger than the method allows or none (NaN). If the model has "
                "come apart, lower learning_rate; else look into what this client runs."
            )
        if self.field.dtype == "int64":
            return numbers.ravel(), 1.0
        largest = max(-least, most)
        factor = 1.0 if largest <= self.reach else self.reach / largest
        return rounded(numbers.ravel(), factor * 2.0**self.fraction), factor

    def write(self, whole: Integers, residues: Residues) -> None:
        """Write numbers into residues that are 0."""
        if self.pieces is not None:
            write_pieces(whole, self.lowest, residues, *self.pieces)
            return
        if self.lanes == 1:
            write_signed(whole, residues)
            return
        for lane in range(self.lanes):
            part = whole[lane * len(residues) : (lane + 1) * len(residues)] - self.lowest
            residues[: len(part)] += part.astype(np.uint64) << (lane * self.bits)

    def read(self, residues: Residues, n: int) -> Integers:
        """Return the sums of `n` replies' numbers."""
        size = math.prod(self.shape)
        if self.pieces is not None:
            whole = np.empty(size, np.int64)
            read_pieces(residues, n * self.lowest, whole, *self.pieces)
            return whole
        if self.lanes == 1:
            total = residues.astype(np.int64)
            total -= ((PRIME // 2 - total) >> 63) & PRIME
            return total
        ones = (1 << self.bits) - 1
        lanes = [(residues >> (lane * self.bits)) & ones for lane in range(self.lanes)]
        return np.concatenate(lanes)[:size].astype(np.int64) + n * self.lowest

    def value(self, whole: Integers) -> Any:
        """Return sums as the numbers that they are."""
        summed = whole.reshape(self.shape)
        if self.field.rows:
            index = np.flatnonzero(summed.any(1))
            return Rows(index, self._numbers(summed[index]), len(summed))
        numbers = self._numbers(summed)
        return numbers if self.shape else numbers.item()

    def _numbers(self, whole: Integers) -> NDArray[Any]:
        if self.field.dtype == "int64":
            return whole
        numbers = np.empty(whole.shape, self.field.dtype)
        return np.multiply(whole, 2.0**-self.fraction, out=numbers, casting="same_kind")


def _most(said: Announced, members: Sequence[str]) -> int:
    """Return how many documents one of some clients has at most."""
    largest = max(said.sizes.values(), default=MOST_DOCUMENTS)
    return max(said.sizes.get(name, largest) for name in members)


def _bounds(field: Field, documents: int) -> tuple[float, float]:
    """Return what all numbers of one reply are between; infinite if that is not known."""
    bound = field.each * max(documents, 1)
    low, high = -min(bound, -float(np.min(field.least))), min(bound, float(np.max(field.most)))
    if field.dtype != "int64":
        low, high = low - ROUNDING * abs(low), high + ROUNDING * abs(high)
    low, high = min(low, 0.0), max(high, 0.0)
    return low if low > -LIMIT else -np.inf, high if high < LIMIT else np.inf


def _placed(
    template: Any, name: str, start: int, part: Callable[[Any, str, int], _Part]
) -> tuple[Any, int]:
    """Return the part of a field, or a map of parts for a map, and where the next one begins."""
    if isinstance(template, (Windows, AgreeingPairs)):
        template = template.fields
    if not isinstance(template, Mapping):
        made = part(template, name, start)
        return made, made.end
    parts = {}
    for key in sorted(template):
        parts[key], start = _placed(template[key], f"{name}.{key}".lstrip("."), start, part)
    return {key: parts[key] for key in template}, start


def _pairs(parts: Mapping[str, Any], reply: Mapping[str, Any]) -> Iterator[tuple[_Part, Any]]:
    """Yield each part with its field of a reply."""
    for name, part in parts.items():
        if isinstance(part, Mapping):
            yield from _pairs(part, reply[name])
        else:
            yield part, reply[name]
