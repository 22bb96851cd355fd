"""What a method may rely on: clients to call and a run to keep its state in.

Engines give `Clients`; nothing in a method knows how calls travel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray


class Clients(Protocol):
    """All clients of a study, as a method's server half sees them."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the clients, sorted."""

    def call(self, function: str, **payload: Any) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name.

        For what the server must see one by one. Whatever is additive goes through `sum`.
        """

    def sum(self, function: str, **payload: Any) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""


@dataclass(frozen=True)
class Checkpoint:
    """A method's state after a round: named arrays, and a few numbers.

    Parameters
    ----------
    round : int
        The last round whose result the state holds.
    arrays : mapping of name to array
    numbers : mapping of name to int or float
    """

    round: int
    arrays: Mapping[str, NDArray[Any]]
    numbers: Mapping[str, float]


class Run(Protocol):
    """One execution of a study: its rounds, checkpoints and events."""

    def restore(self) -> Checkpoint | None:
        """Return the newest checkpoint when the run goes on after an interruption."""

    def rounds(self, done: int, last: int) -> Iterator[int]:
        """Count the rounds that are left."""

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round."""

    def checkpoint(self, state: Checkpoint) -> None:
        """Keep a state."""

    def event(self, kind: str, **fields: Any) -> None:
        """Write down what happened."""
