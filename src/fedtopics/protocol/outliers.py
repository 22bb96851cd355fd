"""How the replies of clients are combined: as a sum, with bounded outliers, or as a median.

References
----------
Andrew and others, Differentially Private Learning with Adaptive Clipping, NeurIPS 2021: a bound
learnt from a quantile over clients. Yin and others, Byzantine-Robust Distributed Learning, ICML
2018: the median of each number.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedtopics.contract.events import Clipped, Event
from fedtopics.contract.payload import Payload, RunningSum, SparseRows, mapped
from fedtopics.contract.replies import Bounds, Template

Rule = Literal["none", "clip", "median"]
Key = tuple[str, int]  # a function, and in which exchange of a round it is called
FAR_TIMES = 3.0  # limit per document, relative to how far clients usually move a sum
ABSURD = 30.0  # beyond this, a reply moves the sum less the further it goes
ENOUGH_TO_COMPARE = 3  # least number of clients among which an outlier is recognised
NOTABLE = 10.0  # geometric mean over the last replies, relative to the usual, that is reported
LAST = 10  # number of last replies
LARGEST = 1e300
FARTHEST = 1e12  # largest value, relative to the usual, that events report


class Robust:
    """An engine's sums by a rule that learns from each round how far replies usually move a sum."""

    def __init__(self, rule: Rule, notify: Callable[[Event], None]) -> None:
        self._rule = rule
        self._notify = notify
        self._last: dict[tuple[str, Key], deque[float]] = {}
        self._reported: dict[str, float] = {}
        self.usual: dict[Key, Usual] = {}

    def sum(
        self, function: str, template: Template, exchange: int, round_: int
    ) -> RunningSum | _Bounded | _Median:
        if self._rule == "clip":
            return _Bounded(self, (function, exchange), round_, template)
        return _Median(template) if self._rule == "median" else RunningSum()

    def moved(self, client: str, key: Key, round_: int, times: float) -> None:
        """Record how far a reply moves the sum; report clients that move it too far on average."""
        last = self._last.setdefault((client, key), deque(maxlen=LAST))
        last.append(np.log(min(max(times, 1.0), LARGEST)))
        if np.mean(last) > np.log(NOTABLE) and times > 2 * self._reported.get(client, 0.0):
            self._reported[client] = times
            self._notify(Clipped(client, round_, min(times, FARTHEST)))


@dataclass(frozen=True)
class Usual:
    """The median over clients of how far they move a sum per document, for each field."""

    documents: float  # median per client
    levels: Mapping[str, float]

    @classmethod
    def of(
        cls, replies: Sequence[tuple[int, Mapping[str, float]]], possible: Mapping[str, float]
    ) -> Usual:
        """Compute it from replies; it is at least the documents' maximum divided by FAR_TIMES."""
        typical = cls(float(np.median([n for n, _ in replies])), {})
        levels = {}
        for name in dict.fromkeys(name for _, lengths in replies for name in lengths):
            moved = [x[name] / typical.reach(n) for n, x in replies if x.get(name)]
            if len(moved) >= ENOUGH_TO_COMPARE:
                levels[name] = max(float(np.median(moved)), possible.get(name, 0.0) / FAR_TIMES)
        return replace(typical, levels=levels)

    def reach(self, documents: int) -> float:
        """Return the usual effect of `documents`; to announce fewer than usual has no advantage."""
        n = float(max(documents, 1))
        return math.sqrt(n * max(n, self.documents))

    def times(self, documents: int, lengths: Mapping[str, float]) -> float:
        reach = self.reach(documents)
        return max(
            (
                lengths[name] / (self.levels[name] * reach)
                for name in lengths.keys() & self.levels.keys()
            ),
            default=0.0,
        )


