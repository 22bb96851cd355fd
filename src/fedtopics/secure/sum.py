"""Masked sums: whoever adds learns what replies add up to, and nothing of one of them.

A masked sum is a few exchanges of an engine, which knows nothing of it, as methods do. Where a
client draws new documents at each attempt, its reply is hidden by masks that it shares with each
other client and that cancel out in the sum; if a client is lost the round is worked again. Where
the documents would be the same, a reply has a mask of its own besides, which its client tells when
all have signed who is in the sum: who is lost meanwhile costs nothing, and no reply is added up a
second time without another one. After Bonawitz and others, Practical Secure Aggregation for
Privacy-Preserving Machine Learning, CCS 2017; that each total is the sum of what was sent is
checked by all participants before anything follows from it. Where a total cannot be, the round is
worked again in groups with a sum each. See docs/secure-aggregation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from fedtopics.engines.states import EVERY
from fedtopics.methods.aggregation import SharedPayload
from fedtopics.methods.base import EVERYONE, AgainError, Checkpoint, Draw, Gathering, T
from fedtopics.methods.events import Event, InTheClear, RoundReport, Suspected, Voided
from fedtopics.methods.replies import Announced, Template, find_fault
from fedtopics.methods.robust import Robust, Rule
from fedtopics.secure import said
from fedtopics.secure.adding import CountAgainError, Found, Sums
from fedtopics.secure.groups import Search
from fedtopics.secure.ranges import Ranges
from fedtopics.secure.said import FEWEST, Groups, context_of
from fedtopics.secure.words import Limits, WordSum, word_counts

RECOUNTS = (
    3  # of groups of documents in a round, until each client leaves out small ones of its own
)
VOIDS = 3  # totals over all that cannot be, of one round, until the study ends
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
    robust : str, optional
        What groups' totals come to, by a rule of `robust`; with one, all sums are worked in groups.
    ranges : dict, optional
        What a checkpoint has of those of numbers; it is changed in place.
    """

    hidden = True

    def __init__(
        self, engine: Gathering, drawn: Mapping[str, int],
        notify: Callable[[Event], None] = lambda event: None, limits: Limits | None = None,
        robust: Rule = "none", ranges: dict[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._notify = notify
        self._drawn = drawn
        self._in_round = False
        self._ranges = Ranges(ranges)
        self._sum = Sums(engine, notify, self._ranges)
        self._counted: list[str] | None = None  # who is in this attempt's sums
        self._sums = 0  # in this attempt
        self._robust = Robust(robust, notify)
        self._always = robust != "none"  # whether there are groups
        self._number = 0  # of the round, as all that follows
        # Totals, and over whom, by place; over whom the last one is.
        self._opened: dict[Place, tuple[dict[str, Any], list[str]]] = {}
        self._over: list[str] = []
        self._recounts = 0  # in this round
        self._voided: dict[Place, Sequence[str]] = {}  # totals over these of the same documents
        self._search = Search([], 0)
        self._fault = ""  # of the last void total
        self._clear = False  # whether replies leave without masks
        self._asked = False  # whether their clients were, in this attempt
        self._allow: set[str] = set()  # who said yes
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
            if self._asked and not self._voided:  # documents are others now, and are masked again
                self._clear = False
                self._search.begin_again()
            self._asked = False
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
        self._number, self._opened, self._voided = number, {}, {}
        self._search = Search(self._engine.names, number, self._always)
        self._clear, self._asked, self._allow = False, False, set()
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
        if template and self._words is not None and word_counts(template) and not self._clear:
            self._sum.check()
            words = self._words.sum(function, template, payload)
            if fault := find_fault(words, template, self._engine.names):
                self._void(function, fault)
            return words
        self._sums += 1
        if (place := (self._sums, function)) in self._opened:
            found, self._over = self._opened[place]
            return found
        if self._clear:
            return self._in_the_clear(function, template, payload)
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
            groups_of = partial(self._search.groups, anew=True)
            totals, groups, layout, documents = self._sum.drawn(asked, template, groups_of)
        else:
            totals, groups, layout, documents = self._whole(place, payload, template)
        self._counted = sorted(chain(*groups))
        added = self._robust.sum(function, template, self._sums, self._number)
        faults: dict[int, str] = {}
        for number, (total, group) in enumerate(zip(totals, groups, strict=True)):
            found = {} if isinstance(total, str) else layout.decode(total, len(group))
            fault = total if isinstance(total, str) else fault_of(found, template, group)
            if not fault and found.get("documents", documents[number]) != documents[number]:
                fault = f"it is said to be over {documents[number]:,} documents, and is not"
            if fault:
                faults[number] = fault
            else:
                added.add(f"group {number}", found)
        failing = [groups[number] for number in faults]
        if not anew and failing:
            self._voided[place] = self._counted
        if not anew and self._is_enough(failing):
            over = sorted({*self._counted} - {*chain(*failing)})
            self._opened[place] = added.total(), over
        if failing:
            self._void(function, next(iter(faults.values())), groups, failing, anew)
        if not anew:
            found, self._over = self._opened[place]
            return found
        found = added.total()
        self._ranges.note(function, found)
        return found

    def _whole(self, place: Place, payload: Mapping[str, Any], template: Template) -> Found:
        """Add up replies of the same documents, in groups where there are any."""
        groups, parts = self._fixed_groups(place)
        # A client that is lost behind each count would have them counted for ever.
        by_own = parts or self._recounts == RECOUNTS
        counted = "counted" in payload.get("groups", ()) and not by_own
        # What was opened of a void total is opened over the same clients, or not at all.
        over = self._over if counted and place not in self._voided else None
        told = SharedPayload(_by_own(payload) if by_own else payload)
        asked = {"called": place[1], "payload": told}
        return self._sum.whole(asked, template, groups, parts, place[0], over)

    def _draws_anew(self, function: str, template: Template | None) -> bool:
        """Whether all clients' replies are others at each attempt."""
        announced = (template or {}).get("documents")
        sizes = announced.sizes if isinstance(announced, Announced) else {}
        fewest = min(sizes.get(name, 0) for name in self._sum.members())
        return function in self._drawn and fewest > self._drawn[function]

    def _fixed_groups(self, place: Place) -> tuple[Groups, bool]:
        """Return a sum's groups, and whether there are any; of a void one, of who was in it then.

        The difference to that total would tell the reply of who was lost since: its group is left
        out.
        """
        members = self._sum.members()
        before = self._voided.get(place)
        groups = self._search.groups(before or members, False, narrow=before is not None)
        if len(groups) == 1:
            return [members], False
        whole = [group for group in groups if {*group} <= {*members}]
        if torn := sorted({*members} - {*chain(*whole)}):
            self._leave_out(torn)
        return whole, True

    # Who says what is false

    def _void(
        self, function: str, fault: str, groups: Groups = (), failing: Groups = (),
        anew: bool = True, apart: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Give up an attempt whose total cannot be: nothing follows from it, unless it is a lie.

        `apart` are clients that say something else than most, who may be told what is false.
        """
        self._sum.check()
        search, members = self._search, self._sum.members()
        self._notify(Voided(self._number, fault))
        search.voids += 1
        times = "once" if search.voids == 1 else f"{search.voids} times"
        self._fault = f"the sum of {function!r} was void {times} ({fault})"
        if len(groups) > 1:
            known = search.narrow(failing) if anew else []
            of = known or (search.suspects if anew else sorted(chain(*failing)))
            last = bool(known) or not anew or search.is_in_vain(members)
            self._notify(Suspected(of, self._number, left_out=last and self._is_enough([of])))
            if last:
                self._leave_out(of, bad=bool(known))
        elif search.voids == VOIDS and apart:
            self._leave_out(apart)
        elif search.voids == VOIDS:
            raise self._engine.disagreement(
                f"{self._fault}; a client says what is false, and masks hide which"
            )
        elif groups and len(search.groups(members, anew, narrow=True)) == 1:
            self._clear = search.voids == VOIDS - 1
        raise AgainError

    def _is_enough(self, without: Groups) -> bool:
        """Whether most clients of the attempt are left, and enough of them for a sum."""
        members = self._engine.members
        left = len(members) - len({*chain(*without)} & {*members})
        return left >= FEWEST and 2 * left > len(members)

    def _leave_out(self, names: Sequence[str], bad: bool = False) -> None:
        """Have the round worked without some clients, of which one lies; else in the clear."""
        if not self._is_enough([names]):
            self._clear = True
            raise AgainError
        self._search.begin_again()
        listed = ", ".join(names)
        why = "its sums could not be" if bad else f"one of these says what is false: {listed}"
        raise AgainError(dict.fromkeys(names, why), bad)

    def _in_the_clear(
        self, function: str, template: Template | None, payload: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add up replies that whoever adds sees, of clients whose policies allow it."""
        if not self._asked:
            self._ask_to_clear()
        return self._engine.sum(function, template, **_by_own(payload))

    def _ask_to_clear(self) -> None:
        """Ask all who were in a total that was opened, as the others' replies would tell theirs."""
        members = self._sum.members()
        answers = self._sum.ask(
            said.CLEAR, context_of(self._engine.moment, said.CLEAR, members), {"allows": 1},
            members=members,
        )  # fmt: skip
        self._allow |= {name for name in members if answers[name]["allows"] == said.FITS}
        seen = {n for place in self._voided.keys() - self._opened for n in self._voided[place]}
        against = [name for name in members if name not in self._allow]
        if seen - self._allow or len(members) - len(against) < FEWEST:
            listed = ", ".join(sorted({*against, *(seen - self._allow)}))
            raise self._engine.disagreement(
                f"{self._fault}; a client says what is false, and masks hide which. An attempt "
                f"in the clear would tell, which {listed} did not allow: clear_attempt = true in a "
                "policy does"
            )
        if against:
            raise AgainError(dict.fromkeys(against, "its policy allows no attempt in the clear"))
        self._asked = True
        self._notify(InTheClear(members, self._number))


def _by_own(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask clients to leave out small groups by their own documents, as without masks.

    That is where more is seen than a sum over all who were counted: sums of some, or a reply.
    """
    groups = payload.get("groups")
    return {**payload, "groups": {**groups, "least": 0}} if groups else payload
