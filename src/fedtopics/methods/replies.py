"""What a reply must look like: its type, its range, and what has to agree within it.

Each reply is held against its template before it is added up, and each total by whoever gets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Named, Rows
from fedtopics.text.words import is_word

LIMIT = 1e30  # of numbers without a bound: a sum over a million clients is far from infinite
MOST_COUNT = 1 << 53  # exact in float64; a sum of it over a thousand clients fits into 64 bits
MOST_WORDS = 1 << 20  # that a client may name
LONGEST = 100_000  # words of a client's documents, on average
ROUNDING = 1e-5  # by which a sum, in float32, may be above its bound, relative to that


@dataclass(frozen=True, eq=False)
class Field:
    """Numbers of one type, all between two bounds.

    Attributes
    ----------
    shape : tuple of int or str
        A name instead of a length is any length, the same throughout a reply; `()` is one number.
    most, least : float or array
        Bounds of each number, or of each by broadcasting.
    each : float
        How much a document can add, in absolute value: a sum over n of them is at most n times it.
    adds_up : bool
        Whether the numbers, all at least 0, add up to the reply's number of documents.
    dtype : {"float64", "float32", "int64"}
    rows : bool
        Whether they come as `Rows`.
    """

    shape: tuple[int | str, ...] = ()
    most: float | NDArray[Any] = LIMIT
    least: float | NDArray[Any] = -LIMIT
    each: float = np.inf
    adds_up: bool = False
    dtype: str = "float64"
    rows: bool = False


@dataclass(frozen=True)
class Announced:
    """A number of documents: at most as many as the reply's clients have, if they said how many."""

    sizes: Mapping[str, int]


@dataclass(frozen=True)
class WordCounts:
    """Counts by word: documents with it, occurrences, clients, and who has it among its first.

    A client has so many `places`: of its most frequent words, which no other's can push out.
    """

    places: int


def counts(*shape: int | str, each: float = np.inf) -> Field:
    """Return the template of whole numbers, at least 0."""
    return Field(shape, MOST_COUNT, 0, each, dtype="int64")


def sums(*shape: int | str, most: float | NDArray[Any] = LIMIT, each: float = np.inf) -> Field:
    """Return the template of numbers that are not negative."""
    return Field(shape, most, 0, each)


COUNT = counts()
Template = Mapping[str, Any]
"""By field: a `Field`, `Announced`, `WordCounts`, a map for a map, a list of one length for
strings, or a shape alone, of float64."""


def find_fault(reply: Any, template: Template | None, of: Sequence[str] = ("",)) -> str:
    """Return what is wrong with a reply, or with the sum of the replies `of` some clients; or ''.

    Without a template, numbers have to be finite.
    """
    documents = reply.get("documents") if isinstance(reply, Mapping) else None
    return _Check(documents if type(documents) is int else 0, of).fault(reply, template, "")


