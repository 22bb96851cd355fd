"""Groups of documents, such as clusters, topics and periods: the sum of few documents reveals them.

Where each update is seen, a client leaves out groups of fewer of its own documents than its policy
requires. Where secure aggregation hides updates and sums over all clients are what is seen, the
documents of all are counted first, in a sum as well, and groups of too few of them are left out.

Periods with too few documents are left out, and one more if the documents outside all periods
would be too few: sums over all documents are published as well, and the difference would be these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedtopics.errors import DataError
from fedtopics.inference.points import Numbers
from fedtopics.methods.core.aggregation import Payload, digest_of
from fedtopics.text.corpus import Corpus
from fedtopics.text.times import Unit, as_array, begin_of, missing, times_of

Groups = Mapping[str, Any]
"""What a client is told of groups: nothing where its reply is seen. Else `least`, the fewest
documents of a group, and what was `counted` of all clients' documents; without that it is to count
its own, and gives no sum yet."""
Enough = NDArray[np.bool_]
Grouped = tuple[Mapping[str, Numbers], Callable[[Enough], dict[str, Any]]]
"""Counts of a client's groups, and what returns the sums of those that have enough."""
Result = TypeVar("Result")
SEEN: Groups = {}
ROUNDING = 1e-9


class Guard:
    """Which groups of documents a client sums.

    `least` is the fewest documents of a group by its policy: of all clients if it counts `of_all`
    and they count together, else of its own.
    """

    def __init__(self, least: int, of_all: bool) -> None:
        self.least = least
        self.of_all = of_all
        self._last: tuple[str, Any] = ("", None)

    @property
    def stated(self) -> int:
        """The fewest documents that a group of all clients' has to have for this one."""
        return self.least if self.of_all else 1

    def shares(self, groups: Groups) -> bool:
        """Whether groups are those of all clients' documents here, and of enough of them."""
        return self.of_all and groups.get("least", 0) >= self.least

    def sums(
        self, groups: Groups, request: Payload, rule: Callable[..., Enough],
        compute: Callable[[], Grouped],
    ) -> dict[str, Any]:  # fmt: skip
        """Return the counts of its own groups if these are asked for, else what they sum to.

        `rule` says by counts which groups have enough documents. Where it goes by its own alone,
        a client counts for others what it gives. Both are computed `once`.
        """
        own, summed = self.once(groups, request, compute)
        enough = rule(**own, least=self.least)
        shares = self.shares(groups)
        if is_count(groups):
            return {name: count if shares else count * enough for name, count in own.items()}
        return summed(rule(**groups["counted"], least=groups["least"]) if shares else enough)

    def once(self, groups: Groups, request: Payload, compute: Callable[[], Result]) -> Result:
        """Compute what both counts and sums are of once: what is summed is what was counted."""
        if not groups:
            return compute()
        digest = digest_of(request)
        if self._last[0] != digest:
            self._last = digest, compute()
        found: Result = self._last[1]
        return found


def is_count(groups: Groups) -> bool:
    """Whether a client is to count its groups, and to sum none."""
    return bool(groups) and "counted" not in groups


def as_many(counts: Numbers, least: int) -> Enough:
    """Return which groups have as many documents, or as much weight; where one is enough, all."""
    return np.asarray(counts >= (least if least > 1 else 0))


def enough_have(shares: Numbers, squares: Numbers, least: int) -> Enough:
    """Return which topics as many documents have as asked for, each by how much of it is there.

    Their number is (sum of shares)^2 / sum of squared shares: one document with nine that hardly
    have the topic is one.
    """
    return np.asarray(shares**2 >= least * squares * (1 - ROUNDING))


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
        """Return the number of each document's period; after the last one if it is in none."""
        n_periods = len(self.begins)
        places = np.full(len(corpus), n_periods)
        if corpus.times is None:
            return places
        values = as_array(corpus.times)
        there = ~missing(values)
        if not there.any():
            return places
        times = times_of(values, there)
        begins = begin_of(times, self.period)
        found = np.searchsorted(self.begins, begins).clip(max=n_periods - 1)
        places[there] = np.where(self.begins[found] == begins, found, n_periods)
        return places


def check_times(corpus: Corpus, over_time: OverTime | None) -> None:
    """Raise DataError if documents lack the times that a study needs, or these are no dates."""
    if over_time is None:
        return
    if corpus.times is None:
        raise DataError(
            f"The study sums topics by {over_time.period}, and nothing says when documents are "
            "of; name it with --columns time=NAME, or as time in the client's table."
        )
    over_time.places(corpus)


def periods_to_share(counts: NDArray[Any], least: int) -> Enough:
    """Return of which periods sums are told; the last number is of the documents in none.

    Examples
    --------
    >>> periods_to_share(np.array([30, 4, 20, 0]), 10).tolist()  # 4 would be what is left
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
    """Return theta summed by period, (n_periods, n_topics), or how many documents each has."""

    def compute() -> Grouped:
        total, number = np.zeros((shape[0] + 1, shape[1])), np.zeros(shape[0] + 1)
        for rows, theta in thetas():
            np.add.at(total, places[rows], theta)
            np.add.at(number, places[rows], 1)
        return {"counts": number}, lambda enough: {"sums": (total * enough[:, None])[:-1]}

    return guard.sums(groups, {"sums": "by period", **model}, periods_to_share, compute)
