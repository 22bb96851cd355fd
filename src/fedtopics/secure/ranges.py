"""How large the numbers of a sum may be expected to be, by its last total, which all know.

Of numbers without a narrow bound many bits say nothing, from round to round the same. A client
whose numbers are further out says so before it sends any.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedtopics.methods.core.aggregation import Rows

MARGIN = 4.0  # of a client's numbers over those of the last totals
DECAY = 0.5  # a round, of what totals were before
LARGE = 1 << 15  # numbers of a field: of smaller ones bits are cheap


def key_of(name: str, shape: tuple[int, ...]) -> str:
    """Return what tells a field of a function's replies from its others."""
    return f"{name} {'x'.join(map(str, shape))}"


class Ranges:
    """What numbers are within, by function, field and shape; the same at all participants.

    It follows from checked totals alone. What it is goes with a checkpoint: `kept` is changed in
    place.
    """

    def __init__(self, kept: dict[str, float] | None = None) -> None:
        self._kept = {} if kept is None else kept
        self._unchecked: dict[str, float] = {}

    def of(self, function: str) -> dict[str, float]:
        """Return those of a function's replies, by field and shape."""
        start = f"{function} "
        return {n.removeprefix(start): r for n, r in self._kept.items() if n.startswith(start)}

    def note(self, function: str, total: Mapping[str, Any]) -> None:
        """Take the total of a sum, which may be false."""
        for name, value in total.items():
            if isinstance(value, Mapping):
                inside = {f"{name}.{inner}": each for inner, each in value.items()}
                self.note(function, inside)
                continue
            numbers = value.values if isinstance(value, Rows) else np.asarray(value)
            shape = (value.n_rows, *numbers.shape[1:]) if isinstance(value, Rows) else numbers.shape
            if numbers.dtype.kind == "f" and np.prod(shape) >= LARGE:
                most = float(max(numbers.max(initial=0), -numbers.min(initial=0)))
                self._unchecked[f"{function} {key_of(name, shape)}"] = MARGIN * most

    def checked(self) -> None:
        """Go by the totals that were noted: they are right."""
        for name, most in self._unchecked.items():
            if found := max(most, DECAY * self._kept.get(name, 0.0)):
                self._kept[name] = found
        self.forget_unchecked()

    def forget_unchecked(self) -> None:
        """Go by none of what was noted: nothing follows from it."""
        self._unchecked.clear()

    def forget(self) -> None:
        """Begin anew, as whoever takes over a state of others does."""
        self._kept.clear()
