"""Masked sums: whoever adds learns what replies add up to, and nothing of one of them.

A masked sum is a few exchanges of an engine, which knows nothing of it, as methods do. Where a
client draws new documents at each attempt, its reply is hidden by masks that it shares with each
other client and that cancel out in the sum; if a client is lost the round is worked again. Where
the documents would be the same, a reply has a mask of its own besides, which its client tells when
all have signed who is in the sum: who is lost meanwhile costs nothing, and no reply is added up a
second time without another one. After Bonawitz and others, Practical Secure Aggregation for
Privacy-Preserving Machine Learning, CCS 2017; that each total is the sum of what was sent is
checked by all participants before anything follows from it. A round whose total cannot be is
repeated twice; then the study ends. See docs/secure-aggregation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from fedtopics.engines.states import EVERY
from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import SharedPayload
from fedtopics.methods.core.events import Event, RoundReport, Voided
from fedtopics.methods.core.interfaces import EVERYONE, AgainError, Checkpoint, Draw, Gathering, T
from fedtopics.methods.core.replies import Announced, Template, find_fault
from fedtopics.secure.adding import CountAgainError, Found, Sums
from fedtopics.secure.ranges import Ranges
from fedtopics.secure.said import FEWEST
from fedtopics.secure.words import Limits, WordSum, word_counts

RECOUNTS = (
    3  # of groups of documents in a round, until each client leaves out small ones of its own
)
VOIDS = 3  # totals of one round that cannot be, until the study ends
Place = tuple[int, str]  # which sum of a round, and of what


class SecureClients:
    """`Clients` whose sums are masked, over an engine.

    Parameters
    ----------
    engine : Gathering
    drawn : mapping
        Functions whose replies are others at each attempt at a round, where all clients have more
        documents than this; -1: always.
    notify : function, optional
        Gets what people should know.
    limits : Limits, optional
        Of the vocabulary, where clients agree on one.
    ranges : dict, optional
        What a checkpoint has of those of numbers; it is changed in place.
    """

    hidden = True

    def __init__(
        self, engine: Gathering, drawn: Mapping[str, int],
        notify: Callable[[Event], None] = lambda event: None, limits: Limits | None = None,
        ranges: dict[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._notify = notify
        self._drawn = drawn
        self._in_round = False
        self._ranges = Ranges(ranges)
        self._sum = Sums(engine, notify, self._ranges)
        self._counted: list[str] | None = None  # who is in this attempt's sums
        self._sums = 0  # in this attempt
        self._number = 0  # of the round, as all that follows
        # Totals, and over whom, by place; over whom the last one is.
        self._opened: dict[Place, tuple[dict[str, Any], list[str]]] = {}
        self._over: list[str] = []
        self._recounts = 0  # in this round
        self._voids = 0  # totals of this round that cannot be
        self._voided: set[Place] = set()  # of these, those of the same documents
        self._limits = limits
        self._words: WordSum | None = None  # of the round

    @property
    def names(self) -> Sequence[str]:
        """Names of the study's clients, sorted."""
        return self._engine.names

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; all see each reply."""
        self._sum.check()  # what leaves may follow from the last total
        return self._engine.call(function, template, **payload)

    def tell(self, function: str, **payload: Any) -> None:
        """Let each client's half execute a function."""
        self._engine.tell(function, **payload)

    def settle(self, round_: int, state: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """Hold the state after a round against that of the others."""
        if round_ % EVERY == 0:  # a state of all is no place for what follows from totals
            self._ranges.forget()
        return self._engine.settle(round_, state)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients."""

        def checked() -> T:
            self._in_round, self._counted, self._sums = True, None, 0
            self._sum.begin()
            try:
                found = work()
                self._sum.check()
                return found
            finally:
                self._in_round = False

        self._recounts = 0
        while True:
            self._begin(number)
            try:
                return self._engine.round(number, checked, draw)
            except CountAgainError:
                self._recounts += 1

    def _begin(self, number: int) -> None:
        self._number, self._opened = number, {}
        self._voids, self._voided = 0, set()
        self._words = None if self._limits is None else WordSum(
            self._engine, self._limits, self._sum.ask, self._add_up, self._sum.keys, self._void,
            self._notify,
        )  # fmt: skip

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, of which none is seen."""
        if not self._in_round:
            number = int(payload.get("round", 0))
            return self.round(number, lambda: self.sum(function, template, **payload))[0]
        if template and self._words is not None and word_counts(template):
            self._sum.check()
            words = self._words.sum(function, template, payload)
            if fault := find_fault(words, template, self._engine.names):
                self._void(function, fault)
            return words
        self._sums += 1
        if (place := (self._sums, function)) in self._opened:
            found, self._over = self._opened[place]
            return found
        if self._counted not in (None, self._sum.members()):
            raise AgainError
        return self._add_up(function, payload, template or {})

    def _add_up(
        self, function: str, payload: Mapping[str, Any], template: Template,
        fault_of: Callable[[Any, Template, Sequence[str]], str] = find_fault,
    ) -> dict[str, Any]:  # fmt: skip
        """Add up; give up an attempt whose totals cannot be."""
        # What was opened over some clients is not opened over others: where the round is worked
        # again without one of them, that total stays.
        place = self._sums, function
        if place in self._opened:
            found, self._over = self._opened[place]
            return found
        anew = self._draws_anew(function, template)
        if anew:
            asked = {"called": function, "payload": SharedPayload(payload)}
            total, members, layout, documents = self._sum.drawn(asked, template)
        else:
            total, members, layout, documents = self._whole(place, payload, template)
        self._counted = members
        found = {} if isinstance(total, str) else layout.decode(total, len(members))
        fault = total if isinstance(total, str) else fault_of(found, template, members)
        if not fault and found.get("documents", documents) != documents:
            fault = f"it is said to be over {documents:,} documents, and is not"
        if fault:
            if not anew:
                self._voided.add(place)
            self._void(function, fault)
        if anew:
            self._ranges.note(function, found)
        else:
            self._opened[place], self._over = (found, members), members
        return found

    def _whole(self, place: Place, payload: Mapping[str, Any], template: Template) -> Found:
        """Add up replies of the same documents."""
        # A client that is lost behind each count would have them counted for ever.
        by_own = self._recounts == RECOUNTS
        counted = "counted" in payload.get("groups", ()) and not by_own
        # What was opened of a void total is opened over the same clients, or not at all.
        over = self._over if counted and place not in self._voided else None
        told = SharedPayload(_by_own(payload) if by_own else payload)
        return self._sum.whole({"called": place[1], "payload": told}, template, place[0], over)

    def _draws_anew(self, function: str, template: Template | None) -> bool:
        """Whether all clients' replies are others at each attempt."""
        announced = (template or {}).get("documents")
        sizes = announced.sizes if isinstance(announced, Announced) else {}
        fewest = min(sizes.get(name, 0) for name in self._sum.members())
        return function in self._drawn and fewest > self._drawn[function]

    def _void(self, function: str, fault: str, apart: Sequence[str] = ()) -> NoReturn:
        """Give up an attempt whose total cannot be: nothing follows from it, unless it is a lie.

        `apart` are clients that say something else than most, who may be told what is false.
        """
        self._sum.check()
        self._notify(Voided(self._number, fault))
        self._voids += 1
        if self._voids < VOIDS:
            raise AgainError
        if apart and self._is_enough(apart):
            self._voids = 0
            why = f"one of these says what is false: {', '.join(apart)}"
            raise AgainError(dict.fromkeys(apart, why))
        raise FederationError(
            f"Round {self._number}: the sum of {function!r} was void {self._voids} times "
            f"({fault}). A client sends what is false, and masks hide which; look into what each "
            "client runs. Nothing follows from these sums."
        )

    def _is_enough(self, without: Sequence[str]) -> bool:
        """Whether most clients of the attempt are left, and enough of them for a sum."""
        members = self._engine.members
        left = len(members) - len({*without} & {*members})
        return left >= FEWEST and 2 * left > len(members)


def _by_own(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask clients to leave out small groups by their own documents, as without masks."""
    groups = payload.get("groups")
    return {**payload, "groups": {**groups, "least": 0}} if groups else payload
