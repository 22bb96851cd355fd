"""Groups of documents (clusters, topics, periods), without groups whose sums reveal documents.

With plain aggregation, a client omits groups of fewer of its own documents than its policy
requires. With secure aggregation, a first sum counts the documents of all clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, model_validator

from fedtopics.contract.payload import Payload, digest_of
from fedtopics.errors import DataError
from fedtopics.inference.vectors import Numbers
from fedtopics.text.corpus import Corpus
from fedtopics.text.times import Unit, as_array, begin_of, missing, times_of

GroupRequest = Mapping[str, Any]
"""What a client receives about groups: nothing with plain aggregation; otherwise `least`, the
minimum size of a group, and in the second exchange also `counted`, the counts over all clients."""
Enough = NDArray[np.bool_]
Grouped = tuple[Mapping[str, Numbers], Callable[[Enough], dict[str, Any]]]
"""Counts of a client's groups, and a function that returns the sums of the large enough ones."""
Result = TypeVar("Result")
SEEN: GroupRequest = {}
ROUNDING = 1e-9


class GroupThreshold:
    """Decides which groups a client sums, by a minimum size; with `of_all`, over all clients."""

    def __init__(self, least: int, of_all: bool) -> None:
        self.least = least
        self.of_all = of_all
        self._last: tuple[str, Any] = ("", None)

    def shares(self, groups: GroupRequest) -> bool:
        """Whether group sizes are over all clients, with a minimum that this client accepts."""
        return self.of_all and groups.get("least", 0) >= self.least

    def sums(
        self,
        groups: GroupRequest,
        request: Payload,
        rule: Callable[..., Enough],
        compute: Callable[[], Grouped],
    ) -> dict[str, Any]:
        """Return the counts of the client's groups if requested, else sums of groups by `rule`."""
        counts, summed = self.once(groups, request, compute)
        enough = rule(**counts, least=self.least)
        shares = self.shares(groups)
        if is_count(groups):
            return {name: count if shares else count * enough for name, count in counts.items()}
        return summed(rule(**groups["counted"], least=groups["least"]) if shares else enough)

    def once(self, groups: GroupRequest, request: Payload, compute: Callable[[], Result]) -> Result:
        """Compute counts and sums only once, so that both are of the same documents."""
        if not groups:
            return compute()
        digest = digest_of(request)
        if self._last[0] != digest:
            self._last = digest, compute()
        computed: Result = self._last[1]
        return computed


def is_count(groups: GroupRequest) -> bool:
    return bool(groups) and "counted" not in groups


def as_many(counts: Numbers, least: int) -> Enough:
    """Return which groups have at least `least` documents; all do if 1 is enough."""
    return np.asarray(counts >= (least if least > 1 else 0))


def enough_have(shares: Numbers, squares: Numbers, least: int) -> Enough:
    """Return which topics have `least` documents: (sum of shares)^2 / sum of their squares."""
    return np.asarray(shares**2 >= least * squares * (1 - ROUNDING))


MOST_PERIODS = 1000
STEPS: dict[Unit, tuple[str, int]] = {
    "year": ("M", 12),
    "quarter": ("M", 3),
    "month": ("M", 1),
    "week": ("D", 7),
    "day": ("D", 1),
}
Thetas = Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]


class OverTime(BaseModel, extra="forbid", frozen=True):
    period: Unit = Field("month", description='"year", "quarter", "month", "week" or "day"')
    begin: date = Field(
        description="any day of the first period; earlier documents are in no period"
    )
    end: date = Field(description="any day of the last period")
    by_client: bool = Field(
        False,
        description="whether all participants see the sums of each client instead of the total",
    )

    @model_validator(mode="after")
    def _not_too_many(self) -> OverTime:
        if self.end < self.begin:
            raise ValueError("over_time ends before it begins")
        if (periods := len(self.begins)) > MOST_PERIODS:
            raise ValueError(
                f"over_time has {periods:,} periods, more than {MOST_PERIODS:,}; choose longer ones"
            )
        return self

    @property
    def begins(self) -> NDArray[Any]:
        unit, step = STEPS[self.period]
        ends = begin_of(np.array([self.begin, self.end], "datetime64[D]"), self.period)
        first, last = ends.astype(f"datetime64[{unit}]")
        return np.arange(first, last + 1, step).astype("datetime64[D]")

    def places(self, corpus: Corpus) -> NDArray[np.int64]:
        """Return the number of each document's period; n_periods if the document is in none."""
        n_periods = len(self.begins)
        places = np.full(len(corpus), n_periods)
        if corpus.times is None:
            return places
        values = as_array(corpus.times)
        has_time = ~missing(values)
        if not has_time.any():
            return places
        begins = begin_of(times_of(values, has_time), self.period)
        periods = np.searchsorted(self.begins, begins).clip(max=n_periods - 1)
        places[has_time] = np.where(self.begins[periods] == begins, periods, n_periods)
        return places


def check_times(corpus: Corpus, over_time: OverTime | None) -> None:
    """Raise DataError if documents lack the times that a study needs, or these are not times."""
    if over_time is None:
        if corpus.times is not None:
            values = as_array(corpus.times)
            times_of(values, ~missing(values))
        return
    if corpus.times is None:
        raise DataError(
            f"The study sums topics by {over_time.period}, but the documents have no times; name "
            "the column with --columns time=NAME, or as time in the client's table."
        )
    over_time.places(corpus)


def periods_to_share(counts: NDArray[Any], least: int) -> Enough:
    """Return which periods are shared; one more is omitted if it would reveal an omitted one."""
    enough = as_many(counts, least)
    enough[-1] = False
    left = counts[~enough].sum()
    if 0 < left < least and enough.any():
        enough[np.where(enough, counts, np.inf).argmin()] = False
    return enough


def sums_by_period(
    guard: GroupThreshold,
    places: NDArray[np.int64],
    thetas: Callable[[], Thetas],
    groups: GroupRequest,
    model: Mapping[str, Any],
    shape: tuple[int, int],
) -> dict[str, Any]:
    """Return theta summed by period, (n_periods, n_topics), or the number of documents in each."""

    def compute() -> Grouped:
        total = np.zeros((shape[0] + 1, shape[1]))
        number = np.zeros(shape[0] + 1)
        for rows, theta in thetas():
            np.add.at(total, places[rows], theta)
            np.add.at(number, places[rows], 1)
        return {"counts": number}, lambda enough: {"sums": (total * enough[:, None])[:-1]}

    return guard.sums(groups, {"sums": "by period", **model}, periods_to_share, compute)
