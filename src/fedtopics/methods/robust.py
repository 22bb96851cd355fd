"""Sums that no single client decides: what a reply adds is bounded, or replies are voted on.

Arrays of numbers, which models are made of, are bounded by what other clients' documents do
("clip"), or are what most clients say that a document adds, times the number of documents
("trimmed-mean", "median", "centred-clip"). Of a loss that a training goes on by, no client decides
alone whether it is a gain. Counts stay sums, as what they can be is checked in each reply; so do
losses that only inform.

References
----------
Andrew and others, Differentially Private Learning with Adaptive Clipping, NeurIPS 2021: a bound
learnt from a quantile over clients. Yin and others, Byzantine-Robust Distributed Learning, ICML
2018: median and trimmed mean. Karimireddy, He and Jaggi, Learning from History for Byzantine Robust
Optimization, ICML 2021: centred clipping; ours starts from the median instead of the last round.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Payload, Rows, RunningSum
from fedtopics.methods.events import Clipped, Event
from fedtopics.methods.replies import Field, Own, Template, own_field
from fedtopics.methods.steering import Steering

Rule = Literal["none", "clip", "trimmed-mean", "median", "centred-clip"]
Key = tuple[str, int]  # a function, and which exchange of a round it is called in
Vector = NDArray[np.float64]
Vectors = NDArray[np.float64]  # (n_clients, n_numbers)
FAR = 3.0  # times as far a document as clients usually move a sum: no reply moves it further
ABSURD = 30.0  # from where a reply moves the sum the less, the further it goes
FEWEST = 3  # clients, of which one can be told from the others
TRIMMED = 0.2  # share of the clients that a trimmed mean leaves out at either end
STEPS = 3  # of centred clipping
NOTABLE = 10.0  # times as far as usual, on (geometric) average over the last replies
LAST = 10  # replies
LARGEST, TINY = 1e300, 1e-300
FARTHEST = 1e12  # times as far as usual: what goes further is told as this far


class Total(Protocol):
    """What the replies to an exchange come to, which it takes in the order of names."""

    def add(self, name: str, reply: Payload) -> None:
        """Take a client's reply."""

    def total(self) -> dict[str, Any]:
        """Return what all replies come to; there has to be one."""


class Robust:
    """An engine's sums, by a rule.

    What clients usually reply is learnt from round to round, by whoever adds, and anew after a
    restart or a takeover: all participants go on from the total, however it came about.
    """

    def __init__(self, rule: Rule, notify: Callable[[Event], None]) -> None:
        self._rule = rule
        self._notify = notify
        self._last: dict[tuple[str, Key], deque[float]] = {}
        self._told: dict[str, float] = {}
        self.steering = Steering()
        self.usual: dict[Key, Usual] = {}

    def sum(self, function: str, template: Template | None, exchange: int, round_: int) -> Total:
        """Return what adds up the replies to a round's exchange, the first, second, ..."""
        if own := own_field(template):
            return _Own(*own)
        if self._rule == "none":
            return _Plain()
        key = function, exchange
        total: Total = (
            _Bounded(self, key, round_, template)
            if self._rule == "clip"
            else _Voted(VOTES[self._rule], template)
        )
        fields = (template or {}).items()
        steering = {name: f.steers for name, f in fields if isinstance(f, Field) and f.steers}
        return _Steered(self, key, steering, total)

    def moved(self, client: str, key: Key, round_: int, times: float) -> None:
        """Take how far a reply goes; tell of who goes too far on average, and of twice as far."""
        last = self._last.setdefault((client, key), deque(maxlen=LAST))
        last.append(np.log(min(max(times, 1.0), LARGEST)))
        if np.mean(last) > np.log(NOTABLE) and times > 2 * self._told.get(client, 0.0):
            self._told[client] = times
            self._notify(Clipped(client, round_, min(times, FARTHEST)))


class _Plain:
    """The sum."""

    def __init__(self) -> None:
        self._sum = RunningSum()

    def add(self, name: str, reply: Payload) -> None:
        self._sum.add(reply)

    def total(self) -> dict[str, Any]:
        return self._sum.total()


class _Own:
    """What the owner of a reply's field makes of it."""

    def __init__(self, name: str, field: Own) -> None:
        self._name = name
        self._field = field

    def add(self, name: str, reply: Payload) -> None:
        self._field.add(name, reply[self._name])

    def total(self) -> dict[str, Any]:
        return {self._name: self._field.total()}


