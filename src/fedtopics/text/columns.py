"""A column of a table, checked when it is read; errors give its name and row, but no value."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedtopics.errors import DataError

NOT_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
MISSING_TYPES = {"NAType", "NaTType"}  # of pandas, which is optional
NESTED = (list, tuple, dict, set, bytes, np.ndarray)  # cannot be names


def is_missing(value: Any) -> bool:
    r"""Whether a value is missing: None, NaN, NaT, or a text without visible characters."""
    if isinstance(value, str):
        return not any(c.isprintable() and not c.isspace() for c in value)
    if value is None or type(value).__name__ in MISSING_TYPES:
        return True
    try:
        return not isinstance(value, NESTED) and bool(value != value)
    except Exception:  # a foreign type may raise anything
        return False


def is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def is_tokens(kind: pa.DataType) -> bool:
    """Whether a column of this type contains lists of strings."""
    return is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type))


@dataclass(repr=False)  # its own repr would print documents
class Column:
    """The values of a column, in parts: arrays of Arrow or numpy, data frames' columns, lists."""

    parts: Sequence[Any]
    place: str  # such as "column 'text' of north.csv"

    @cached_property
    def arrow(self) -> pa.ChunkedArray | None:
        """The whole column as one Arrow type; None if that is not possible."""
        try:
            return concatenate([_arrow(part) for part in self.parts])
        except NOT_ARROW:
            return None

    @property
    def has_text(self) -> bool:
        """Whether values are strings: all but missing ones, or some among other types."""
        if self.arrow is not None:
            return is_text(self.arrow.type)
        return any(isinstance(value, str) for value in self._values())

    def plain(self) -> list[Any]:
        """Return the values as Python objects, None for missing ones."""
        return [None if is_missing(value) else value for value in self._values()]

    def documents(self, may_be_words: bool = True) -> pa.ChunkedArray:
        """Return strings, or lists of strings, as Arrow's large types; missing ones are empty."""
        column = self.arrow
        if column is not None and (is_text(column.type) or pa.types.is_null(column.type)):
            return pc.fill_null(column.cast(pa.large_string()), "")
        if column is not None and may_be_words and is_tokens(column.type):
            column = column.cast(pa.large_list(pa.large_string()))
            if not pc.list_flatten(column).null_count:
                return pc.if_else(pc.is_null(column), pa.scalar([], column.type), column)
        return Column([self._checked(may_be_words)], self.place).documents()

    def _checked(self, may_be_words: bool) -> list[Any]:
        """Return documents that Arrow can store; refuse others."""
        checked: list[Any] = []
        kinds = set()
        for row, value in enumerate(self._values(), 1):
            if is_missing(value) and not isinstance(value, str):
                checked.append(None)
                continue
            is_array = hasattr(value, "__array__") and not np.isscalar(value)
            words = may_be_words and (is_array or isinstance(value, (list, tuple)))
            parts = [*value] if words else [value]
            kinds.add(words)
            if other := [type(part).__name__ for part in parts if not isinstance(part, str)]:
                self._refuse(row, f"{'has a word' if words else 'is'} of type {other[0]}")
            if len(kinds) > 1:
                self._refuse(row, "differs in kind from the rows before")
            if not all(map(is_unicode, parts)):
                self._refuse(row, "has bytes that are not UTF-8, or part of a character")
            checked.append([*map(str, parts)] if words else str(value))
        return checked

    def _refuse(self, row: int, problem: str) -> None:
        raise DataError(
            f"Documents must all be strings, or all lists of strings: row {row}{self._of} "
            f"{problem}; correct it, leave it out, or make all values strings, as astype(str) does."
        )

    @property
    def _of(self) -> str:
        return self.place and f" of {self.place}"

    def names(self) -> pa.ChunkedArray:
        """Return names, such as identifiers, as strings; "" for missing ones."""
        names = []
        for row, value in enumerate((v for part in self.parts for v in _written(part)), 1):
            name = "" if is_missing(value) else str(value)
            if isinstance(value, NESTED) or not is_unicode(name):
                raise DataError(
                    f"Row {row}{self._of} is of type {type(value).__name__}, or not Unicode; give "
                    "strings or numbers."
                )
            names.append(name)
        return pa.chunked_array([pa.array(names, pa.large_string())])

    def values(self) -> pa.ChunkedArray:
        """Return labels, rounds or times in one type (strings if mixed), null for missing ones."""
        column = self.names() if self.arrow is None else self.arrow
        if pa.types.is_string_view(column.type):  # of polars; Arrow cannot choose among them
            column = column.cast(pa.large_string())
        if is_list(column.type):
            return column
        present = [value is not None for value in Column([column], self.place).plain()]
        return pc.if_else(pa.array(present, pa.bool_()), column, pa.scalar(None, column.type))

    def embeddings(self, strict: bool) -> NDArray[np.floating[Any]] | None:
        """Return float32 embeddings; unless `strict`, a bad row becomes NaN, a bad column None."""
        column = self.arrow
        if column is None or not (
            is_list(column.type) and pa.types.is_floating(column.type.value_type)
        ):
            if not strict:
                return None  # not embeddings, despite the column's usual name
            kind = "of several types" if column is None else column.type
            raise DataError(f"{self.place} is of type {kind}; it must contain lists of floats.")
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        dimension = int(np.bincount(lengths[lengths > 0], minlength=1).argmax())
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            usable = column.filter(pa.array(lengths == dimension))
            flat = np.ascontiguousarray(pc.list_flatten(usable).to_numpy(), np.float32)
        vectors = np.full((len(column), dimension), np.nan, np.float32)
        vectors[lengths == dimension] = flat.reshape(-1, dimension) if dimension else np.nan
        if strict:
            bad = ~np.isfinite(vectors).all(axis=1) & (lengths == dimension)
            self._refuse_rows(lengths == 0, "have no embedding", "give each row one")
            self._refuse_rows(
                lengths != dimension,
                f"have an embedding whose length is not {dimension}",
                "give all the same length",
            )
            self._refuse_rows(bad, "have missing, NaN or infinite numbers", "compute them again")
        return vectors

    def _refuse_rows(self, bad: NDArray[np.bool_], problem: str, remedy: str) -> None:
        if bad.any():
            raise DataError(
                f"In {self.place}, {int(bad.sum())} of {len(bad)} rows {problem}, the first of "
                f"them row {int(bad.argmax()) + 1} (counted from 1); {remedy}."
            )

    def _values(self) -> Iterable[Any]:
        for part in self.parts:
            try:
                yield from part.to_pylist() if _is_arrow(part) else part
            except (pa.ArrowException, ValueError, OverflowError):
                raise DataError(
                    f"Some values{self._of} cannot be read: times after the year 9999 or in an "
                    "unknown time zone, or bytes that are not UTF-8; write them as texts."
                ) from None


