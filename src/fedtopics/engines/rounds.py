"""The clients of a study as a method calls them: rounds, quorum, deadlines, bad replies.

Runs in the method's thread, on top of an engine's `Connections`, which know who is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from fedtopics.engines.attendance import Attempt, Attendance, Rules
from fedtopics.engines.call_handler import Notify
from fedtopics.engines.connections import Connections
from fedtopics.engines.replies import Replies
from fedtopics.methods.aggregation import RunningSum, Template
from fedtopics.methods.base import EVERYONE, Draw, T
from fedtopics.methods.events import Repeated, RoundReport


class _RepeatRoundError(Exception):
    """A round has to be repeated: clients that took part in an exchange of it are lost."""


class RemoteClients:
    """The clients, called through an engine's connections; `notify` gets what happens to them."""

    def __init__(self, connections: Connections, rules: Rules, notify: Notify) -> None:
        self._connections = connections
        self._rules = rules
        self._notify = notify
        self._attendance = Attendance(connections, rules, notify)
        self._replies = Replies(connections, self._attendance, rules.deadline, notify)
        self._attempt: Attempt | None = None

    @property
    def names(self) -> list[str]:
        """Names of the study's clients, sorted."""
        return list(self._connections.members)

    def call(
        self, function: str, template: Template | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        """Call a function of every client; return each one's reply by name."""
        replies: dict[str, dict[str, Any]] = {}

        def collect(attempt: Attempt) -> None:
            replies.clear()
            call = self._post(attempt, function, payload)
            outcomes = self._replies.collect(call, attempt, template)
            replies.update((name, reply) for name, reply, _ in outcomes if reply is not None)

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
        """As `sum`; and repeat the call first thing to each client that restarts later."""
        return self._sum(function, template, payload, standing=True)

    def round(
        self, number: int, work: Callable[[], T], draw: Draw = EVERYONE
    ) -> tuple[T, RoundReport]:
        """Do a round's exchanges, all of them with the same clients; see `Clients.round`."""
        left_out: dict[str, str] = {}
        limit = math.inf
        sent, received = self._attendance.bytes()
        for attempt_number in count(1):
            attempt = self._attendance.begin(number, attempt_number, left_out, draw)
            self._attempt = attempt
            try:
                result = work()
            except _RepeatRoundError:
                # Everyone counts in the agreement; a later round goes on without who was lost.
                left_out = {} if number == 0 else left_out | attempt.missing
                self._notify(Repeated(number, attempt.missing))
                if len(attempt.members) < self._rules.min_clients:
                    limit = min(limit, time.perf_counter() + self._rules.wait)
                if time.perf_counter() > limit:  # who is always too late is as good as away
                    raise self._attendance.too_few(number) from None
            else:
                self._attendance.gathered = True
                return result, self._report(attempt, sent, received)
            finally:
                self._attempt = None
        raise AssertionError

    def _sum(
        self, function: str, template: Template | None, payload: dict[str, Any], **how: bool
    ) -> dict[str, Any]:
        total = RunningSum()

        def add(attempt: Attempt) -> None:
            nonlocal total
            self._connections.release(0, attempt.members[0])
            call = self._post(attempt, function, payload, bounded=True, **how)
            total = self._replies.total(call, attempt, template)

        self._exchange(payload, add)
        return total.total()

    def _exchange(self, payload: dict[str, Any], work: Callable[[Attempt], None]) -> None:
        attempt = self._attempt
        if attempt is None:  # an exchange by itself is a round by itself
            self.round(int(payload.get("round", 0)), lambda: self._exchange(payload, work))
            return
        work(attempt)
        left = [name for name in attempt.members if name not in attempt.missing]
        lost = len(left) < len(attempt.members)
        attempt.members = left
        attempt.exchanges += 1
        if (lost and attempt.exchanges > 1) or len(left) < self._rules.min_clients:
            raise _RepeatRoundError
        if lost:  # the others had to wait for them, and are not late for that
            attempt.ends = time.perf_counter() + self._rules.deadline

    def _post(self, attempt: Attempt, function: str, payload: dict[str, Any], **how: bool) -> int:
        return self._connections.post(function, payload, attempt.members, attempt.number, **how)

    def _report(self, attempt: Attempt, sent: int, received: int) -> RoundReport:
        now_sent, now_received = self._attendance.bytes()
        return {
            "clients": attempt.members,
            "missing": attempt.missing,
            "attempts": attempt.number,
            "bytes_sent": now_sent - sent,
            "bytes_received": now_received - received,
            "waiting": attempt.waiting,
            "computing": attempt.computing,
        }
