"""One masked sum after the other: what is asked, and how it is opened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fedtopics.errors import FederationError
from fedtopics.methods.core.events import Event, Roster
from fedtopics.methods.core.interfaces import AgainError, Gathering
from fedtopics.methods.core.replies import Template
from fedtopics.secure import said
from fedtopics.secure.field import Residues
from fedtopics.secure.fixed import FINE, FRACTION, Layout
from fedtopics.secure.keys import LENGTH, roster_digest
from fedtopics.secure.opening import SEALED, SHARE, Opening
from fedtopics.secure.ranges import Ranges
from fedtopics.secure.said import FEWEST, Answer, Masked, Total, context_of
from fedtopics.secure.shares import SECRET, threshold

Found = tuple[Residues | str, list[str], Layout, int]
"""A total, or why there is none; who is in it, its layout, and over how many documents it is."""


class CountAgainError(Exception):
    """Groups of documents were counted over others than are there for their sum.

    All participants raise it at the same place. Over those that are left they are counted in
    another turn, as in this one no client counts again.
    """


class Sums:
    """Masked sums over an engine.

    Parameters
    ----------
    engine : Gathering
    notify : function
        Gets what people should know.
    ranges : Ranges
        Of numbers, by the totals that were checked.
    """

    def __init__(self, engine: Gathering, notify: Callable[[Event], None], ranges: Ranges) -> None:
        self._engine = engine
        self._notify = notify
        self._ranges = ranges
        self._known: dict[str, bytes] = {}  # keys that were told to people
        self._unchecked: Total | None = None

    def begin(self) -> None:
        """Forget what an attempt before this one has left unchecked: nothing follows from it."""
        self._unchecked = None
        self._ranges.forget_unchecked()

    def members(self, least: int = FEWEST) -> list[str]:
        """Return who is in the round; stop where who adds leaves out too many of them."""
        members = list(self._engine.members)
        if len(members) < least:
            raise FederationError(
                f"A masked sum needs {least} clients here, and {len(members)} are left: in sums of "
                "fewer, replies could be read. Wait for more, or set secure = false in the study."
            )
        return members

    # Documents that are drawn anew: masks of pairs

    def drawn(self, asked: Mapping[str, Any], template: Template) -> Found:
        """Return the sum of replies that are others at each attempt."""
        members: list[str] = []
        known, fraction = False, FINE
        ranges = self._ranges.of(asked["called"])
        while members != self._engine.members:  # who is lost before anything has left is left out
            members = self.members()
            layout = Layout.of(template, members, fraction, ranges)
            context = context_of(self._engine.moment, asked["called"], members)
            sizes = {"digest": LENGTH, "fits": 1, "documents": said.COUNT}
            answers = self.ask(
                said.COMMITTED, context, sizes, self._unchecked,
                **asked, known=known, keys=self.keys(members), layout=layout,
            )  # fmt: skip
            self._take_products(answers)
            known = True
            if said.all_fit(answers):
                continue
            if ranges:  # all commit to numbers of more bits, or else to coarser ones
                members, ranges = [], {}
            elif fraction == FINE:
                members, fraction = [], FRACTION
        digests = {name: answers[name]["digest"] for name in members}
        documents = said.documents_of(answers, members)
        field = Masked(self._engine.fits, context, layout.size, digests)
        found = self._engine.sum(
            said.ADDED, {"masked": field}, context=context, documents=documents
        )["masked"]
        self._unchecked = Total(context, found["values"], digests, field.kept)
        return found["values"], members, layout, documents

    def check(self) -> None:
        """Check what was not checked along with a later sum."""
        if self._unchecked is not None:
            self._take_products(
                self.ask(said.CHECKED, self._unchecked.context, {}, self._unchecked)
            )

    def _take_products(self, answers: Mapping[str, Mapping[str, bytes]]) -> None:
        total, self._unchecked = self._unchecked, None
        if total is None:
            return
        if not total.is_sum({name: answers[name]["product"] for name in total.digests}):
            raise self._engine.disagreement("a total is not the sum of what the clients sent")
        self._ranges.checked()

    # The same documents at each attempt: a mask of one's own besides

    def whole(
        self, asked: Mapping[str, Any], template: Template, number: int,
        over: Sequence[str] | None = None,
    ) -> Found:  # fmt: skip
        """Return the sum of replies of the same documents; of a round's sums by its `number`.

        CountAgainError if it is `over` these clients that documents were counted, and some are not
        there now.
        """
        self.check()
        members = self.members()
        context = context_of(self._engine.moment, asked["called"], members)
        sizes = {
            "key": LENGTH, "own": LENGTH, "shares": SEALED * len(members), "fits": 1,
            "documents": said.COUNT,
        }  # fmt: skip
        prepared = self.ask(
            said.PREPARED, context, sizes, **asked, keys=self.keys(members),
            layout=Layout.of(template, members, FINE), number=number,
        )  # fmt: skip
        least = max(threshold(len(members)), FEWEST)
        there = list(self._engine.members)
        if len(there) < least:
            raise AgainError  # so many would have to be left: now fewer are enough
        layout = Layout.of(template, there, FINE if said.all_fit(prepared) else FRACTION)
        field = Masked(self._engine.fits, context, layout.size, least=least)
        found = self._engine.sum(
            said.ADDED, {"masked": field}, context=context, there=there, prepared=prepared,
            layout=layout, documents=said.documents_of(prepared, there),
        )["masked"]  # fmt: skip
        counted = self.members(least)
        if over not in (None, counted):
            raise CountAgainError  # before anything is opened
        digests = {name: found["said"][name]["digest"] for name in counted}
        self._unchecked = Total(context, found["values"], digests, field.kept)
        documents = said.documents_of(prepared, counted)
        self._take_products(
            self.ask(said.AGREED, context, {}, self._unchecked, documents=documents)
        )
        opening = Opening(context, members, there, counted, prepared)
        self._open(opening, least)
        return opening.opened(found["values"]), counted, layout, documents

    def _open(self, opening: Opening, least: int) -> None:
        """Learn the masks of who is in the sum, and those that they shared with who is not."""

        def ask(stage: str, names: Sequence[str], **sizes: int) -> dict[str, dict[str, bytes]]:
            told = {**sizes, "shares": SHARE * len(names)}
            answers = self.ask(stage, opening.context, told, None, least, opening=opening)
            opening.recover(names, answers)
            return answers

        opening.take_own(ask(said.OPENED, opening.lost, own=SECRET))
        if opening.silent:
            ask(said.RECOVERED, opening.silent)

    def ask(
        self, stage: str, context: bytes, sizes: Mapping[str, int | Collection[int]],
        of: Total | None = None, least: int = 0, **payload: Any,
    ) -> dict[str, dict[str, bytes]]:  # fmt: skip
        """Ask each client for a signed answer; with a total, for its product as well."""
        products = {"product": said.PRODUCT} if of is not None else {}
        field = Answer(self._engine.fits, stage, context, {**sizes, **products}, of, least)
        seed = of.seed if of is not None else b""
        answers = self._engine.call(stage, {"said": field}, context=context, seed=seed, **payload)
        return {name: said.parts_of(answer["said"]) for name, answer in answers.items()}

    def keys(self, members: Sequence[str]) -> dict[str, bytes]:
        """Return the members' public keys, and tell people of new ones."""
        keys = {name: self._engine.key_of(name) for name in members}
        if lacking := [name for name, key in keys.items() if not key]:
            raise self._engine.disagreement(f"{lacking[0]!r} shows no key for its masks")
        if keys.items() - self._known.items():
            self._known |= keys
            self._notify(Roster(sorted(self._known), roster_digest(self._known)))
        return keys
