"""Times of documents, as dates or numbers, and their periods."""

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError
from fedtopics.text.columns import Column, is_missing
from fedtopics.text.tables import is_table

Times = NDArray[Any]
"""Times as numpy's datetimes or as numbers, or objects that are read as times."""
Unit = Literal["year", "quarter", "month", "week", "day"]
PERIODS: dict[Unit, tuple[str, int]] = {  # a unit of numpy's dates, and how many of it
    "year": ("M", 12),
    "quarter": ("M", 3),
    "month": ("M", 1),
    "week": ("D", 7),
    "day": ("D", 1),
}
THURSDAY = 3  # weekday of 1 January 1970, counted from Monday
# 2026, 2026-03, 2026-03-01, 2026-03-01 09:30:00.5, and a time zone. numpy would accept "today".
TIME = re.compile(
    r"(\d{4}(?:-\d\d(?:-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?)?)?)(?:Z|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
FIRST_YEAR = -1969  # since 1970: the first year that a date can have
LAST_YEAR = 8029  # since 1970: the last year


def as_array(values: Any) -> Times:
    """Return values as an array of numbers, times or objects."""
    kind = getattr(values, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "iufbM":
        return np.asarray(values)
    no_list = not isinstance(values, Iterable) or isinstance(values, (Mapping, Set))
    if no_list or is_table(values) or getattr(values, "ndim", 1) != 1:
        raise DataError("Times or classes must be a list or a column, one value per document.")
    return np.fromiter(as_column(values).plain(), object)


def as_column(values: Any) -> Column:
    return Column([values], "the times or classes")


def missing(values: Times) -> NDArray[np.bool_]:
    """Return which documents have no value, see `is_missing`."""
    return (
        np.fromiter(map(is_missing, values), bool, len(values))
        if values.dtype.kind in "OU"
        else np.asarray(values != values)  # NaN, and NaT
    )


def times_of(values: Times, present: NDArray[np.bool_]) -> Times:
    """Return the times of documents that have one, as numpy's datetimes or as numbers."""
    times = values[present]
    try:
        if times.dtype.kind in "OUb":
            times = np.array([_local(value) for value in times])
        if times.ndim != 1:  # lists
            raise TypeError
        if times.dtype.kind not in "iufM":
            times = times.astype("datetime64[us]")
    except (TypeError, ValueError, OverflowError):
        times = np.array([_or_nothing(value) for value in values[present]], "datetime64[us]")
    if times.dtype.kind == "M":
        years = times.astype("datetime64[Y]").astype(np.int64)  # NaT is the least of them
        fit = (years >= FIRST_YEAR) & (years <= LAST_YEAR)
    else:
        fit = np.isfinite(times)
    if not fit.all():
        row = np.flatnonzero(present)[np.argmin(fit)] + 1
        raise DataError(
            f"The timestamp of document {row} cannot be read as a time; check that it is the right "
            "column, and give a date, a time, a text such as 2026-03-01, a number, or nothing."
        )
    return times


def _or_nothing(value: Any) -> Any:
    try:
        return np.datetime64(np.array([_local(value)]).astype("datetime64[us]")[0], "us")
    except (TypeError, ValueError, OverflowError):
        return np.datetime64("NaT", "us")


def _local(value: Any) -> Any:
    """Return a time without its zone, so that its day is that of the place of writing."""
    if isinstance(value, (str, bool, np.bool_)):
        match = TIME.fullmatch(str(value).strip())
        return np.datetime64("NaT" if match is None else match[1], "us")
    return value if getattr(value, "tzinfo", None) is None else value.replace(tzinfo=None)


def begin_of(times: Times, by: Unit | None, edges: Times | None = None) -> Times:
    """Return the beginning of each time's period."""
    if edges is not None:
        place = np.searchsorted(edges, times, "right") - 1
        return np.asarray(edges[np.clip(place, 0, len(edges) - 2)])
    if times.dtype.kind != "M":
        if by is not None and len(times):
            raise DataError(
                "The documents' times are numbers, but by= needs dates; write them as dates, or "
                "set the number of periods with nr_bins."
            )
        return times
    code, step = PERIODS[by or "month"]
    offset = THURSDAY if code == "D" else 0
    numbers = times.astype(f"datetime64[{code}]").astype(np.int64) + offset
    begins = (numbers // step * step - offset).astype(f"datetime64[{code}]")
    return begins.astype("datetime64[D]")
