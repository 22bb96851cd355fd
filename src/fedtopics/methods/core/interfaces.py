"""What a method gets (clients to call, a run that stores its state), and what it may send.

Nothing in a method knows how calls travel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.methods.core.aggregation import digest_of
from fedtopics.methods.core.events import Event, RoundReport
from fedtopics.methods.core.replies import Template

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., dict[str, Any]])
DRAW = 0x64726177  # keeps these draws apart from other uses of the seed


@dataclass(frozen=True, order=True)
class Position:
    """The position of an exchange in a run, which grows with each exchange of a client."""

    turn: int = 0  # of `Clients.round`, counted from 1 in the run, the same at all participants
    attempt: int = 1  # at that turn
    exchange: int = 1  # of that attempt


@dataclass(frozen=True)
class Draw:
    """Which clients take part in a training round: all (size None), or a random sample of them.

    So many of the sampled clients are `skipped`; clients in `without` take part in no round.
    """

    size: int | None
    seed: int
    skipped: int = 0
    without: frozenset[str] = frozenset()

    def members(self, round_: int, names: Sequence[str], present: Collection[str]) -> list[str]:
        """Return the clients of a round; an absent one is replaced by the next one drawn."""
        order = sorted(names)
        if self.size is not None:
            rng = np.random.default_rng([self.seed, DRAW, round_])
            order = [order[i] for i in rng.permutation(len(order))]
        there = set(present) - self.without
        drawn = [name for name in order if name in there]
        first = self.skipped % max(len(drawn), 1)
        return sorted([*drawn[first:], *drawn[:first]][: self.size])

    def share(self, n_clients: int) -> float:
        """Return the share of the clients that take part in a round."""
        return 1.0 if self.size is None else min(1.0, self.size / n_clients)


EVERYONE = Draw(None, 0)


@dataclass(frozen=True)
class Call:
    """A function of a client that its program calls.

    `follows` is a digest of the inputs that determine the payload; where it is given, the payload
    itself is not hashed. Of a call that is `hidden`, others see only a total.
    """

    function: str
    payload: Mapping[str, Any]
    position: Position
    follows: str = ""
    hidden: bool = False

    @cached_property
    def digest(self) -> str:
        """Digest by which the same call is recognised."""
        return self.follows or digest_of(self.payload)


class Door(Protocol):
    """The only exit of a client."""

    def call(self, call: Call) -> dict[str, Any]:
        """Execute a published function, return what may leave."""

    def repeat(self, call: Call) -> dict[str, Any]:
        """Execute a function for the state that it leaves in the client; its reply is dropped."""


class Clients(Protocol):
    """All clients of a study, as a method's program sees them.

    Engines leave out clients that fail, are late or are away, as long as enough of them are left;
    a method only has to say in `round` which exchanges belong together.
    """

    @property
    def names(self) -> Sequence[str]:
        """Names of the study's clients, sorted."""

    @property
    def hidden(self) -> bool:
        """Whether replies that are summed are masked, so that nobody sees one."""

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function that every client publishes; return each one's reply by name.

        The exception, as all participants see each reply: what is additive goes through `sum`.
        Payloads are plain data; a reply that does not look like the template is refused.
        """

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""

    def tell(self, function: str, **payload: Any) -> None:
        """Let each client execute a function; nothing leaves, there is no reply.

        For what clients need to know, such as the agreed words. In a resumed run it is done again.
        """

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients.

        `work` makes the exchanges. If a client is lost between two of them, it is called again
        without that client, as all sums of a round are over the same clients; so `work` must have
        no side effects. Returns its result, and who took part, and why others did not.
        """


class AgainError(Exception):
    """All participants raise it to repeat a round `without` some clients, for reasons by name."""

    def __init__(self, without: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.without = without or {}


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
        """Store what was agreed once, as JSON."""

    def publish(self, name: str, content: Mapping[str, Any]) -> None:
        """Write something for people and programs to read, as JSON."""

    def recall(self, name: str) -> dict[str, Any] | None:
        """Return what `keep` stored, in a run that is resumed."""

    def rounds(self, done: int, last: int) -> Iterator[int]:
        """Return the numbers of the rounds that are left."""

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round."""

    def checkpoint(self, state: Checkpoint) -> bool:
        """Store a state; return whether it was written."""

    def event(self, event: Event) -> None:
        """Record what happened."""


def leaves(
    what: str, seen_by_all: bool = False, noise: bool | None = None
) -> Callable[[Function], Function]:
    """Publish a function of a client: its replies may leave, if the schedule has it.

    `what` says for people what leaves the client with a reply. Some are `seen_by_all`, one by one,
    as they are no part of a sum. Where `noise` is not None, documents are others at each attempt at
    a round, and so are replies if it is True.
    """

    def publish(function: Function) -> Function:
        function.leaves = what  # type: ignore[attr-defined]
        function.seen_by_all = seen_by_all  # type: ignore[attr-defined]
        function.noise = noise  # type: ignore[attr-defined]
        return function

    return publish


class Exchanges:
    """Published functions that the clients of several methods have, and what these remember."""

    def __init__(self, client: Any) -> None:
        self.client = client  # a `TopicClient`

    def forget(self) -> None:
        """Start a new study: earlier replies belonged to another one."""
