"""Dates as people write them: each form is one day, and what could be two days is refused."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedtopics import Columns, Corpus
from fedtopics.errors import DataError
from fedtopics.text.grouping import GroupColumn
from fedtopics.text.times import as_array, dated, missing, times_of
from tests.helpers.documents import write
from tests.helpers.formats import write_as

CANARY = "canary-31.31.2026"


def days(values: Any, date_format: str | None = None) -> list[str]:
    times = dated(as_array(values), date_format, "the column")
    return [str(day) for day in times_of(times, ~missing(times)).astype("datetime64[m]")]


@pytest.mark.parametrize(
    ("form", "clock"),
    [
        ("2026-01-31", "00:00"),
        (" 2026-1-31 ", "00:00"),
        ("2026/01/31", "00:00"),
        ("2026/1/31", "00:00"),
        ("31.01.2026", "00:00"),
        ("31.1.2026 9:30", "09:30"),
        ("20260131", "00:00"),
        ("2026-01-31T20:00", "20:00"),
        ("2026-01-31 20:00:00", "20:00"),
        ("2026-01-31 20:00:00.123456789", "20:00"),
        ("2026-01-31 20:00:00+00", "20:00"),
        ("2026-01-31 20:00:00 UTC", "20:00"),
        ("2026-01-31 20:00 GMT", "20:00"),
        ("2026-01-31T20:00:00Z", "20:00"),
        ("2026-01-31T20:00:00-11:30", "20:00"),
        ("2026-01-31 20:00:00 +0100", "20:00"),
        ("2026-01-31 UTC", "00:00"),
        (date(2026, 1, 31), "00:00"),
        (datetime(2026, 1, 31, 20), "20:00"),
        (np.datetime64("2026-01-31"), "00:00"),
        ("1/31/2026", None),
        ("3/4/2026", None),
        ("3-4-2026", None),
        ("31.1.26", None),
        ("2026/01-31", None),
        ("2026-2027", None),  # two years, and no time zone
        ("2026-02-30", None),
        ("2026-01-31 25:00", None),
        ("2026-01-31 20", None),
        ("202601", None),
        ("٢٠٢٦-01-31", None),
        (CANARY, None),
        (True, None),
        (1_769_889_600, None),
        (5, None),
        (2026.5, None),
    ],
)
def test_forms_of_a_day(form: Any, clock: str | None) -> None:
    """Among dates, so that no number is of a column of numbers; a zone is left out."""
    if clock is not None:
        assert days([form, "2026-02", None, "2026", 2026])[0] == f"2026-01-31T{clock}"
        return
    with pytest.raises(DataError, match="timestamp of document 2 cannot be read as a") as error:
        days(["2026-02", form])
    assert error.value.value == str(form)
    assert str(form) not in str(error.value).replace("2026-03-01", "") or form == 5


def test_years_are_dates_among_dates() -> None:
    begins = ["2023-01-01T00:00", "2024-01-01T00:00", "2024-03-01T00:00"]
    assert days([2023, "2024", None, "2024-03"]) == days([2023.0, 2024, date(2024, 3, 1)]) == begins
    assert times_of(as_array([2023, 7]), np.array([True, True])).tolist() == [2023, 7]


@pytest.mark.parametrize(
    ("date_format", "values", "expected"),
    [
        ("%d/%m/%Y", ["3/4/2026", None, " ", date(2026, 4, 4)], ["2026-04-03", "2026-04-04"]),
        ("%m/%d/%Y", [" 3/4/2026 "], ["2026-03-04"]),
        ("%Y-%m-%d %z", ["2026-03-04 +0900"], ["2026-03-04"]),
        ("%Y%m%d", [20260304, "20260305"], ["2026-03-04", "2026-03-05"]),
        ("%Y%m%d", [20260304.0, float("nan")], ["2026-03-04"]),  # as pandas writes gaps
        ("excel", [46085, "46086.99", 46087.0], ["2026-03-04", "2026-03-05", "2026-03-06"]),
        ("%d/%m/%Y", ["31/12/2026", CANARY], 2),
        ("excel", [CANARY], 1),
        ("excel", [float("inf")], 1),
        ("%Q", ["2026-03-04"], 1),
    ],
)
def test_date_format(date_format: str, values: list[Any], expected: list[str] | int) -> None:
    if isinstance(expected, list):
        assert [day[:10] for day in days(values, date_format)] == expected
        return
    with pytest.raises(DataError, match=f"Row {expected} of the column does not fit") as error:
        days(values, date_format)
    assert error.value.value == str(values[-1])
    assert str(values[-1]) not in str(error.value)


YEARS = {
    "texts": ("a.parquet", ["2023", "2024", "2024", None], None),
    "numbers": ("a.parquet", pd.array([2023, 2024, 2024, None], "Int64"), None),
    "numbers of pandas": ("a.parquet", [2023.0, 2024.0, 2024.0, None], None),
    "days": ("a.csv", ["2023-05-06", "2024-01-02", "2024-03-04", None], None),
    "cells of Excel": ("a.xlsx", [date(2023, 5, 6), datetime(2024, 1, 2, 3), 2024, None], None),
    "numbers of Excel": ("a.csv", [45052, 45293, 45355, None], "excel"),
    "another order": ("a.jsonl", ["6/5/2023", "2/1/2024", "4/3/2024", None], "%d/%m/%Y"),
}


@pytest.mark.parametrize(("name", "written", "date_format"), YEARS.values(), ids=YEARS)
def test_periods_of_a_study_in_any_type(
    name: str, written: Any, date_format: str | None, tmp_path: Path
) -> None:
    path = write_as(tmp_path / name, ["oak", "elm", "", "fir"], written=written)
    corpus = Corpus.read(path, Columns(time="written", date_format=date_format))
    period = GroupColumn(period="year", begin=date(2023, 1, 1), end=date(2024, 12, 31))
    assert period.codes(corpus, "time").tolist() == [0, 1, 1, 3]


def test_dates_that_nobody_uses_are_mentioned(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "text,label,written,seen,year\n2026-01-31,2026-02-01,2026/02/02,3.2.2026,2026\n",
    )
    unused = Corpus.read(path, Columns(label="label", time="written")).source
    assert unused.endswith(" (not used: dates in column 'seen')")