@dataclass(frozen=True)
class Usual:
    """How far clients usually move a sum: the median over clients, of each field, a document."""

    documents: float  # of a client, the median
    levels: Mapping[str, float]

    @classmethod
    def of(
        cls, replies: Sequence[tuple[int, Mapping[str, float]]], possible: Mapping[str, float]
    ) -> Usual:
        """Learn it from numbers of documents and lengths of fields; nothing from too few.

        What documents can move a sum by, where that is known, is not too far.
        """
        usual = cls(float(np.median([n for n, _ in replies])), {})
        levels = {}
        for field in dict.fromkeys(field for _, lengths in replies for field in lengths):
            moved = [
                lengths[field] / usual.reach(n) for n, lengths in replies if lengths.get(field)
            ]
            if len(moved) >= FEWEST:
                levels[field] = max(float(np.median(moved)), possible.get(field, 0.0) / FAR)
        return replace(usual, levels=levels)

    def reach(self, documents: int) -> float:
        """Return how far so many documents move a sum, when one moves it by 1.

        Those of fewer documents than usual do not cancel out as much. Who says that it has fewer
        gains nothing by it: it could move the sum further with the usual number.
        """
        n = float(max(documents, 1))
        return math.sqrt(n * max(n, self.documents))

    def times(self, documents: int, lengths: Mapping[str, float]) -> float:
        """Return how many times as far as usual a reply moves the sum, in its farthest field."""
        known = (field for field in lengths if field in self.levels)
        reach = self.reach(documents)
        return max((lengths[field] / (self.levels[field] * reach) for field in known), default=0.0)


class _Bounded:
    """The sum of replies of which none goes much further than usual, a document.

    What goes further counts the less, the further it goes, down to nothing. It needs the memory of
    two replies, and of those that go further than was usual the round before: they wait until all
    are here, as usual may be further now. In a first round all wait.
    """

    def __init__(self, robust: Robust, key: Key, round_: int, template: Template | None) -> None:
        self._robust = robust
        self._key = key
        self._round = round_
        fields = (template or {}).items()
        self._possible = {name: f.length for name, f in fields if isinstance(f, Field)}
        self._before = robust.usual.get(key)
        self._seen: dict[str, tuple[int, dict[str, float]]] = {}
        self._held: dict[str, Payload] = {}
        self._sum = RunningSum()

    def add(self, name: str, reply: Payload) -> None:
        self._seen[name] = reply.get("documents", 0), _lengths(reply)
        if self._before is None or self._before.times(*self._seen[name]) > FAR:
            self._held[name] = reply
        else:
            self._sum.add(reply)

    def total(self) -> dict[str, Any]:
        now = Usual.of(list(self._seen.values()), self._possible)
        usual = (self._before or now, now)
        for name, seen in self._seen.items():
            times = min(each.times(*seen) for each in usual)
            self._robust.moved(name, self._key, self._round, times)
            if name in self._held:
                reply = self._held[name]
                self._sum.add(_scaled(reply, weight(times)) if times > FAR else reply)
        self._robust.usual[self._key] = now
        return self._sum.total()


def weight(times: float) -> float:
    """Return how much of a reply counts that goes so many times as far as usual.

    It moves the sum by FAR; from ABSURD on, which few honest ones are, by less and less.
    """
    return min(1.0, FAR / times) * min(1.0, ABSURD / times) if times else 1.0


class _Steered:
    """What another total comes to, but for single numbers that a training goes on by."""

    def __init__(self, robust: Robust, key: Key, fields: Mapping[str, str], others: Total) -> None:
        self._robust = robust
        self._key = key
        self._fields = fields
        self._others = others
        self._said: dict[str, dict[str, tuple[int, float]]] = {field: {} for field in fields}

    def add(self, name: str, reply: Payload) -> None:
        for field, said in self._said.items():
            said[name] = reply["documents"], reply[field]
        self._others.add(name, reply)

    def total(self) -> dict[str, Any]:
        steer = self._robust.steering.sum
        found = {f: steer((*self._key, f), how, self._said[f]) for f, how in self._fields.items()}
        return self._others.total() | found


def _lengths(reply: Payload) -> dict[str, float]:
    """Return the length of each field's arrays, as of one vector; infinite where they are not."""
    squares = {name: sum(map(_square, _arrays(value))) for name, value in reply.items()}
    return {
        name: float(np.sqrt(square)) if np.isfinite(square) else np.inf
        for name, square in squares.items()
    }


def _square(array: NDArray[Any]) -> float:
    flat = array.ravel()
    return float(np.einsum("i,i->", flat, flat, dtype=np.float64))  # casts by blocks


