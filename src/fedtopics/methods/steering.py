"""Single numbers that a training goes on by, of which no client decides alone what they come to."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.stop_rules import improves

Vector = NDArray[np.float64]
FAR = 3.0  # times the median client's number
FEWEST = 3  # clients, of which one can be told from the others
FEW = 0.2  # share of the clients, at least one, that do not decide against most
ALONE = 10  # gains in a row that are not most clients': what few have, few learn


class Steering:
    """Sums of such numbers, from round to round."""

    def __init__(self) -> None:
        self._records: dict[Hashable, _Record] = {}

    def sum(self, key: Hashable, steers: str, said: Mapping[str, tuple[int, float]]) -> float:
        """Return what the clients' numbers in an exchange, by a `key`, come to.

        `said` has each client's number of documents, and the number. A mean is at most three times
        the median client's, and at least a third. If it matters whether the sum is a `gain`, a
        client alone does not decide that, against most.
        """
        numbers = {name: x for name, (_, x) in said.items()}
        voices = {name: x / documents for name, (documents, x) in said.items() if documents > 0}
        if len(voices) < FEWEST:
            return sum(numbers.values())
        means = np.array([*voices.values()])
        least, most = sorted(float(np.median(means)) * far for far in (1 / FAR, FAR))
        kept = np.clip(means, least, most)
        changed = np.flatnonzero(kept != means)
        names = [*voices]
        numbers |= {names[i]: float(kept[i]) * said[names[i]][0] for i in changed}
        documents = np.array([said[name][0] for name in names])
        total = sum(numbers.values())
        if steers == "gain":
            record = self._records.setdefault(key, _Record())
            left_out = record.without(names, kept, documents / documents.sum())
            total -= left_out * float(documents.sum()) if left_out else 0.0
        return total


class _Record:
    """The best validation so far, and what each client said: then, and at its own best one."""

    def __init__(self) -> None:
        self.best = math.inf
        self.then: dict[str, float] = {}
        self.lowest: dict[str, float] = {}
        self.alone = 0  # gains in a row that are not most clients'

    def without(self, names: Sequence[str], means: Vector, weights: Vector) -> float:
        """Return what of a validation's mean does not count, and take it; 0 where all does.

        It is a gain if the mean is one. If half of the clients by themselves say the opposite, and
        a fifth of the clients, at least one, makes the difference, these count as they did at the
        best one: at once if they deny a gain, else after some gains that they have alone.
        """
        lowest = [self.lowest.get(name, math.inf) for name in names]
        gains = sum(map(improves, means.tolist(), lowest)) >= len(names) / 2
        before = np.array([self.then.get(n, x) for n, x in zip(names, means, strict=True)])
        mean, moved = float(weights @ means), weights * (means - before)
        gained = improves(mean, self.best)
        self.alone = 0 if gains else self.alone + gained
        first = np.argsort(moved if gained else -moved, kind="stable")
        first = first[: max(1, int(FEW * len(names)))]
        left_out, still = 0.0, first[:0]
        lets = gained == gains or 0 < self.alone <= ALONE
        for number in () if lets else range(1, len(first) + 1):
            part = float(moved[first[:number]].sum())
            if improves(mean - part, self.best) == gains:
                left_out, still = part, first[:number]
                break
        if improves(mean - left_out, self.best):
            counted = means.copy()
            counted[still] = before[still]
            self.best = mean - left_out
            self.then |= zip(names, counted.tolist(), strict=True)
        self.lowest |= zip(names, np.minimum(lowest, means).tolist(), strict=True)
        return left_out
