"""Columns by which documents are compared: a study fixes their levels, periods or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from fedtopics.errors import DataError, StudyError, refuse
from fedtopics.text.columns import Column, is_text, plain_level
from fedtopics.text.corpus import Corpus
from fedtopics.text.times import PERIODS, Unit, as_array, begin_of, missing, times_of

OTHERS = "others"  # levels that are shown together
OTHER = "other"  # values that the study does not list
UNKNOWN = "unknown"  # missing values
MOST_LEVELS = 240
TIME = "time"  # the column of documents' times


class GroupColumn(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The values of a column that a study tells apart, so that nobody reveals a rare one."""

    levels: tuple[str, ...] = Field(
        (), description='values of a column of names; any other value counts as "other"'
    )
    period: Unit = Field("month", description='"year", "quarter", "month", "week" or "day"')
    begin: date | None = Field(
        None, description="any day of the first period; earlier documents are in no period"
    )
    end: date | None = Field(None, description="any day of the last period")
    least: float | None = Field(
        None, description="least number of a column of numbers; smaller ones count as this one"
    )
    most: float | None = Field(
        None, description="largest number of a column of numbers; larger ones count as this one"
    )
    knots: tuple[float, ...] = Field(
        (), description="numbers between least and most where a cubic spline may bend"
    )

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> GroupColumn:
        kinds = (self.levels, self.begin and self.end, self.least is not None)
        is_partial = (self.least is None) != (self.most is None) or bool(self.begin) != bool(
            self.end
        )
        if sum(map(bool, kinds)) != 1 or is_partial or (self.knots and not self.is_number):
            raise ValueError("give levels, or begin and end, or least and most, perhaps with knots")
        ascends = all(a < b for a, b in pairwise(self._cuts))
        refuse(
            {
                "the end is before the begin": (
                    self.begin is not None and self.end is not None and self.end < self.begin
                ),
                "a level or number is there twice, is called other, unknown or others, or numbers "
                "do not ascend": len({*self.names, OTHERS}) <= len(self.names) or not ascends,
                f"there are {len(self.names):,} levels or periods, more than {MOST_LEVELS}; "
                "choose longer periods or fewer levels": len(self.names) > MOST_LEVELS,
            }
        )
        return self

    @property
    def is_number(self) -> bool:
        return self.least is not None

    @property
    def _cuts(self) -> list[float]:
        return [*self.ends[:1], *self.knots, *self.ends[1:]]

    @property
    def ends(self) -> tuple[float, ...]:
        """The least and the largest number."""
        return () if self.least is None or self.most is None else (self.least, self.most)

    @cached_property
    def begins(self) -> NDArray[Any]:
        """The first day of each period."""
        unit, step = PERIODS[self.period]
        days = np.array([self.begin, self.end], "datetime64[D]")
        first, last = begin_of(days, self.period).astype(f"datetime64[{unit}]")
        return np.arange(first, last + 1, step).astype("datetime64[D]")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The levels, first days of periods, or parts of numbers; then other and unknown."""
        cuts = [np.format_float_positional(cut, trim="-") for cut in self._cuts]
        parts = [f"{low} to {high}" for low, high in pairwise(cuts)]
        periods = map(str, self.begins) if self.begin else ()
        return (*self.levels, *periods, *parts, OTHER, UNKNOWN)

    def codes(self, corpus: Corpus, name: str) -> NDArray[np.int64]:
        """Return the number of each document's level in `names`; DataError if none can be read."""
        n_levels = len(self.names) - 2
        codes = np.full(len(corpus), n_levels + 1)
        if self.is_number:
            numbers = self.numbers(corpus, name)
            return np.where(np.isnan(numbers), codes, np.searchsorted(self.knots, numbers, "right"))
        values = values_in(corpus, name)
        array = as_array(values)
        present = ~missing(array)
        if not present.any():
            return codes
        if self.begin:
            begins = begin_of(times_of(array, present), self.period)
            places = np.searchsorted(self.begins, begins).clip(max=n_levels - 1)
            codes[present] = np.where(self.begins[places] == begins, places, n_levels)
        else:
            places_of = {plain_level(level): place for place, level in enumerate(self.levels)}
            texts = Column([values], name).names().to_pylist()
            codes[present] = [
                places_of.get(plain_level(texts[row]), n_levels) for row in np.flatnonzero(present)
            ]
        return codes

    def numbers(self, corpus: Corpus, name: str) -> NDArray[np.float64]:
        """Return each document's number, NaN if it is missing; DataError if it is no number."""
        values = values_in(corpus, name)
        try:
            values = pc.utf8_trim_whitespace(values) if is_text(values.type) else values
            numbers: NDArray[np.float64] = pc.cast(values, pa.float64()).to_numpy().astype(float)
        except (pa.ArrowException, TypeError, ValueError):
            raise DataError(
                f"The column {name!r} has values that are not numbers; correct them, or leave "
                "them empty."
            ) from None
        return np.clip(numbers, self.ends[0], self.ends[1])


def values_in(corpus: Corpus, name: str) -> Any:
    """Return a column of documents; DataError if they do not have it."""
    if name == TIME and corpus.times is not None:
        return corpus.times
    groups = corpus.groups
    if groups is None or groups.type.get_field_index(name) < 0:
        advice = "time=NAME" if name == TIME else f"by.{name}=NAME"
        raise DataError(
            f"The study compares documents by {name}, but they have no such column; name it with "
            f"--columns {advice}, or in the client's table."
        )
    return pc.struct_field(groups, name)


def check_groups(corpus: Corpus, by: Mapping[str, GroupColumn]) -> None:
    """Raise DataError if documents lack columns that a study compares, or these are not usable."""
    for name, column in by.items():
        codes = column.codes(corpus, name)
        n_levels = len(column.names) - 2
        if (codes == n_levels).any() and not (codes < n_levels).any():
            raise DataError(
                f"No document has a level or period of {name} that the study lists; compare them "
                "letter by letter: a file may have codes, such as 1, where the study has labels.",
                value=", ".join(
                    sorted({str(v) for v in Column([values_in(corpus, name)], "").plain()})
                ),
            )
    if corpus.times is not None and TIME not in by:
        values = as_array(corpus.times)
        times_of(values, ~missing(values))


def unlisted(corpus: Corpus, by: Mapping[str, GroupColumn]) -> Iterator[str]:
    """Say how many documents have no level that the study lists, by column."""
    for name, column in by.items():
        codes = column.codes(corpus, name)
        other, unknown = (int((codes == len(column.names) - n).sum()) for n in (2, 1))
        yield (
            f"Compared by {name}: of {len(corpus):,} documents, {other:,} have a value that the "
            f'study does not list ("{OTHER}") and {unknown:,} have none ("{UNKNOWN}").'
        )


def check_columns(by: Mapping[str, GroupColumn]) -> None:
    """Raise StudyError if a column has a name that a formula cannot contain."""
    for name in by:
        if not name.isidentifier() or name in ("client", TIME) or "__" in name:
            raise StudyError(
                f"{name!r:.60} cannot be the name of a column in [method.by]; use letters, digits "
                "and single _ (not client or time), and name the client's own column in its table."
            )