def _scaled(value: Any, factor: float) -> Any:
    """Multiply all numbers but counts; what is infinite becomes nothing."""
    if isinstance(value, Mapping):
        return {name: _scaled(part, factor) for name, part in value.items()}
    if isinstance(value, Rows):
        return replace(value, values=_scaled(value.values, factor))
    if isinstance(value, float):
        return value * factor if factor else 0.0
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return value * value.dtype.type(factor) if factor else np.zeros_like(value)
    return value


class _Voted:
    """What most clients say that a document adds, times the number of documents.

    A client has one vote, however many documents it says that it has. All replies wait for the
    last one. Nothing in a total is beyond the template's bounds.
    """

    def __init__(self, vote: Callable[[Vectors], Vector], template: Template | None) -> None:
        self._vote = vote
        self._template = template or {}
        self._replies: list[Payload] = []

    def add(self, name: str, reply: Payload) -> None:
        self._replies.append(reply)

    def total(self) -> dict[str, Any]:
        added = RunningSum()
        for reply in self._replies:
            added.add(reply)
        total = added.total()
        voters = [reply for reply in self._replies if reply.get("documents", 0) > 0]
        for field, value in total.items() if len(voters) >= FEWEST else ():
            means = np.stack([_flat(voter[field], value) / voter["documents"] for voter in voters])
            if means.size:
                voted = iter(np.split(self._vote(means) * total["documents"], _ends(value)))
                total[field] = _limited(_filled(value, voted), self._template.get(field))
        return total


def _arrays(value: Any) -> Iterator[NDArray[Any]]:
    """Yield the arrays of a field that are not counts."""
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from _arrays(value[name])
    array = value.values if isinstance(value, Rows) else value
    if isinstance(array, np.ndarray) and array.dtype.kind == "f":
        yield array


def _flat(value: Any, total: Any) -> Vector:
    """Return a field's arrays as one vector, with all rows that the total has."""
    return np.concatenate([np.zeros(0), *map(np.ravel, _arrays(_like(value, total)))])


def _like(value: Any, total: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _like(value[name], total[name]) for name in value}
    if not isinstance(value, Rows):
        return value
    rows = np.zeros(total.values.shape)
    rows[np.searchsorted(total.index, value.index)] = value.values
    return rows


def _ends(value: Any) -> NDArray[np.int64]:
    return np.cumsum([array.size for array in _arrays(value)])


def _filled(value: Any, parts: Iterator[Vector]) -> Any:
    """Return a field with other numbers in its arrays."""
    if isinstance(value, Mapping):
        return {name: _filled(value[name], parts) for name in sorted(value)}
    if isinstance(value, Rows):
        return replace(value, values=_filled(value.values, parts))
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return next(parts).reshape(value.shape).astype(value.dtype)
    return value


def _limited(value: Any, template: Any) -> Any:
    """Bring numbers within the bounds of a template."""
    if isinstance(value, Mapping) and isinstance(template, Mapping):
        return {name: _limited(value[name], template.get(name)) for name in value}
    if not isinstance(template, Field):
        return value
    if isinstance(value, Rows):
        least, most = (
            np.broadcast_to(bound, (value.n_rows, *value.values.shape[1:]))[value.index]
            for bound in (template.least, template.most)
        )
        return replace(value, values=np.clip(value.values, least, most))
    return np.clip(value, template.least, template.most)


def trimmed_mean(vectors: Vectors) -> Vector:
    """Average each number without a fifth of the smallest and of the largest ones, at least one."""
    left_out = max(1, int(TRIMMED * len(vectors)))
    return np.asarray(np.sort(vectors, axis=0)[left_out : len(vectors) - left_out].mean(0))


def median(vectors: Vectors) -> Vector:
    """Return the median of each number."""
    return np.asarray(np.median(vectors, axis=0))


def centred_clip(vectors: Vectors) -> Vector:
    """Move from the median to the mean, each vector's part clipped to the median distance."""
    centre = median(vectors)
    for _ in range(STEPS):
        apart = vectors - centre
        distances = np.linalg.norm(apart, axis=1, keepdims=True)
        radius = np.median(distances)
        centre = centre + (apart * np.minimum(1, radius / np.maximum(distances, TINY))).mean(0)
    return centre


VOTES: Mapping[Rule, Callable[[Vectors], Vector]] = {
    "trimmed-mean": trimmed_mean,
    "median": median,
    "centred-clip": centred_clip,
}
