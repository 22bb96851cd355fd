"""The clients of a study as a method calls them: rounds, quorum, deadlines, bad replies.

Runs in the method's thread, on top of an engine's `Lines`, which know who is there.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from queue import Empty
from typing import Any

from fedtopics.engines.base import Arrived, Failed, Happening, Lines
from fedtopics.engines.values import unpack
from fedtopics.errors import FederationError
from fedtopics.methods.aggregation import RunningSum, Template, find_fault
from fedtopics.methods.base import EVERYONE, Draw, T

BAD_REPLIES = 3  # after these a client is excluded
LAST = "~"  # after all names


@dataclass(frozen=True)
class Rules:
    """When a round counts.

    Parameters
    ----------
    min_clients : int
        Fewest clients of a round.
    deadline : float
        Seconds for a round.
    gather : float
        Seconds that a server waits at its start for all clients.
    wait : float
        Seconds that a round waits for `min_clients`.
    """

    min_clients: int
    deadline: float
    gather: float
    wait: float


class _BrokenError(Exception):
    """A round has to be worked again."""


@dataclass
class _Attempt:
    """One attempt at a round's exchanges, and what is told about it."""

    round: int
    number: int
    members: list[str]
    missing: dict[str, str]
    ends: float
    exchanges: int = 0
    started: float = field(default_factory=time.perf_counter)
    waiting: float = 0.0
    computing: float = 0.0


