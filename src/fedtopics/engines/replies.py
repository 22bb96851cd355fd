"""The replies to a call: read, checked, counted against their clients, added up in order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fedtopics.engines.attendance import Attempt, Attendance
from fedtopics.engines.call_handler import Notify
from fedtopics.engines.connections import CallFailed, Connections, ReplyArrived
from fedtopics.engines.values import unpack
from fedtopics.errors import FederationError
from fedtopics.methods.aggregation import RunningSum, Template, find_fault
from fedtopics.methods.events import BadReply, Excluded, StatusChange

BAD_REPLIES = 3  # after these a client is excluded
LAST = "~"  # after all names

Outcome = tuple[str, dict[str, Any] | None, int]
"""A client's name, its reply or None, and the reply's bytes."""


class Replies:
    """Collect the replies of an attempt's clients; `notify` gets each event.

    After it was given up to wait for some, the others get `deadline` seconds again.
    """

    def __init__(
        self, connections: Connections, attendance: Attendance, deadline: float, notify: Notify
    ) -> None:
        self._connections = connections
        self._attendance = attendance
        self._deadline = deadline
        self._notify = notify
        self._bad: Counter[str] = Counter()

    def collect(self, call: int, attempt: Attempt, template: Template | None) -> Iterator[Outcome]:
        """Yield each client's outcome as replies arrive."""
        waiting = set(attempt.members)
        slowest, in_time = 0.0, True
        while waiting:
            before = time.perf_counter()
            event = self._attendance.next_event(attempt.ends)
            attempt.waiting += time.perf_counter() - before
            if event is None:
                # Who waits for memory on the server has answered, and gets as long again to send.
                reason = f"did not answer within {self._deadline:g} s"
                self._connections.give_up(call, reason, everyone=not in_time)
                attempt.ends, in_time = time.perf_counter() + self._deadline, False
            elif not isinstance(event, StatusChange) and event.call == call:
                waiting.discard(event.name)
                if isinstance(event, ReplyArrived):
                    attempt.computing += max(0.0, event.seconds - slowest)
                    slowest = max(slowest, event.seconds)
                yield self._outcome(event, attempt, template)

    def total(self, call: int, attempt: Attempt, template: Template | None) -> RunningSum:
        """Add replies in the order of their names; hold those that come before their turn."""
        total = RunningSum()
        order = iter(attempt.members)
        turn = next(order, LAST)
        held: dict[str, tuple[dict[str, Any] | None, int]] = {}
        for name, reply, size in self.collect(call, attempt, template):
            held[name] = reply, size
            freed = 0
            while turn in held:
                reply, size = held.pop(turn)
                if reply is not None:
                    total.add(reply)
                freed += size
                turn = next(order, LAST)
            self._connections.release(freed, turn)
        return total

    def _outcome(
        self, event: ReplyArrived | CallFailed, attempt: Attempt, template: Template | None
    ) -> Outcome:
        if isinstance(event, CallFailed):
            self._lose(attempt, event.name, event.reason, event.bad)
            return event.name, None, 0
        reply, fault = self._read(event, template)
        if fault:
            self._lose(attempt, event.name, f"sent a bad reply: {fault}", bad=True)
        return event.name, None if fault else reply, len(event.buffer)

    def _read(self, arrived: ReplyArrived, template: Template | None) -> tuple[dict[str, Any], str]:
        try:
            reply = unpack(arrived.body, arrived.buffer, self._connections.largest)
        except FederationError as error:
            return {}, str(error)
        if not isinstance(reply, dict):
            return {}, "it is no map"
        return reply, find_fault(reply, template)

    def _lose(self, attempt: Attempt, name: str, reason: str, bad: bool) -> None:
        attempt.missing[name] = reason
        if not bad:
            return
        self._bad[name] += 1
        self._notify(BadReply(name, attempt.round, reason))
        if self._bad[name] == BAD_REPLIES:
            reason = f"{BAD_REPLIES} bad replies, the last: {reason}"
            self._connections.exclude(name, reason)
            self._notify(Excluded(name, attempt.round, reason))
