"""What a method may rely on: clients to call and a run to keep its state in.

Engines give `Clients`; nothing in a method knows how calls travel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.aggregation import Template
from fedtopics.methods.events import Event, RoundReport
from fedtopics.model.topic_model import TopicModel

T = TypeVar("T")
DRAW = 0x64726177  # keeps these draws apart from other uses of the seed


@dataclass(frozen=True)
class Draw:
    """Which clients work a training round: all, or so many, drawn anew for each round.

    Parameters
    ----------
    size : int or None
        None: all.
    seed : int
        The study's.
    """

    size: int | None
    seed: int

    def members(self, round_: int, names: Sequence[str], there: Collection[str]) -> list[str]:
        """Return who works a round; who is not there is replaced by the next one drawn."""
        drawn = [name for name in self._order(round_, names) if name in there]
        return sorted(drawn[: self.size])

    def share(self, n_clients: int) -> float:
        """Return which share of the clients works a round."""
        return 1.0 if self.size is None else min(1.0, self.size / n_clients)

    def _order(self, round_: int, names: Sequence[str]) -> list[str]:
        ordered = sorted(names)
        if self.size is None:
            return ordered
        rng = np.random.default_rng([self.seed, DRAW, round_])
        return [ordered[i] for i in rng.permutation(len(ordered))]


EVERYONE = Draw(None, 0)


class Clients(Protocol):
    """All clients of a study, as a method's server half sees them.

    Engines leave out clients that fail, are late or are away, as long as enough of them are left;
    a method only has to say in `round` which exchanges belong together.
    """

    @property
    def names(self) -> Sequence[str]:
        """Names of the study's clients, sorted."""

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name.

        For what the server must see one by one. Whatever is additive goes through `sum`.

        Parameters
        ----------
        function : str
            One that the client's half publishes.
        template : template, optional
            What every reply must look like; one that does not is refused.
        **payload
            Plain data.
        """

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""

    def prepare(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """As `sum`; and repeat the call first thing to each client that starts anew later."""

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients.

        A client that is lost between two exchanges leaves sums that belong to no common state:
        the round is then worked again from its first exchange, without that client.

        Parameters
        ----------
        number : int
        work : function
            Makes the exchanges. It is called again when it has to be repeated, so it changes
            nothing that outlives it.
        draw : Draw, optional
            By whom; by default by all.

        Returns
        -------
        result : what `work` returned
        report : RoundReport
            Whose replies counted, whose did not and why.
        """


class ServerHalf(Protocol):
    """What a server executes of a method."""

    def train(self, clients: Clients, run: Run) -> TopicModel:
        """Do the rounds; return the model."""


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

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep what was agreed once, as JSON."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """Return what was kept when the run goes on after an interruption."""

    def rounds(self, done: int, last: int) -> Iterator[int]:
        """Count the rounds that are left."""

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round."""

    def checkpoint(self, state: Checkpoint) -> None:
        """Keep a state."""

    def event(self, event: Event) -> None:
        """Write down what happened."""