def concatenate(parts: Iterable[Any]) -> pa.ChunkedArray:
    """Concatenate columns in a type that fits all; raise ArrowException if there is none."""
    tables = [pa.table({"": part}) for part in parts]
    return (
        pa.concat_tables(tables, promote_options="permissive").column(0)
        if tables
        else pa.chunked_array([], pa.null())
    )


def _is_arrow(part: Any) -> bool:
    return isinstance(part, (pa.Array, pa.ChunkedArray))


def _arrow(part: Any) -> Any:
    """Return values as an Arrow array, or raise one of `NOT_ARROW`."""
    if not _is_arrow(part):
        if str(getattr(part, "dtype", "")) == "Object":
            raise TypeError  # polars would give Arrow their addresses
        part = (
            pa.chunked_array(part)
            if hasattr(part, "__arrow_c_stream__")
            else pa.array(part, from_pandas=True)
        )
    if pa.types.is_dictionary(part.type):
        part = part.cast(part.type.value_type)
    if isinstance(part.type, pa.BaseExtensionType):
        raise TypeError  # only Python can interpret it
    part.validate(full=True)  # not every reader checks that strings are UTF-8
    return part


def _written(part: Any) -> Iterable[Any]:
    """Return values as texts if Arrow can write them, else unchanged."""
    with suppress(*NOT_ARROW):
        column = _arrow(part)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        return [*column.cast(pa.large_string()).to_pylist()]
    return Column([part], "")._values()


def plain_level(text: str) -> str:
    """Return a level without blanks around it; pandas writes whole numbers with gaps as 1.0."""
    return re.sub(r"^(-?\d+)\.0$", r"\1", unicodedata.normalize("NFC", text.strip()))


def is_unicode(text: str) -> bool:
    """Whether a text has no surrogates (halves of a character), so that it can be UTF-8."""
    return text.encode(errors="ignore").decode() == text
