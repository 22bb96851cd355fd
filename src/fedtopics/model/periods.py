"""Topics by period, as a federation has summed them: what a model says of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOGETHER = ""  # of all clients together, where none is told by itself
Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Periods:
    """The documents' topics in each period: theta, summed over the documents.

    Attributes
    ----------
    unit : str
        "month", say.
    begins : tuple of str
        When each period begins, as 2026-03-01, in their order.
    sums : mapping of str to float64 array of shape (n_periods, n_topics)
        By client; or of all together, under "", where none is told by itself. A row adds up to the
        period's number of documents. Of a period with too few of them it is zero.
    """

    unit: str
    begins: tuple[str, ...]
    sums: Mapping[str, Sums]

    @property
    def total(self) -> Sums:
        """The sums of all clients."""
        return np.asarray(sum(self.sums.values(), np.zeros(())))

    @property
    def shares(self) -> dict[str, Sums]:
        """Shares of the topics in each period, by client and under "" of all; NaN where none is."""
        found = {}
        for client, sums in {**self.sums, TOGETHER: self.total}.items():
            documents = sums.sum(1, keepdims=True)
            rows = np.full(sums.shape, np.nan)
            found[client] = np.divide(sums, documents, out=rows, where=documents > 0)
        return found

    def of_topics(self, change: Callable[[Sums], Sums]) -> Periods:
        """Return those of other topics: `change` takes and gives arrays of a row a topic."""
        return replace(self, sums={name: change(sums.T).T for name, sums in self.sums.items()})

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row a period and topic, as `TopicModel.topics_over_time` has them."""
        for place, (begin, sums) in enumerate(zip(self.begins, self.total, strict=True)):
            documents = float(sums.sum())
            there = sum(bool(each[place].any()) for each in self.sums.values())
            clients = None if TOGETHER in self.sums else there  # nobody knows then
            whole = {"documents": round(documents), "clients": clients}
            for topic, count in enumerate(sums.tolist() if documents else ()):
                row = {"period": date.fromisoformat(begin), "topic": topic}
                yield row | {"share": count / documents, "count": count} | whole

    def plain(self) -> dict[str, Any]:
        """Return it as lists."""
        sums = {name: array.tolist() for name, array in self.sums.items()}
        return {"unit": self.unit, "begins": list(self.begins), "sums": sums}

    @classmethod
    def of(
        cls, plain: Mapping[str, Any] | None, n_topics: int, clients: Mapping[str, Any]
    ) -> Periods | None:
        """Make it of what `plain` returned; ValueError if it is none of these topics, clients."""
        if plain is None:
            return None
        begins = tuple(plain["begins"])
        sums = {name: np.array(rows, np.float64) for name, rows in plain["sums"].items()}
        days = [date.fromisoformat(begin) for begin in begins]
        whole = all(
            array.shape == (len(begins), n_topics) and np.isfinite(array).all() and array.min() >= 0
            for array in sums.values()
        )
        if (
            not days
            or days != sorted(set(days))
            or not whole
            or not sums.keys() <= {*clients, TOGETHER}
        ):
            raise ValueError
        return cls(plain["unit"], begins, sums)
