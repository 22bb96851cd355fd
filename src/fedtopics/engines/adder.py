"""What the adder decides: who is in a round, when it is worked again, what the totals are.

Runs in the thread of the adder's own program; decisions become the next entry of the log that all
participants have (`replica`). One implementation for all engines between machines.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedtopics.engines.messages import FAILURES, Announced, Failure, Reply
from fedtopics.engines.messages import Waiting as Waits
from fedtopics.engines.node import Node
from fedtopics.engines.place import Attempt
from fedtopics.errors import FederationError
from fedtopics.methods.core.events import BadReply, Event, Excluded, Repeated, StatusChange, Waiting
from fedtopics.methods.core.interfaces import Draw
from fedtopics.methods.core.outliers import Robust, Rule
from fedtopics.methods.core.replies import BAD_REPLIES, Template, check_blame, fewest

IN_FLIGHT = 24 << 20  # bytes of replies that are on their way or not yet added up
MOMENT = 0.1  # seconds for who is one turn behind, and on its way
GRACE = 5.0  # seconds in which a participant whose connection broke may come back with its reply
LAST = "~"  # after all names


@dataclass(frozen=True)
class Rules:
    """When a round counts; times are in seconds."""

    min_clients: int  # fewest clients of a round
    deadline: float  # of a round
    gather: float  # that the adder waits at its start for all clients
    wait: float  # that a round waits for `min_clients`
    robust: Rule = "none"  # what replies come to


@dataclass(frozen=True)
class Asked:
    """What all clients are asked in an exchange."""

    function: str
    template: Template | None
    one_by_one: bool  # whether all see each reply, or their sum


@dataclass
class _Turn:
    """What the adder remembers of the turn's earlier attempts."""

    number: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    limit: float = math.inf