class RemoteClients:
    """The clients, called through their lines.

    Parameters
    ----------
    lines : Lines
    rules : Rules
    note : function (kind, **fields)
        Told what happens to clients, for the run's events.
    """

    def __init__(self, lines: Lines, rules: Rules, note: Callable[..., None]) -> None:
        self._lines = lines
        self._rules = rules
        self._note = note
        self._bad: Counter[str] = Counter()
        self._attempt: _Attempt | None = None
        self._gathered = False

    @property
    def names(self) -> list[str]:
        """Names of the study's clients, sorted."""
        return list(self._lines.members)

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        replies: dict[str, dict[str, Any]] = {}

        def collect() -> None:
            replies.clear()
            call = self._post(function, payload)
            settled = self._settled(call, template)
            replies.update((name, reply) for name, reply, _ in settled if reply is not None)

        self._exchange(payload, collect)
        return dict(sorted(replies.items()))

    def sum(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """Call a function of every client; return the sum of the replies, field by field."""
        return self._sum(function, template, payload)

    def prepare(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, Any]:
        """As `sum`; and repeat the call first thing to each client that starts anew later."""
        return self._sum(function, template, payload, standing=True)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, dict[str, Any]]:
        """Do a round's exchanges, all of them with the same clients; see `Clients.round`."""
        left_out: dict[str, str] = {}
        limit = math.inf
        sent, received = self._bytes()
        for attempt_number in count(1):
            attempt = self._begin(number, attempt_number, left_out, draw)
            self._attempt = attempt
            try:
                result = work()
            except _BrokenError:
                # Everyone counts in the agreement; a later round goes on without who was lost.
                left_out = {} if number == 0 else left_out | attempt.missing
                self._note("repeated", round=number, missing=attempt.missing)
                if len(attempt.members) < self._rules.min_clients:
                    limit = min(limit, time.perf_counter() + self._rules.wait)
                if time.perf_counter() > limit:  # who is always too late is as good as away
                    raise FederationError(self._too_few(number, self._rules.min_clients)) from None
            else:
                self._gathered = True
                return result, self._report(attempt, sent, received)
            finally:
                self._attempt = None
        raise AssertionError

    # One exchange.

    def _sum(
        self, function: str, template: Template | None, payload: dict[str, Any], **how: bool
    ) -> dict[str, Any]:
        total = RunningSum()

        def add() -> None:
            nonlocal total
            total = RunningSum()
            call = self._post(function, payload, bounded=True, **how)
            self._add_in_order(total, self._settled(call, template))

        self._exchange(payload, add)
        return total.total()

    def _exchange(self, payload: dict[str, Any], work: Callable[[], None]) -> None:
        if self._attempt is None:  # an exchange by itself is a round by itself
            self.round(int(payload.get("round", 0)), lambda: self._exchange(payload, work))
            return
        attempt = self._attempt
        work()
        left = [name for name in attempt.members if name not in attempt.missing]
        lost = len(left) < len(attempt.members)
        attempt.members = left
        attempt.exchanges += 1
        if (lost and attempt.exchanges > 1) or len(left) < self._rules.min_clients:
            raise _BrokenError
        if lost:  # the others had to wait for them, and are not late for that
            attempt.ends = time.perf_counter() + self._rules.deadline

    def _post(self, function: str, payload: dict[str, Any], **how: bool) -> int:
        attempt = self._current
        if how.get("bounded"):
            self._lines.room(0, attempt.members[0])
        return self._lines.post(function, payload, attempt.members, attempt.number, **how)

    def _settled(
        self, call: int, template: Template | None
    ) -> Iterator[tuple[str, dict[str, Any] | None, int]]:
        """Yield (name, reply, bytes) as replies arrive, (name, None, 0) for who has none."""
        attempt = self._current
        waiting = set(attempt.members)
        slowest, in_time = 0.0, True
        while waiting:
            happening = self._next(attempt.ends)
            if happening is None:
                # Who waits for room in memory has answered, and gets as long again to send it.
                reason = f"did not answer within {self._rules.deadline:g} s"
                self._lines.give_up(call, reason, everyone=not in_time)
                attempt.ends, in_time = time.perf_counter() + self._rules.deadline, False
            elif not isinstance(happening, (Arrived, Failed)):
                self._note(happening.kind, client=happening.name, reason=happening.reason)
            elif happening.call == call:
                waiting.discard(happening.name)
                if isinstance(happening, Arrived):
                    attempt.computing += max(0.0, happening.seconds - slowest)
                    slowest = max(slowest, happening.seconds)
                yield self._outcome(happening, template)

    def _outcome(
        self, happening: Arrived | Failed, template: Template | None
    ) -> tuple[str, dict[str, Any] | None, int]:
        name = happening.name
        if isinstance(happening, Failed):
            self._lose(name, happening.reason, happening.bad)
            return name, None, 0
        reply, fault = self._read(happening, template)
        if fault:
            self._lose(name, f"sent a bad reply: {fault}", bad=True)
        return name, None if fault else reply, len(happening.buffer)

    def _read(self, arrived: Arrived, template: Template | None) -> tuple[dict[str, Any], str]:
        try:
            reply = unpack(arrived.body, arrived.buffer, self._lines.largest)
        except FederationError as error:
            return {}, str(error)
        if not isinstance(reply, dict):
            return {}, "it is no map"
        return reply, find_fault(reply, template)

    def _add_in_order(
        self, total: RunningSum, settled: Iterator[tuple[str, dict[str, Any] | None, int]]
    ) -> None:
        """Add replies in the order of their names; hold those that come before their turn."""
        order = iter(self._current.members)
        turn = next(order, LAST)
        held: dict[str, tuple[dict[str, Any] | None, int]] = {}
        for name, reply, size in settled:
            held[name] = reply, size
            freed = 0
            while turn in held:
                reply, size = held.pop(turn)
                if reply is not None:
                    total.add(reply)
                freed += size
                turn = next(order, LAST)
            self._lines.room(freed, turn)

    def _lose(self, name: str, reason: str, bad: bool = False) -> None:
        attempt = self._current
        attempt.missing[name] = reason
        if not bad:
            return
        self._bad[name] += 1
        self._note("bad reply", client=name, round=attempt.round, reason=reason)
        if self._bad[name] == BAD_REPLIES:
            reason = f"{BAD_REPLIES} bad replies, the last: {reason}"
            self._lines.exclude(name, reason)
            self._note("excluded", client=name, round=attempt.round, reason=reason)

    # Who is there.

    @property
    def _current(self) -> _Attempt:
        assert self._attempt is not None  # noqa: S101 - exchanges run inside a round
        return self._attempt

    def _next(self, ends: float) -> Happening | None:
        attempt = self._attempt
        before = time.perf_counter()
        try:
            return self._lines.inbox.get(timeout=max(0.0, ends - before))
        except Empty:
            return None
        finally:
            if attempt is not None:
                attempt.waiting += time.perf_counter() - before

    def _begin(self, number: int, attempt: int, left_out: dict[str, str], draw: Draw) -> _Attempt:
        """Wait until enough clients are there; begin an attempt with those that are drawn."""
        if not self._gathered:
            everyone = [name for name, m in self._lines.members.items() if not m.excluded]
            self._await(number, len(everyone), self._rules.gather, left_out)
        enough = self._rules.min_clients
        self._await(number, enough, self._rules.wait, left_out)
        members = draw.members(number, self.names, self._available(left_out))
        if len(members) < enough:
            raise FederationError(self._too_few(number, enough))
        missing = {
            name: left_out.get(name, self._lines.members[name].state)
            for name in draw.members(number, self.names, self.names)
            if name not in members
        }
        return _Attempt(
            number, attempt, members, missing, time.perf_counter() + self._rules.deadline
        )

    def _available(self, left_out: dict[str, str]) -> list[str]:
        members = self._lines.members.items()
        return [name for name, member in members if member.available and name not in left_out]

    def _await(self, number: int, wanted: int, seconds: float, left_out: dict[str, str]) -> None:
        ends = time.perf_counter() + seconds
        told: list[str] = []
        while len(there := self._available(left_out)) < wanted:
            # Those left out of a round come in again when it cannot be worked without them.
            if len(there) + len(left_out) >= wanted:
                left_out.clear()
                continue
            away = {n: m.state for n, m in self._lines.members.items() if n not in there}
            if list(away.values()) != told:
                told = list(away.values())
                self._note("waiting", round=number, clients=there, missing=away)
            happening = self._next(min(ends, time.perf_counter() + 1))
            if happening is not None and not isinstance(happening, (Arrived, Failed)):
                self._note(happening.kind, client=happening.name, reason=happening.reason)
            possible = sum(not m.excluded for m in self._lines.members.values())
            if time.perf_counter() > ends or possible < wanted:
                return

    def _too_few(self, number: int, enough: int) -> str:
        states = "; ".join(f"{n}: {m.state}" for n, m in self._lines.members.items())
        return (
            f"Round {number} has fewer than min_clients = {enough} clients ({states}). Go on with "
            "--resume when they are back, or lower min_clients in the study's [federation]."
        )

    def _bytes(self) -> tuple[int, int]:
        counts = [member.bytes for member in self._lines.members.values()]
        return sum(sent for sent, _ in counts), sum(received for _, received in counts)

    def _report(self, attempt: _Attempt, sent: int, received: int) -> dict[str, Any]:
        now_sent, now_received = self._bytes()
        return {
            "clients": attempt.members,
            "missing": attempt.missing,
            "attempts": attempt.number,
            "bytes_sent": now_sent - sent,
            "bytes_received": now_received - received,
            "waiting": attempt.waiting,
            "computing": attempt.computing,
        }
