"""Interfaces between a method, its clients and the run, which hide how calls travel."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.events import Event, RoundReport
from fedtopics.contract.payload import digest_of
from fedtopics.contract.replies import Template

T = TypeVar("T")
DRAW = 0x64726177  # keeps these random choices apart from other uses of the seed


@dataclass(frozen=True, order=True)
class Position:
    """The position of an exchange in a run; it increases with each exchange of a client."""

    turn: int = 0  # number of `Clients.round` in the run, from 1, the same at all participants
    attempt: int = 1  # number of the attempt at that turn
    exchange: int = 1  # number of the exchange within that attempt


@dataclass(frozen=True)
class Draw:
    """Which clients take part in a training round: all (size None), or a random sample of them.

    The first `skipped` clients of the sample come last, so they are left out if enough others
    remain.
    """

    size: int | None
    seed: int
    skipped: int = 0

    def members(self, round_: int, names: Sequence[str], present: Collection[str]) -> list[str]:
        """Return the clients of a round; an absent client is replaced by the next one sampled."""
        order = sorted(names)
        if self.size is not None:
            rng = np.random.default_rng([self.seed, DRAW, round_])
            order = [order[i] for i in rng.permutation(len(order))]
        candidates = [name for name in order if name in present]
        first = self.skipped % max(len(candidates), 1)
        return sorted([*candidates[first:], *candidates[:first]][: self.size])

    def fraction_drawn(self, n_clients: int) -> float:
        """Return the fraction of clients that take part in a round."""
        return 1.0 if self.size is None else min(1.0, self.size / n_clients)


EVERYONE = Draw(size=None, seed=0)


@dataclass(frozen=True)
class Call:
    """A call of a client's function."""

    function: str
    payload: Mapping[str, Any]
    position: Position
    follows: str = ""  # digest of all earlier steps, if any: then the payload is not hashed
    hidden: bool = False  # whether the reply is seen only in a sum

    @cached_property
    def digest(self) -> str:
        return self.follows or digest_of(self.payload)


class CallableClient(Protocol):
    def call(self, call: Call) -> dict[str, Any]:
        """Execute a published function; return the data that the client may send."""

    def repeat(self, call: Call) -> dict[str, Any]:
        """Execute a function for its effect on the client's state; its reply is dropped."""


class Clients(Protocol):
    """All clients of a study, as a method's program sees them.

    Engines leave out clients that fail, are late or are absent, as long as enough remain. A method
    only has to mark with `round` which exchanges belong together.
    """

    @property
    def names(self) -> Sequence[str]:
        """The names of all clients, sorted."""

    @property
    def hidden(self) -> bool:
        """Whether secure aggregation hides the replies in sums."""

    @property
    def apart(self) -> bool:
        """Whether clients are on different machines."""

    def call(self, function: str, template: Template, **payload: Any) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name.

        All participants see each reply; use `sum` for results that can be added. A reply that does
        not match the template is refused.
        """

    def sum(self, function: str, template: Template, **payload: Any) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""

    def tell(self, function: str, **payload: Any) -> None:
        """Make each client execute a function without a reply; a resumed run repeats the call."""

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Run the exchanges of a round, all of them with the same clients.

        `work` makes the exchanges. If a client is lost between two of them, `work` is repeated
        without that client, so it must not have side effects. Returns its result and the round's
        report.
        """


@dataclass(eq=False)
class AgainError(Exception):
    """Raised at all participants to repeat a round `without` some clients, with reasons by name."""

    without: Mapping[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A method's state after a round: named arrays, and a few numbers."""

    round: int
    arrays: dict[str, NDArray[Any]]
    numbers: Mapping[str, float]


class Run(Protocol):
    """One execution of a study: its rounds, checkpoints and events."""

    def restore(self) -> Checkpoint | None:
        """Return the newest checkpoint of an interrupted run that is resumed."""

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Store a result of the agreement, as JSON."""

    def publish(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file for people and programs to read, as JSON."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """In a resumed run, return the content that `keep` stored."""

    def rounds(self, done: int, last: int) -> Iterator[int]:
        """Yield the numbers of the remaining rounds."""

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round."""

    def checkpoint(self, state: Checkpoint) -> bool:
        """Store a state; return whether it was written."""

    def event(self, event: Event) -> None:
        """Record an event, and pass it on to those that follow the run."""


class SharedFunctions:
    """Base class of published functions that several methods share, with their state."""

    def __init__(self, client: Any) -> None:
        self.client = client  # a `TopicClient`

    def forget(self) -> None:
        """Start a new study: earlier replies belonged to another one."""
