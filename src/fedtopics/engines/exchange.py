"""The clients of a study, as a participant's own program sees them: `Clients`, between machines.

Every participant runs the method's program. An exchange gives the participant's own reply, from its
own door, to whoever adds, and takes the total from the log of decisions that all have. No request
comes: what a door is asked, its own program asks. A server's program does the same without a door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Protocol

import numpy as np

from fedtopics.engines.adder import Adder, Asked, Rules
from fedtopics.engines.decisions import ADDED, BEGUN, DECISIONS, SETTLED
from fedtopics.engines.handshake import NO_KEYS
from fedtopics.engines.messages import Announced, Failure, Reply, Waiting
from fedtopics.engines.node import Node
from fedtopics.engines.place import Attempt, Place
from fedtopics.engines.states import (
    EVERY,
    Comparison,
    digest_of,
    is_near,
    majority,
    read,
    written,
)
from fedtopics.engines.structures import fields_of
from fedtopics.engines.values import dumps, loads, size_of
from fedtopics.errors import FederationError, FedTopicsError, PolicyError
from fedtopics.methods.core.aggregation import Named, SharedPayload
from fedtopics.methods.core.events import CallStarted, Defect, Drifted, Event, LeftOut, RoundReport
from fedtopics.methods.core.interfaces import EVERYONE, AgainError, Checkpoint, Draw, Moment, T
from fedtopics.methods.core.interfaces import Door as BaseDoor
from fedtopics.methods.core.replies import Template, fewest, find_fault, own_field


class Door(BaseDoor, Protocol):
    """A door between machines: others decide who is in a round, and totals come."""

    def check_members(self, members: Sequence[str]) -> None:
        """Raise a `PolicyError` if a reply may not be added up with those of so few."""

    def is_past(self, moment: Moment) -> bool:
        """Whether a later moment was answered, by this process or one before."""

    def came(self, function: str, moment: Moment, digest: bytes, size: int) -> None:
        """Write down what came for a call, by the digest of all decisions so far."""


class Exchange(Place):
    """Rounds and exchanges of one participant; `Clients` for its program.

    It goes on behind `index` decisions and `turn` turns, of which a checkpoint has the result.
    """

    hidden = False

    def __init__(
        self, node: Node, rules: Rules, notify: Callable[[Event], None], own: str = "",
        door: Door | None = None, index: int = 0, turn: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(node, index, turn)
        self.settled: dict[str, bytes] = {}  # who signed the state after this round, if most did
        self.certificates: dict[str, bytes] = {}  # of those
        self.kept: Callable[[], bytes] = bytes  # returns what was agreed before the first round
        self._notify = notify
        self._own = own
        self._door = door
        self._adder = Adder(node, rules, notify, own)
        self._size = 0  # bytes of the last decision
        self._counted = False  # whether the adder knows that this participant comes along
        self._skipped: list[tuple[str, Mapping[str, Any], Moment]] = []

    def tell(self, function: str, **payload: Any) -> None:
        """Execute a function of the participant's own half; nothing leaves."""
        if self._door is not None:
            self._door.repeat(function, payload, Moment(self.turn))

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name, which all see."""
        return self._exchanged(function, template, payload, one_by_one=True)

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""
        return self._exchanged(function, template, payload, one_by_one=False)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients; see `Clients.round`."""
        self.turn += 1
        before = self._node.traffic()
        left_out: dict[str, str] = {}
        for attempt_number in count(1):
            without = replace(draw, without=draw.without | left_out.keys())
            attempt = self._begin(number, attempt_number, without)
            attempt.missing |= left_out
            self._attempt = attempt
            try:
                result = work()
            except AgainError as again:
                left_out |= again.without
                continue
            finally:
                self._attempt = None
            if number == 0 and attempt.missing:
                self._notify(LeftOut(number, dict(attempt.missing)))
            return result, self._report(attempt, before)
        raise AssertionError

    def _begin(self, number: int, attempt: int, draw: Draw) -> Attempt:
        """Take the decision who is in an attempt, or make it."""
        turn = self.turn
        self._node.say(Waiting(turn), self.index + 1, quiet=self._counted)
        begin = lambda: self._adder.begin(turn, number, attempt, draw)  # noqa: E731
        begun = self._next(BEGUN, begin, number)
        members, certificates = begun["members"], begun["certificates"]
        if (begun["turn"], begun["attempt"], begun["round"]) != (turn, attempt, number):
            raise self._node.disagreement(number, "another round was begun than the program's")
        if members != draw.members(number, self.names, members) or not members:
            raise self._node.disagreement(number, "its members are not those of the study")
        if certificates.keys() != set(members) or begun["keys"].keys() != set(members):
            raise self._node.disagreement(number, "not all members have a certificate and a key")
        self._learn(certificates, number, begun["keys"])
        self._skipped.clear()
        return Attempt(turn, attempt, number, members, begun["missing"], begun["allowance"])

    def _exchanged(
        self, function: str, template: Template | None, payload: Mapping[str, Any], one_by_one: bool
    ) -> dict[str, Any]:
        attempt = self._attempt
        if attempt is None:  # an exchange by itself is a round by itself
            number = int(payload.get("round", 0))
            work = lambda: self._exchanged(function, template, payload, one_by_one)  # noqa: E731
            return self.round(number, work)[0]
        moment = Moment(attempt.turn, attempt.number, attempt.exchanges + 1)
        own = self._own_reply(function, payload, moment, attempt)
        index = self.index + 1
        asked = Asked(function, template, one_by_one)
        add = lambda: self._adder.add(attempt, index, asked, own)  # noqa: E731
        decided = self._next(ADDED, add, attempt.round)
        self._guarded(lambda door: door.came(function, moment, self.digest(), self._size))
        self._check_signatures(decided, attempt)
        lost, result = decided["missing"], "replies" if one_by_one else "total"
        if (
            not lost.keys() <= set(attempt.members)
            or (lost and attempt.exchanges and not decided["again"] and not fewest(template))
            or (result in decided) == decided["again"]
        ):
            what = "others are said to be lost than can be, or there is no total"
            raise self._node.disagreement(attempt.round, what)
        attempt.missing |= lost
        attempt.members = [name for name in attempt.members if name not in lost]
        self._counted = own is not None and self._own in attempt.members
        if decided["again"]:
            raise AgainError
        if self._own in attempt.members:
            self._guarded(lambda door: door.check_members(attempt.members))
        attempt.exchanges += 1
        found: dict[str, Any] = decided[result]
        counted = own if self._own in attempt.members else None
        if one_by_one:
            mine = {} if counted is None else {self._own: counted}
            fault = fault_of_replies(found, template, attempt.members, mine)
        else:
            fault = (
                find_fault(found, template, attempt.members)
                or (counted and implausible(found, counted))
                or ""
            )
        if fault:
            raise self._node.disagreement(attempt.round, f"the total of {function!r}: {fault}")
        return found

    # States

    def settle(self, round_: int, state: Callable[[], Checkpoint | None]) -> Checkpoint | None:
        """Hold the state after a round against the others'; see `Clients.settle`."""
        self.settled = {}
        if round_ % EVERY or (mine := state()) is None:
            return None
        digest = digest_of(mine, self.kept(), self.turn)
        index, signature = self.index + 1, self._node.introduction.sign_state(digest)
        if self._own and not self._node.is_decided(index):
            said = {"digest": digest, "signature": signature}
            agreed, signed = self._node.sign(index)
            short = Reply(index, agreed, signed, said)
            whole = Reply(index, agreed, signed, {**said, "state": written(mine)})
            self._node.say(short, index, when_granted=whole)
        collect = Comparison(self._node, index, (mine, digest), signature).decide
        decided = self._next(SETTLED, collect, round_)
        signed = decided["signatures"]
        self._learn(decided["certificates"], round_)
        known = self._node.introduction.has_signed_state
        if not all(n in self.names and known(n, decided["digest"], s) for n, s in signed.items()):
            raise self._node.disagreement(round_, "somebody has not signed the state that it has")
        if len(signed) >= majority(self._node):
            self.settled, self.certificates = signed, decided["certificates"]
        if decided["digest"] == digest or not self.settled:
            return None
        return self._drifted(round_, mine, decided)

    def _drifted(self, round_: int, mine: Checkpoint, decided: Mapping[str, Any]) -> Checkpoint:
        """Return the state of most others, if the own one is the same but for rounding."""
        try:
            theirs = read(decided["state"])
        except FederationError:
            theirs = Checkpoint(-1, {}, {})
        fits = digest_of(theirs, self.kept(), self.turn) == decided["digest"]
        if not fits or not is_near(mine, theirs):
            raise self._node.disagreement(round_, "most others have signed another state")
        self._notify(Drifted(round_))
        return theirs

    # The own reply

    def _own_reply(
        self, function: str, payload: Mapping[str, Any], moment: Moment, attempt: Attempt
    ) -> dict[str, Any] | None:
        """Compute and offer the own reply, if it is not decided already what it comes to."""
        if self._door is None or self._own not in attempt.members:
            return None
        past = self._door.is_past(moment)
        if self._node.is_decided(self.index + 1, past):
            self._skipped.append((function, payload, moment))
            return None
        for skipped in self._skipped:  # a process before this one answered: for the half's state
            self._door.repeat(*skipped)
        self._skipped.clear()
        self._guarded(lambda door: door.check_members(attempt.members))
        self._notify(CallStarted(function, attempt.round, attempt.number))
        # What the program computes follows from the decisions so far: their digest will do.
        asked = SharedPayload(payload)
        asked.digest = self.digest().hex()
        call = lambda door: door.call(function, asked, moment)  # noqa: E731
        reply: dict[str, Any] | None = self._guarded(call)
        if reply is None:
            return None
        index = self.index + 1
        digest, signature = self._node.sign(index)
        message = Reply(index, digest, signature, reply)
        size = size_of(reply)
        if size > attempt.allowance:
            self._node.say(Announced(index, size), index, when_granted=message)
        else:
            self._node.say(message, index)
        return reply

    def _guarded(self, work: Callable[[Door], Any]) -> Any:
        """Ask the door; if it refuses say so, in one word, and end; a defect is no reply."""
        if self._door is None:
            return None
        try:
            return work(self._door)
        except (OSError, MemoryError) as error:
            self._fail("system", leaves=True)
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            raise FedTopicsError(
                f"The reply of turn {self.turn} did not leave: {reason}. Make room on the disk or "
                "in memory, then restart the client."
            ) from None
        except FedTopicsError as error:
            self._fail("policy" if isinstance(error, PolicyError) else "input", leaves=True)
            raise
        except Exception as error:
            # Its type alone: its text could quote a document.
            round_ = self._attempt.round if self._attempt else 0
            self._notify(Defect("a function", round_, type(error).__name__))
            self._fail("defect", leaves=False)
            return None

    def _fail(self, reason: str, leaves: bool) -> None:
        self._node.say(Failure(self.index + 1, reason, leaves), self.index + 1)

    # Decisions

    def _next(self, kind: str, decide: Callable[[], dict[str, Any]], round_: int) -> Any:
        """Return the next decision; make it where this participant is the adder."""
        index = self.index + 1
        while (entry := self._node.decided(index)) is None:
            self._node.decide(index, kind, lambda: dumps(decide()))
        self.index, self._size = index, len(entry.content)
        self._node.applied(index)
        try:
            most = fields_of(len(self._node.members))
            content = loads(entry.content, of=DECISIONS[kind], fields=most)
        except FederationError:
            content = None
        if content is None or entry.kind != kind or content.get("index", index) != index:
            raise self._node.disagreement(round_, "a decision is damaged, or of another kind")
        return content

    def _learn(
        self, certificates: Mapping[str, bytes], round_: int, keys: Mapping[str, bytes] = NO_KEYS
    ) -> None:
        try:
            self._node.introduction.learn(certificates, keys)
        except FedTopicsError as error:
            raise self._node.disagreement(round_, str(error).rstrip(".")) from None

    def _check_signatures(self, decided: Mapping[str, Any], attempt: Attempt) -> None:
        """Check that all who were added up had the same totals as this participant."""
        for name in attempt.members:
            if name == self._own or name in decided["missing"]:
                continue
            signature = decided["signatures"].get(name, b"")
            if not self._node.is_signed(name, self.index, signature):
                raise self._node.disagreement(
                    attempt.round, f"{name!r} has signed other totals than those that came here"
                )

    def _report(self, attempt: Attempt, before: tuple[int, int]) -> RoundReport:
        sent, received = self._node.traffic()
        return {
            "clients": attempt.members,
            "missing": attempt.missing,
            "attempts": attempt.number,
            "bytes_sent": sent - before[0],
            "bytes_received": received - before[1],
            "waiting": attempt.waiting,
        }


