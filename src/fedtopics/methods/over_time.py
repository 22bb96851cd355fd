"""Topics by period of a federation: one more sum at the end, where a study asks for it.

A client sums theta over its documents of each period. Periods are agreed in the study, so that
nobody tells when its first document is of. Periods with too few documents are left out, and one
more if the documents of no period that is told would be too few: sums over all documents are told
as well, and the difference would be of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedtopics.errors import DataError
from fedtopics.methods.groups import Enough, Groups, Guard, as_many
from fedtopics.model.over_time import Unit, begin_of, missing, times_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import plain

MOST_PERIODS = 1000
STEPS: dict[Unit, tuple[str, int]] = {
    "year": ("M", 12), "quarter": ("M", 3), "month": ("M", 1), "week": ("D", 7), "day": ("D", 1)
}  # fmt: skip
Thetas = Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]


class OverTime(BaseModel):
    """Which periods topics are summed by."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    period: Unit = Field("month", description='"year", "quarter", "month", "week" or "day"')
    begin: date = Field(description="a day of the first period; documents before are in none")
    end: date = Field(description="a day of the last period")
    by_client: bool = Field(
        False, description="whether all see the sums of each client, and not of all together alone"
    )

    @model_validator(mode="after")
    def _not_too_many(self) -> OverTime:
        if self.end < self.begin:
            raise ValueError("over_time ends before it begins")
        if (periods := len(self.begins)) > MOST_PERIODS:
            raise ValueError(
                f"over_time has {periods:,} periods, more than {MOST_PERIODS:,}: take longer ones"
            )
        return self

    @property
    def begins(self) -> NDArray[Any]:
        """When each period begins, as datetime64 of days."""
        unit, step = STEPS[self.period]
        ends = begin_of(np.array([self.begin, self.end], "datetime64[D]"), self.period)
        first, last = ends.astype(f"datetime64[{unit}]")
        return np.arange(first, last + 1, step).astype("datetime64[D]")

    def places(self, corpus: Corpus) -> NDArray[np.int64]:
        """Return the number of each document's period; after the last one if it is in none.

        DataError if times are no dates.
        """
        n_periods = len(self.begins)
        places = np.full(len(corpus), n_periods)
        if corpus.times is None:
            return places
        values = np.array(plain(corpus.times), object)
        there = ~missing(values)
        if not there.any():
            return places
        times = times_of(values[there])
        if times.dtype.kind != "M":
            raise DataError("Periods are of dates, and the documents' times are numbers.")
        begins = begin_of(times, self.period)
        found = np.searchsorted(self.begins, begins).clip(max=n_periods - 1)
        places[there] = np.where(self.begins[found] == begins, found, n_periods)
        return places


def check_times(corpus: Corpus, over_time: OverTime | None) -> None:
    """Raise DataError if a study asks for times that documents do not have, or that are no dates.

    It is better said before the first round than at the end.
    """
    if over_time is None:
        return
    if corpus.times is None:
        raise DataError(
            f"The study sums topics by {over_time.period}, and nothing says when documents are "
            "of; name the column with --time, or as time in the client's table."
        )
    over_time.places(corpus)


def enough_to_tell(counts: NDArray[Any], least: int) -> Enough:
    """Return of which periods sums are told; the last number is of the documents in none.

    Examples
    --------
    >>> enough_to_tell(np.array([30, 4, 20, 0]), 10).tolist()  # 4 would be what is left
    [True, False, False, False]
    """
    enough = as_many(counts, least)
    enough[-1] = False
    left = counts[~enough].sum()
    if 0 < left < least and enough.any():
        enough[np.where(enough, counts, np.inf).argmin()] = False
    return enough


def own_sums(
    guard: Guard, places: NDArray[np.int64], thetas: Callable[[], Thetas], groups: Groups,
    model: Mapping[str, Any], shape: tuple[int, int],
) -> dict[str, Any]:  # fmt: skip
    """Return a client's reply: theta summed by period, or how many documents each has.

    The shape is (n_periods, n_topics).
    """

    def compute() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        total, number = np.zeros((shape[0] + 1, shape[1])), np.zeros(shape[0] + 1)
        for rows, theta in thetas():
            np.add.at(total, places[rows], theta)
            np.add.at(number, places[rows], 1)
        return total, number

    total, number = guard.once(groups, ("periods", model), compute)

    def summed(enough: Enough) -> dict[str, Any]:
        return {"sums": (total * enough[:, None])[:-1]}

    return guard.reply(groups, enough_to_tell, {"counts": number}, summed)
