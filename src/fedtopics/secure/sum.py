"""Masked sums: whoever adds learns what replies add up to, and nothing of one of them.

A masked sum is a few exchanges of an engine, which knows nothing of it, as methods do. Where a
client draws new documents at each attempt, its reply is hidden by masks that it shares with each
other client and that cancel out in the sum; if a client is lost the round is worked again. Where
the documents would be the same, a reply has a mask of its own besides, which its client tells when
all have signed who is in the sum: who is lost meanwhile costs nothing, and no reply is added up a
second time without another one. After Bonawitz and others, Practical Secure Aggregation for
Privacy-Preserving Machine Learning, CCS 2017; that each total is the sum of what was sent is
checked by all participants before anything follows from it. See docs/secure-aggregation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from fedtopics.errors import FederationError
from fedtopics.methods.aggregation import SharedPayload
from fedtopics.methods.base import EVERYONE, AgainError, Checkpoint, Draw, Gathering, T
from fedtopics.methods.events import Event, Roster, RoundReport, Voided
from fedtopics.methods.replies import Announced, Template, find_fault
from fedtopics.secure import said
from fedtopics.secure.field import Residues
from fedtopics.secure.fixed import FINE, FRACTION, Layout
from fedtopics.secure.keys import LENGTH, roster_digest
from fedtopics.secure.opening import SEALED, SHARE, Opening
from fedtopics.secure.said import FEWEST, Answer, Masked, Total, context_of
from fedtopics.secure.shares import SECRET, threshold
from fedtopics.secure.words import Limits, WordSum, word_counts

VOIDS = 3  # totals that cannot be, of one round, until the study ends


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
    """

    def __init__(
        self, engine: Gathering, drawn: Mapping[str, int],
        notify: Callable[[Event], None] = lambda event: None, limits: Limits | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._notify = notify
        self._known: dict[str, bytes] = {}  # keys that were told to people
        self._drawn = drawn
        self._in_round = False
        self._unchecked: Total | None = None
        self._counted: list[str] | None = None  # who is in this attempt's sums
        self._sums = 0  # in this attempt
        self._opened: dict[tuple[int, str], dict[str, Any]] = {}  # totals of this round, by place
        self._voids = 0  # in this round
        self._number = 0  # of the round
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
        self._check()  # what leaves may follow from the last total
        return self._engine.call(function, template, **payload)

    def tell(self, function: str, **payload: Any) -> None:
        """Let each client's half execute a function."""
        self._engine.tell(function, **payload)

    def settle(self, round_: int, state: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """Hold the state after a round against that of the others."""
        return self._engine.settle(round_, state)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients."""

        def checked() -> T:
            self._in_round, self._unchecked, self._counted, self._sums = True, None, None, 0
            try:
                found = work()
                self._check()
                return found
            finally:
                self._in_round = False

        self._voids, self._number, self._opened = 0, number, {}
        self._words = None if self._limits is None else WordSum(
            self._engine, self._limits, self._ask, self._add_up, self._keys, self._void,
            self._notify,
        )  # fmt: skip
        return self._engine.round(number, checked, draw)

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, of which none is seen."""
        if not self._in_round:
            number = int(payload.get("round", 0))
            return self.round(number, lambda: self.sum(function, template, **payload))[0]
        if template and self._words is not None and word_counts(template):
            self._check()
            words = self._words.sum(function, template, payload)
            if fault := find_fault(words, template, self._engine.names):
                self._void(function, fault)
            return words
        # What was opened over some clients is not opened over others: where the round is worked
        # again without one of them, that total stays.
        self._sums += 1
        place = self._sums, function
        if place in self._opened:
            return self._opened[place]
        if self._counted not in (None, self._members()):
            raise AgainError
        anew = self._draws_anew(function, template)
        found = self._add_up(function, payload, template or {})
        if not anew:
            self._opened[place] = found
        return found

    def _add_up(
        self, function: str, payload: Mapping[str, Any], template: Template
    ) -> dict[str, Any]:
        """Add up; give up an attempt whose total cannot be."""
        asked = {"called": function, "payload": SharedPayload(payload)}
        add = self._sum_drawn if self._draws_anew(function, template) else self._sum_whole
        total, self._counted, layout = add(asked, template)
        found = layout.decode(total, len(self._counted))
        if fault := find_fault(found, template, self._counted):
            self._void(function, fault)
        return found

    def _draws_anew(self, function: str, template: Template | None) -> bool:
        """Whether all clients' replies are others at each attempt."""
        announced = (template or {}).get("documents")
        sizes = announced.sizes if isinstance(announced, Announced) else {}
        fewest = min(sizes.get(name, 0) for name in self._members())
        return function in self._drawn and fewest > self._drawn[function]

    def _members(self, least: int = FEWEST) -> list[str]:
        """Return who is in the round; stop where who adds leaves out too many of them."""
        members = list(self._engine.members)
        if len(members) < least:
            raise FederationError(
                f"A masked sum needs {least} clients here, and {len(members)} are left: in sums of "
                "fewer, replies could be read. Wait for more, or set secure = false in the study."
            )
        return members

    def _void(self, function: str, fault: str) -> None:
        """Give up an attempt whose total cannot be: nothing follows from it, unless it is a lie."""
        self._check()
        self._voids += 1
        self._notify(Voided(self._number, fault))
        if self._voids == VOIDS:
            raise self._engine.disagreement(
                f"the sum of {function!r} was void {VOIDS} times ({fault}); a client says what is "
                "false, and masks hide which"
            )
        raise AgainError

    # Documents that are drawn anew: masks of pairs

    def _sum_drawn(
        self, asked: Mapping[str, Any], template: Template
    ) -> tuple[Residues, list[str], Layout]:
        members, known, fraction = None, False, FINE
        while members != self._engine.members:  # who is lost before anything has left is left out
            members = self._members()
            layout = Layout.of(template, members, fraction)
            context = context_of(self._engine.moment, asked["called"], members)
            sizes = {"digest": LENGTH, "fits": 1}
            answers = self._ask(
                said.COMMITTED, context, sizes, self._unchecked,
                **asked, known=known, members=members, keys=self._keys(members), layout=layout,
            )  # fmt: skip
            self._take_products(answers)
            known = True
            if fraction == FINE and not said.all_fit(answers):
                members, fraction = None, FRACTION  # all commit to coarser numbers
        digests = {name: answers[name]["digest"] for name in members}
        field = Masked(self._engine.fits, context, layout.size, digests)
        found = self._engine.sum(said.ADDED, {"masked": field}, context=context)["masked"]
        self._unchecked = Total(context, found["values"], digests, field.kept)
        return found["values"], members, layout

    def _check(self) -> None:
        """Check what was not checked along with a later sum."""
        if self._unchecked is not None:
            self._take_products(
                self._ask(said.CHECKED, self._unchecked.context, {}, self._unchecked)
            )

    def _take_products(self, answers: Mapping[str, Mapping[str, bytes]]) -> None:
        total, self._unchecked = self._unchecked, None
        if total is None:
            return
        if not total.is_sum({name: answers[name]["product"] for name in total.digests}):
            raise self._engine.disagreement("a total is not the sum of what the clients sent")

    # The same documents at each attempt: a mask of one's own besides

    def _sum_whole(
        self, asked: Mapping[str, Any], template: Template
    ) -> tuple[Residues, list[str], Layout]:
        self._check()
        members = self._members()
        context = context_of(self._engine.moment, asked["called"], members)
        sizes = {"key": LENGTH, "own": LENGTH, "shares": SEALED * len(members), "fits": 1}
        prepared = self._ask(
            said.PREPARED, context, sizes, **asked, members=members, keys=self._keys(members),
            layout=Layout.of(template, members, FINE), number=self._sums,
        )  # fmt: skip
        least = max(threshold(len(members)), FEWEST)
        there = list(self._engine.members)
        if len(there) < least:  # of whom so many would have to be left: now fewer are enough
            raise AgainError
        layout = Layout.of(template, there, FINE if said.all_fit(prepared) else FRACTION)
        field = Masked(self._engine.fits, context, layout.size, least=least)
        found = self._engine.sum(
            said.ADDED, {"masked": field}, context=context, there=there, prepared=prepared,
            layout=layout,
        )["masked"]  # fmt: skip
        counted = self._members(least)
        digests = {name: found["said"][name]["digest"] for name in counted}
        self._unchecked = Total(context, found["values"], digests, field.kept)
        self._take_products(self._ask(said.AGREED, context, {}, self._unchecked))
        opening = Opening(context, members, there, counted, prepared)
        self._open(opening, least, asked["called"])
        return opening.unmasked(found["values"]), counted, layout

    def _open(self, opening: Opening, least: int, function: str) -> None:
        """Learn the masks of who is in a sum, and those that they shared with who is not."""

        def recover(names: Sequence[str], answers: Mapping[str, Mapping[str, bytes]]) -> None:
            try:
                opening.recover(names, {name: said["shares"] for name, said in answers.items()})
            except FederationError as error:
                self._void(function, str(error))

        ask = partial(self._ask, context=opening.context, least=least, opening=opening)
        lost = opening.lost
        opened = ask(said.OPENED, sizes={"own": SECRET, "shares": SHARE * len(lost)})
        opening.take_own({name: answer["own"] for name, answer in opened.items()})
        recover(lost, opened)
        if silent := opening.silent:
            recover(silent, ask(said.RECOVERED, sizes={"shares": SHARE * len(silent)}))

    def _ask(
        self, stage: str, context: bytes, sizes: Mapping[str, int | Collection[int]],
        of: Total | None = None, least: int = 0, **payload: Any,
    ) -> dict[str, dict[str, bytes]]:  # fmt: skip
        """Ask each client for a signed answer; with a total, for its product as well."""
        products = {"product": said.PRODUCT} if of is not None else {}
        field = Answer(self._engine.fits, stage, context, {**sizes, **products}, of, least)
        seed = of.seed if of is not None else b""
        answers = self._engine.call(stage, {"said": field}, context=context, seed=seed, **payload)
        return {name: said.parts_of(answer["said"]) for name, answer in answers.items()}

    def _keys(self, members: Sequence[str]) -> dict[str, bytes]:
        keys = {name: self._engine.key_of(name) for name in members}
        if lacking := [name for name, key in keys.items() if not key]:
            raise self._engine.disagreement(f"{lacking[0]!r} shows no key for its masks")
        if keys.items() - self._known.items():
            self._known |= keys
            self._notify(Roster(sorted(self._known), roster_digest(self._known)))
        return keys