def fault_of_replies(
    found: Any, template: Template | None, members: Sequence[str], own: Mapping[str, Any]
) -> str:
    """Say what is wrong with replies that all see, if something is.

    One's `own` has to be as it left; signed ones are not compared: those of two processes differ.
    """
    if not isinstance(found, dict) or found.keys() != set(members):
        return "there are other replies than those of its members"
    if own_field(template) is None and any(dumps(found[n]) != dumps(own[n]) for n in own):
        return "there is another reply than its own"
    faults = (find_fault(reply, template, [name]) for name, reply in found.items())
    return next((fault for fault in faults if fault), "")


def implausible(total: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Say why a total cannot hold one's own reply; nothing if it can.

    Documents and counts, which have a sign, only grow in a sum. Of other numbers an adder can say
    what it likes.
    """
    for name, mine in own.items():
        found: Any = total.get(name)
        less = f"its field {name!r} is less than the own reply"
        if isinstance(mine, Mapping) and isinstance(found, Mapping):
            if fault := implausible(found, mine):
                return fault
        elif isinstance(mine, Named):
            place = {word: number for number, word in enumerate(found.names)}
            if not place.keys() >= set(mine.names):
                return less
            rows = [place[word] for word in mine.names]
            if (found.values[rows] < mine.values).any():
                return less
        elif isinstance(mine, (int, np.ndarray)) and np.asarray(mine).dtype.kind == "i":
            sums, part = np.asarray(found), np.asarray(mine)
            if sums.shape != part.shape or sums.dtype.kind != "i" or (sums < part).any():
                return less
    return ""
