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


FORMS = {
    "2026-01-31": "00:00",
    " 2026-1-31 ": "00:00",
    "2026/01/31": "00:00",
    "2026/1/31": "00:00",
    "31.01.2026": "00:00",
    "31.1.2026 9:30": "09:30",
    "20260131": "00:00",
    "2026-01-31T20:00": "20:00",
    "2026-01-31 20:00:00": "20:00",
    "2026-01-31 20:00:00.123456789": "20:00",
    "2026-01-31 20:00:00+00": "20:00",
    "2026-01-31 20:00:00 UTC": "20:00",
    "2026-01-31 20:00 GMT": "20:00",
    "2026-01-31T20:00:00Z": "20:00",
    "2026-01-31T20:00:00-11:30": "20:00",
    "2026-01-31 20:00:00 +0100": "20:00",
    "2026-01-31 UTC": "00:00",
    "2026-01-31+01:00": "00:00",
    date(2026, 1, 31): "00:00",
    datetime(2026, 1, 31, 20): "20:00",
    np.datetime64("2026-01-31"): "00:00",
}
NO_FORMS = [
    *("1/31/2026", "3/4/2026", "3-4-2026", "31.1.26", "2026/01-31", "2026-02-30", "202601"),
    *("2026-01-31 25:00", "2026-01-31 20", "٢٠٢٦-01-31", CANARY, True, 1_769_889_600, 5.0, 2026.5),
    "2026-2027",  # two years, and no time zone
]
FEBRUARY = "2026-02-01T00:00"


@pytest.mark.parametrize(
    ("values", "date_format", "expected"),
    [
        *(
            (
                [form, "2026-02", None, "2026", 2026.0],
                None,
                [f"2026-01-31T{clock}", FEBRUARY, *["2026-01-01T00:00"] * 2],
            )
            for form, clock in FORMS.items()
        ),
        *((["2026-02", "", form], None, 3) for form in NO_FORMS),
        (["3/4/2026", None, " ", date(2026, 2, 1)], "%d/%m/%Y", ["2026-04-03T00:00", FEBRUARY]),
        ([" 3/4/2026 "], "%m/%d/%Y", ["2026-03-04T00:00"]),
        (["2026-02-01 +0900"], "%Y-%m-%d %z", [FEBRUARY]),
        ([20260201, "20260201"], "%Y%m%d", [FEBRUARY] * 2),
        ([20260201.0, float("nan")], "%Y%m%d", [FEBRUARY]),  # as pandas writes gaps
        (np.array(["2026-02-01", "NaT"], "datetime64[ns]"), "%d/%m/%Y", [FEBRUARY]),
        (pd.Series(["2026-02-01"], dtype="datetime64[us]"), "excel", [FEBRUARY]),
        ([46054, "46054", 46054.25], "excel", [FEBRUARY, FEBRUARY, "2026-02-01T06:00"]),
        (["31/12/2026", CANARY], "%d/%m/%Y", 2),
        ([CANARY], "excel", 1),
        ([float("inf")], "excel", 1),
        (["2026-03-31"], "%Y%Q", 1),
    ],
)
def test_dates(values: list[Any], date_format: str | None, expected: list[str] | int) -> None:
    """Each form is one time, without its zone; what is none is no part of the sentence."""
    if isinstance(expected, list):
        assert days(values, date_format) == expected
        return
    with pytest.raises(DataError, match=rf"(document|Row) {expected} .*; ") as error:
        days(values, date_format)
    assert error.value.value == str(values[-1])
    assert error.value.value not in str(error.value)


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
    """Not those of the documents themselves, or of labels; a year may be any number."""
    content = "text,label,written,seen,year\n2026-01-31,2026-02-01,2026/02/02,3.2.2026,2026\n"
    used = Columns(label="label", time="written")
    assert Corpus.read(write(tmp_path / "a.csv", content), used).source.endswith(
        " (not used: dates in column 'seen')"
    )