class _Check:
    """One look at a reply."""

    def __init__(self, documents: int, of: Sequence[str]) -> None:
        self._documents = documents
        self._of = of
        self._lengths: dict[str, int] = {}

    def fault(self, value: Any, template: Any, name: str) -> str:
        where = f"its field {name!r}" if name else "the reply"
        if isinstance(template, Mapping):
            return self._fault_of_map(value, template, name, where)
        if isinstance(template, list):
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                return f"{where} is no list of strings"
            return self._misfit((len(value),), tuple(template), where)
        if isinstance(template, WordCounts):
            return self._fault_of_words(value, template, where)
        if isinstance(template, Announced):
            most = sum(template.sizes.get(client, MOST_COUNT) for client in self._of)
            template = Field((), most, 0, dtype="int64")
        if template is not None:
            field = template if isinstance(template, Field) else Field(tuple(template))
            return self._fault_of_field(value, field, where)
        if isinstance(value, Mapping):
            return self._fault_of_map(value, dict.fromkeys(value), name, where)
        return "" if _are_finite(value) else f"{where} holds NaN or infinite numbers"

    def _fault_of_map(self, value: Any, template: Template, name: str, where: str) -> str:
        if not isinstance(value, Mapping) or value.keys() != template.keys():
            fields = sorted(value) if isinstance(value, Mapping) else type(value).__name__
            return f"{where} has {fields} instead of the fields {sorted(template)}"
        inner = (
            self.fault(value[key], template[key], f"{name}.{key}".lstrip(".")) for key in template
        )
        return next((fault for fault in inner if fault), "")

    def _fault_of_field(self, value: Any, field: Field, where: str) -> str:
        if fault := self._misfit(_size(value), field.shape, where):
            return fault
        kind, wanted = _kind(value), (field.dtype, field.rows)
        if kind != wanted:
            return f"{where} holds {_named(*kind)} instead of {_named(*wanted)}"
        if not _are_finite(value):
            return f"{where} holds NaN or infinite numbers"
        numbers = value.values if isinstance(value, Rows) else np.asarray(value)
        bound = np.inf if np.isinf(field.each) else field.each * self._documents
        most, least = np.asarray(field.most), np.asarray(field.least)
        if isinstance(value, Rows) and most.ndim:
            most = most[value.index]
        most, least = np.minimum(most, bound), np.maximum(least, -bound)
        if field.dtype != "int64":
            most, least = most + ROUNDING * np.abs(most), least - ROUNDING * np.abs(least)
        if np.less(numbers, least).any() or np.greater(numbers, most).any():
            return f"{where} holds numbers that cannot be, by what was agreed"
        if field.adds_up and abs(numbers.sum() - self._documents) > ROUNDING * self._documents:
            return f"{where} does not add up to the number of documents"
        return ""

    def _fault_of_words(self, value: Any, template: WordCounts, where: str) -> str:
        if not isinstance(value, Named) or value.values.shape[1:] != (4,):
            return f"{where} holds no counts by word"
        if not all(map(is_word, value.names)) or sorted(set(value.names)) != value.names:
            return f"{where} holds words that are none, or not in order"
        n, clients = len(self._of), value.values[:, 2]
        documents, occurrences, first = value.values.T[[0, 1, 3]]
        fits = (documents >= 1) & (documents <= self._documents) & (occurrences >= documents)
        fits &= (occurrences <= MOST_COUNT) & (clients >= 1) & (clients <= n)
        fits &= (first >= 0) & (first <= clients)
        fits &= occurrences.sum() <= LONGEST * self._documents
        if not fits.all() or first.sum() > n * template.places or len(fits) > n * MOST_WORDS:
            return f"{where} holds counts of words that cannot be"
        return ""

    def _misfit(
        self, shape: tuple[int, ...] | None, wanted: tuple[int | str, ...], where: str
    ) -> str:
        fits = shape is not None and len(shape) == len(wanted)
        for length, want in zip(shape or (), wanted, strict=False):
            expected = self._lengths.setdefault(want, length) if isinstance(want, str) else want
            fits &= length == expected
        return "" if fits else f"{where} has the shape {shape} instead of {wanted}"


def _are_finite(value: Any) -> bool:
    numbers = value.values if isinstance(value, (Rows, Named)) else value
    return not isinstance(numbers, (float, np.ndarray)) or bool(np.isfinite(numbers).all())


def _size(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, Rows):
        return value.n_rows, *value.values.shape[1:]
    if isinstance(value, np.ndarray):
        return tuple(value.shape)
    return () if type(value) in (int, float) else None


def _kind(value: Any) -> tuple[str, bool]:
    """Return the type of numbers, and whether they come as `Rows`."""
    if isinstance(value, Rows):
        return value.values.dtype.name, True
    return {int: "int64", float: "float64"}.get(type(value)) or value.dtype.name, False


def _named(dtype: str, rows: bool) -> str:
    return f"rows of {dtype}" if rows else dtype