class _Bounded:
    """The sum of limited replies; those above the last round's limit wait for all the others."""

    def __init__(self, robust: Robust, key: Key, round_: int, template: Template) -> None:
        self._robust = robust
        self._key = key
        self._round = round_
        self._possible = {n: f.length for n, f in template.items() if isinstance(f, Bounds)}
        self._before = robust.usual.get(key)
        self._seen: dict[str, tuple[int, dict[str, float]]] = {}
        self._held: dict[str, Payload] = {}
        self._sum = RunningSum()

    def add(self, reply: Payload, name: str) -> None:
        documents = reply.get("documents", 0)
        lengths = _lengths(reply)
        self._seen[name] = documents, lengths
        if self._before is None or self._before.times(documents, lengths) > FAR_TIMES:
            self._held[name] = reply
        else:
            self._sum.add(reply)

    def total(self) -> dict[str, Any]:
        now = Usual.of(list(self._seen.values()), self._possible)
        before = self._before or now
        for name, (documents, lengths) in self._seen.items():
            times = min(before.times(documents, lengths), now.times(documents, lengths))
            self._robust.moved(name, self._key, self._round, times)
            if name in self._held:
                reply = self._held[name]
                scaled = partial(_scaled, factor=weight(times))
                self._sum.add(mapped(scaled, reply) if times > FAR_TIMES else reply)
        self._robust.usual[self._key] = now
        return self._sum.total()


def weight(times: float) -> float:
    """Return the weight of a reply that moves a sum `times` as far as usual."""
    return min(1.0, FAR_TIMES / times) * min(1.0, ABSURD / times) if times else 1.0


def _lengths(reply: Payload) -> dict[str, float]:
    """Return the length of each field's arrays, taken as one vector, or infinity if not finite."""
    squares = {name: _square(value) for name, value in reply.items()}
    return {n: math.sqrt(x) if math.isfinite(x) else math.inf for n, x in squares.items()}


def _square(value: Any) -> float:
    if isinstance(value, Mapping):
        return sum(_square(value[name]) for name in sorted(value))
    array = value.values if isinstance(value, SparseRows) else value
    if not _is_numbers(array):
        return 0.0
    flat = array.ravel()
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))  # casts by blocks


def _scaled(value: Any, factor: float) -> Any:
    """Multiply an array by a factor, unless it contains counts; infinite values become 0."""
    if not _is_numbers(value):
        return value
    return value * value.dtype.type(factor) if factor else np.zeros_like(value)


@dataclass(repr=False)  # its own repr would print replies
class _Median:
    """The median over clients of the mean per document, times the number of documents."""

    _template: Template
    _sum: RunningSum = field(default_factory=RunningSum)
    _replies: list[Payload] = field(default_factory=list)

    def add(self, reply: Payload, name: str) -> None:
        self._sum.add(reply)
        self._replies.append(reply)

    def total(self) -> dict[str, Any]:
        total = self._sum.total()
        counted = [reply for reply in self._replies if reply.get("documents", 0) > 0]
        sizes = [reply["documents"] for reply in counted]
        return (
            dict(_median(total, counted, sizes, self._template))
            if len(counted) >= ENOUGH_TO_COMPARE
            else total
        )


def _median(total: Any, values: Sequence[Any], sizes: Sequence[int], template: Any) -> Any:
    if isinstance(total, Mapping):
        fields = template if isinstance(template, Mapping) else {}
        return {
            name: _median(part, [value[name] for value in values], sizes, fields.get(name))
            for name, part in total.items()
        }
    if isinstance(total, SparseRows):
        dense = _median(total.dense(), [rows.dense() for rows in values], sizes, None)
        if isinstance(template, Bounds):
            dense = np.clip(dense.astype(float), template.least, template.most)
        return replace(total, values=dense[total.index])
    if not _is_numbers(total):
        return total
    means = [np.asarray(value, float) / n for value, n in zip(values, sizes, strict=True)]
    median = np.asarray(np.median(means, axis=0) * sum(sizes)).astype(total.dtype)
    return (
        np.clip(median, template.least, template.most) if isinstance(template, Bounds) else median
    )


def _is_numbers(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
