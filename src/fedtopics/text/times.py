"""Times of documents, as dates or numbers, and their periods."""

import math
import re
from collections.abc import Iterable, Mapping, Set
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedtopics.errors import DataError, first_problem
from fedtopics.text.columns import Column, is_missing, is_text, plain_level
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
# A day as people write it: 2026, 2026-03, 2026-3-1, 2017/2/7, 20260301 or 31.12.2024. With other
# orders, such as 3/4/2026, nobody knows the month.
DAY = (
    r"(?P<year>\d{4})(?:(?P<by>[-/])(?P<month>\d\d?)(?:(?P=by)(?P<day>\d\d?))?)?",
    r"(?P<year>\d{4})(?P<month>\d\d)(?P<day>\d\d)",
    r"(?P<day>\d\d?)\.(?P<month>\d\d?)\.(?P<year>\d{4})",
)
# After a whole day, 9:30 or 09:30:00.5, and a zone, which is not used: a day is that of the place.
ZONE = r"[+-](?:0\d|1[0-4])(?::?[0-5]\d)?"
CLOCK = (
    rf"(?(day)(?:[T ]\s*(\d\d?)(:\d\d(?::\d\d(?:\.\d{{1,9}})?)?)(?:\s*{ZONE})?|{ZONE})?"
    r"\s*(?:Z|UTC|GMT)?)"
)
TIMES = tuple(re.compile(day + CLOCK, re.ASCII) for day in DAY)
EXCEL = "excel"  # a date_format: days since the day that Excel calls 0
EXCEL_DAY_0 = datetime(1899, 12, 30)
FIRST_NUMBER = 1000  # of a number among dates that is a year
LAST_NUMBER = 2999
HAS_YEAR = re.compile("%[YyGcxD]")
HAS_WEEK = re.compile("%[UWV]")
HAS_DAY = re.compile("%[aAwud]")
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
    """Return the times of documents that have one, as numpy's datetimes or as numbers.

    A number among dates is a year, or an error: never seconds since 1970.
    """
    times = values[present]
    if times.dtype.kind in "OUb":
        are_numbers = all(map(_is_number, times))
        numbers = (float(value) if isinstance(value, Decimal) else value for value in times)
        times = np.array([*numbers] if are_numbers else [*map(_time, times)])
    if times.dtype.kind == "M":
        years = times.astype("datetime64[Y]").astype(np.int64)  # NaT is the least of them
        fit = (years >= FIRST_YEAR) & (years <= LAST_YEAR)
    else:
        fit = np.isfinite(times)
    if not fit.all():
        row = np.flatnonzero(present)[np.argmin(fit)]
        raise DataError(
            f"The timestamp of document {row + 1} cannot be read as a time; check that it is the "
            "right column, and give a date, a text such as 2026-03-01, a number, or nothing, or "
            "name the order with date_format, such as %d/%m/%Y.",
            value=values[row],
        )
    return times


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, Decimal)) and not isinstance(value, (bool, np.timedelta64))


def _are_years(numbers: NDArray[Any]) -> bool:
    inside = (numbers >= FIRST_NUMBER) & (numbers <= LAST_NUMBER)
    return bool((inside & (numbers == np.floor(numbers))).all())


def _time(value: Any) -> np.datetime64:
    """Return a time without its zone, NaT if it cannot be read."""
    if isinstance(value, str):
        value = _written(plain_level(value))
    elif _is_number(value):
        value = f"{value:.0f}" if _are_years(np.array(float(value))) else "NaT"
    elif isinstance(value, (bool, np.bool_)):  # numpy would count it from 1970
        value = "NaT"
    elif getattr(value, "tzinfo", None) is not None:
        value = value.replace(tzinfo=None)
    try:
        return np.datetime64(value, "us")
    except (TypeError, ValueError, OverflowError):
        return np.datetime64("NaT", "us")


def _written(text: str) -> str:
    """Return a date as people write it in the form of ISO 8601."""
    match = next(filter(None, (time.fullmatch(text) for time in TIMES)), None)
    if match is None:
        return "NaT"
    *_, hour, rest = match.groups()
    day = "-".join(part.zfill(2) for part in map(match.group, ("year", "month", "day")) if part)
    return day if hour is None else f"{day}T{hour:0>2}{rest}"


def dated(values: Times, date_format: str | None, place: str) -> Times:
    """Return values as times by a `date_format`; dates, missing values and all without it stay.

    Raises
    ------
    DataError
        If a value does not fit the format; its row is in the message, and itself in ``value``.
    """
    if date_format is None or values.dtype.kind == "M":
        return values
    lacks = first_problem(
        {
            "has no year": HAS_YEAR.search(date_format) is None,
            "has a week without a day": (
                HAS_WEEK.search(date_format) is not None and HAS_DAY.search(date_format) is None
            ),
        }
    )
    if lacks and date_format != EXCEL:
        raise DataError(f"date_format = {date_format!r} {lacks}; add it, such as %Y or %w.")
    times = np.array(values, object)
    for row, value in enumerate(values.tolist()):
        if is_missing(value) or isinstance(value, date):
            continue
        try:
            times[row] = _by_format(plain_level(str(value)), date_format)
        except (ValueError, OverflowError, re.error):
            raise DataError(
                f"Row {row + 1} of {place} does not fit date_format = {date_format!r}; correct the "
                f'row or the format, such as %d.%m.%Y for day, month and year, or "{EXCEL}" for '
                "numbers of days.",
                value=value,
            ) from None
    return times


def _by_format(text: str, date_format: str) -> datetime:
    if date_format != EXCEL:
        return datetime.strptime(text, date_format).replace(tzinfo=None)
    days = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else math.nan
    if FIRST_NUMBER <= days <= LAST_NUMBER:  # a year, or a day around 1905
        raise ValueError
    return EXCEL_DAY_0 + timedelta(days=days)


def are_dates(column: Column) -> bool:
    """Whether all values of a column that are not missing are dates, with a month at least."""
    if column.arrow is None or not is_text(column.arrow.type):
        return column.arrow is not None and pa.types.is_temporal(column.arrow.type)
    present = [value for value in column.plain() if value is not None]
    return bool(present) and all(
        len(value) > len("2026") and not np.isnat(_time(value)) for value in present
    )


def begin_of(times: Times, by: Unit | None, edges: Times | None = None) -> Times:
    """Return the beginning of each time's period."""
    if edges is not None:
        place = np.searchsorted(edges, times, "right") - 1
        return np.asarray(edges[np.clip(place, 0, len(edges) - 2)])
    if times.dtype.kind != "M":
        if by is None or not len(times):
            return times
        if not _are_years(times):
            raise DataError(
                "The documents' times are numbers that are not all years, but periods need dates; "
                "write them as dates, set a date_format, or in Python, nr_bins without by."
            )
        times = (times - 1970).astype("datetime64[Y]")
    code, step = PERIODS[by or "month"]
    offset = THURSDAY if code == "D" else 0
    numbers = times.astype(f"datetime64[{code}]").astype(np.int64) + offset
    begins = (numbers // step * step - offset).astype(f"datetime64[{code}]")
    return begins.astype("datetime64[D]")