class Adder:
    """Begin attempts with the clients that are there; collect their replies.

    `own` is the name of a participant that adds; a server has none. `notify` gets each event.
    """

    def __init__(self, node: Node, rules: Rules, notify: Callable[[Event], None], own: str) -> None:
        self._node = node
        self._rules = rules
        self._notify = notify
        self._own = own
        self._robust = Robust(rules.robust, notify)
        self._gathered = False  # a round counted, so that later ones wait for `min_clients` only
        self._turn = _Turn()
        self._bad: Counter[str] = Counter()
        self._there: set[str] = set()  # who could be in the attempt that is worked on
        self._present: set[str] = set()  # and so is in the next turn without a word

    # Who is there

    def begin(self, turn: int, number: int, attempt: int, draw: Draw) -> dict[str, Any]:
        """Wait until enough clients are there; decide who is in an attempt.

        A `FederationError` if too few are there in time.
        """
        if self._turn.number != turn:
            self._turn = _Turn(turn)
        while self._take(0.0):  # news of before: who came back since is not lost in this attempt
            pass
        members, rules = self._node.members, self._rules
        names = list(members)
        taken_over = bool(self._own) and turn > 1
        if not self._gathered and not taken_over:
            everyone = [name for name in names if not members[name].excluded]
            self._wait_for(number, len(everyone), rules.gather)
        self._wait_for(number, rules.min_clients, rules.wait)
        self._wait_for_stragglers()
        available = self._available()
        while self._take(0.0) is not None:  # what happened before an attempt does not count in it
            available = self._available()
        self._there = set(available)
        present = self._enough(draw.members(number, names, available))
        if len(present) < rules.min_clients:
            raise self._too_few(number)
        return {
            "turn": turn, "attempt": attempt, "round": number, "members": present,
            "missing": {
                name: self._turn.left_out.get(name, self._why_not(name))
                for name in draw.members(number, names, names)
                if name not in present
            },
            "allowance": self._node.allow(IN_FLIGHT // len(present)),
            "certificates": self._node.introduction.certificates(present),
            "keys": self._node.introduction.keys(present),
        }  # fmt: skip

    def _least(self, name: str) -> int:
        """Return the fewest clients that a member's own policy wants to be added up with."""
        own = name == self._own
        return self._node.introduction.least if own else self._node.members[name].least

    def _enough(self, present: list[str]) -> list[str]:
        """Leave out who would not answer, as its policy asks for more clients than are there."""
        while few := [name for name in present if self._least(name) > len(present)]:
            present = [name for name in present if name not in few]
        return present

    def _why_not(self, name: str) -> str:
        state = self._node.members[name].state(self._turn.number)
        few = f"its policy asks for {self._least(name)} clients"
        return few if state == "ready" or name == self._own else state

    def _too_few(self, number: int) -> FederationError:
        turn = self._turn.number
        states = "; ".join(f"{n}: {m.state(turn)}" for n, m in self._node.members.items())
        return FederationError(
            f"Round {number} has fewer than min_clients = {self._rules.min_clients} clients "
            f"({states}). Go on with --resume when they are back, or lower min_clients in the "
            "study's [federation]."
        )

    def _available(self) -> list[str]:
        turn, left_out = self._turn.number, self._turn.left_out
        members = self._node.members
        for name in self._present:
            members[name].turn = turn if members[name].turn else 0
        ready = {n for n, m in members.items() if n == self._own or m.ready(turn)}
        return [name for name in members if name in ready - left_out.keys()]

    def _wait_for(self, number: int, wanted: int, seconds: float) -> None:
        ends = time.perf_counter() + seconds
        reported: list[str] = []
        members, left_out = self._node.members, self._turn.left_out
        while len(present := self._available()) < wanted:
            # Clients left out of a round are taken back when it is not possible without them.
            if left_out and len(present) + len(left_out) >= wanted:
                left_out.clear()
                continue
            turn = self._turn.number
            away = {n: m.state(turn) for n, m in members.items() if n not in present}
            if list(away.values()) != reported:
                reported = list(away.values())
                self._notify(Waiting(number, present, away))
            self._take(min(ends, time.perf_counter() + 1))
            possible = sum(not member.excluded for member in members.values())
            if time.perf_counter() > ends or possible < wanted:
                return

    def _wait_for_stragglers(self) -> None:
        """Wait for a moment for who was left out of the turn before: it is right behind."""
        turn, ends = self._turn, time.perf_counter() + MOMENT

        def behind() -> bool:
            others = (m for n, m in self._node.members.items() if n not in turn.left_out)
            return any(m.link and not m.excluded and m.turn == turn.number - 1 > 0 for m in others)

        self._available()
        while behind() and time.perf_counter() < ends:
            self._take(ends)

    def _take(self, ends: float) -> tuple[str, Any] | None:
        """Take what came next, None when time is over; pass on a change of somebody's status."""
        name, what = self._node.heard(ends - time.perf_counter())
        if not name:
            return None
        if isinstance(what, StatusChange):
            self._notify(what)
            if what.status != "ready":
                self._present.discard(name)
                self._there.discard(name)
        return name, what

    # What they say

    def add(
        self, attempt: Attempt, index: int, asked: Asked, own: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Collect the replies of an attempt's clients; decide what an exchange comes to.

        Replies are added up in the order of their names; those that come before their turn wait.
        """
        if attempt.ends == math.inf:  # it began under another adder, or before a restart
            attempt.ends = time.perf_counter() + self._rules.deadline
        exchange = _Exchange(self, attempt, index, asked)
        if self._own in attempt.members and own is not None:
            exchange.signatures[self._own] = self._node.sign(index)[1]
            exchange.arrived(self._own, own)
        exchange.collect()
        self._present = (self._there | set(attempt.members)) - exchange.lost.keys()
        lost = exchange.lost
        left = [name for name in attempt.members if name not in lost]
        enough = fewest(asked.template)
        least = max([self._rules.min_clients, enough, *map(self._least, left)])
        again = bool(lost and attempt.exchanges and not enough) or len(left) < least
        entry = {"index": index, "missing": lost, "again": again, "signatures": exchange.signatures}
        if again:
            self._again(attempt, lost)
        else:
            self._gathered = True
            entry["replies" if asked.one_by_one else "total"] = exchange.result()
            if lost:  # the others had to wait for them, and are not late for that
                attempt.ends = time.perf_counter() + self._rules.deadline
        return entry

    def _again(self, attempt: Attempt, lost: Mapping[str, str]) -> None:
        # Everyone counts in the agreement; a later round goes on without who was lost.
        turn = self._turn
        if attempt.round != 0:
            turn.left_out |= lost
        self._notify(Repeated(attempt.round, {**attempt.missing, **lost}))
        if len(attempt.members) - len(lost) < self._rules.min_clients:
            turn.limit = min(turn.limit, time.perf_counter() + self._rules.wait)
        if time.perf_counter() > turn.limit:  # who is always too late is as good as away
            raise self._too_few(attempt.round)

    def count(self, round_: int, name: str, reason: str) -> None:
        """Count a bad reply against who sent it."""
        self._bad[name] += 1
        self._notify(BadReply(name, round_, reason))
        if self._bad[name] == BAD_REPLIES:
            reason = f"{BAD_REPLIES} bad replies, the last: {reason}"
            self._node.exclude(name, reason)
            self._notify(Excluded(name, round_, reason))


class _Exchange:
    """The replies to one exchange, as they come."""

    def __init__(self, adder: Adder, attempt: Attempt, index: int, asked: Asked) -> None:
        self._adder = adder
        self._node = adder._node
        self._attempt = attempt
        self._index = index
        self._asked = asked
        number = attempt.exchanges + 1
        self._total = adder._robust.sum(asked.function, asked.template, number, attempt.round)
        self._replies: dict[str, dict[str, Any]] = {}
        self._order = iter(attempt.members)
        self._turn = next(self._order, LAST)
        self._waiting = set(attempt.members)
        self._held: dict[str, dict[str, Any] | None] = {}
        self._announced: dict[str, int] = {}  # bytes of replies that wait for room
        self._granted: dict[str, int] = {}  # of those that have it
        # Who lost its connection, until when it may be back; who takes over has not heard of it.
        self._gone = {
            name: time.perf_counter() + GRACE
            for name in attempt.members
            if adder._own not in ("", name) and not self._node.members[name].link
        }
        self._faults: dict[str, str] = {}  # of replies that say what cannot be
        self.lost: dict[str, str] = {}
        self.signatures: dict[str, bytes] = {}

    def result(self) -> dict[str, Any]:
        """Return the replies' sum, or each one by name."""
        return (
            dict(sorted(self._replies.items())) if self._asked.one_by_one else self._total.total()
        )

    def collect(self) -> None:
        """Take what comes until everybody has answered, or nobody is waited for any more."""
        attempt, deadline = self._attempt, self._adder._rules.deadline
        in_time = True
        while self._waiting:
            before = time.perf_counter()
            ends = min([attempt.ends, *self._gone.values()])
            taken = self._adder._take(ends)
            now = time.perf_counter()
            attempt.waiting += now - before
            if taken is not None and taken[0] in self._waiting:
                self._heard(*taken)
            for name in [name for name, until in self._gone.items() if until <= now]:
                self._lose(name, "its connection was lost")
            if now >= attempt.ends:
                # Who waits for room has answered, and gets as long again to send.
                ready = self._announced.keys() | self._granted.keys()
                for name in self._waiting - (ready if in_time else set()):
                    self._lose(name, f"did not answer within {deadline:g} s")
                attempt.ends, in_time = now + deadline, False
        check_blame(self._faults, attempt.members, len(self._node.members))
        for name in self._faults:
            self._adder.count(attempt.round, name, self.lost[name])

    def _heard(self, name: str, what: Any) -> None:
        if isinstance(what, StatusChange):
            self._status(name, what)
        elif isinstance(what, Waits) or what.index != self._index:
            return  # of an exchange that went on without it
        elif isinstance(what, Announced):
            self._announced[name], self._granted[name] = what.size, 0
            self._grant()
        elif isinstance(what, Failure):
            reason = FAILURES.get(what.reason, "it failed")
            self._lose(name, reason, bad=not what.leaves)
        elif isinstance(what, Reply):
            self._read(name, what)

    def _status(self, name: str, change: StatusChange) -> None:
        if change.status == "lost" and change.reason:
            self._lose(name, change.reason, bad=True)
        elif change.status == "lost":
            self._gone[name] = time.perf_counter() + GRACE
        elif change.status == "joined":
            self._gone.pop(name, None)
            if change.reason:
                self._lose(name, change.reason)
        elif change.status == "declined":  # who is refused only says that it is of that name
            self._lose(name, change.reason)

    def _read(self, name: str, reply: Reply) -> None:
        attempt = self._attempt
        if reply.digest != self._node.digest_before(self._index):
            fault = "it has other totals than the others"
        elif not self._node.is_signed(name, self._index, reply.signature):
            fault = "its signature does not fit"
        else:
            fault = attempt.look.fault(name, reply.reply, self._asked.template)
            if fault:
                self._faults[name] = fault
        if fault:
            self._lose(name, f"sent a bad reply: {fault}", bad=name not in self._faults)
        else:
            self.signatures[name] = reply.signature
            member = self._node.members[name]
            member.turn = max(member.turn, attempt.turn)  # it may have told another adder so
            self.arrived(name, reply.reply)

    def arrived(self, name: str, reply: dict[str, Any]) -> None:
        """Take a reply."""
        self._waiting.discard(name)
        self._gone.pop(name, None)
        self._node.members[name].turn = self._attempt.turn  # who adds since now has not heard it
        self._add(name, reply)

    def _lose(self, name: str, reason: str, bad: bool = False) -> None:
        self.lost[name] = reason
        self._waiting.discard(name)
        self._gone.pop(name, None)
        self._announced.pop(name, None)
        if bad:
            self._adder.count(self._attempt.round, name, reason)
        self._add(name, None)

    def _add(self, name: str, reply: dict[str, Any] | None) -> None:
        """Add replies whose turn it is."""
        self._held[name] = reply
        while self._turn in self._held:
            reply = self._held.pop(self._turn)
            if reply is not None and self._asked.one_by_one:
                self._replies[self._turn] = reply
            elif reply is not None:
                self._total.add(self._turn, reply)
            self._granted.pop(self._turn, None)
            self._turn = next(self._order, LAST)
        self._grant()

    def _grant(self) -> None:
        """Let in what there is room for, and in any case whose turn it is."""
        for name in sorted(self._announced):
            room = IN_FLIGHT - sum(self._granted.values())
            if self._announced[name] <= room or name == self._turn:
                self._granted[name] = self._announced.pop(name)
                self._node.grant(name, self._index, self._granted[name])
