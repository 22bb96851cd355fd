"""Who takes part in a round: wait for enough clients, say who is missing and why."""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import Empty

from fedtopics.engines.call_handler import Notify
from fedtopics.engines.connections import Connections, Incoming
from fedtopics.errors import FederationError
from fedtopics.methods.base import Draw
from fedtopics.methods.events import StatusChange, Waiting


@dataclass(frozen=True)
class Rules:
    """When a round counts; times are in seconds."""

    min_clients: int  # fewest clients of a round
    deadline: float  # of a round
    gather: float  # that a server waits at its start for all clients
    wait: float  # that a round waits for `min_clients`


@dataclass
class Attempt:
    """One attempt at a round's exchanges."""

    round: int
    number: int
    members: list[str]
    missing: dict[str, str]  # name to why
    ends: float
    exchanges: int = 0
    waiting: float = 0.0  # seconds of the server
    computing: float = 0.0  # seconds of the slowest clients


class Attendance:
    """Begin attempts with the clients that are there; `notify` gets each event."""

    def __init__(self, connections: Connections, rules: Rules, notify: Notify) -> None:
        self._connections = connections
        self._rules = rules
        self._notify = notify
        self.gathered = False  # a round counted, so that later ones wait for `min_clients` only

    def begin(self, number: int, attempt: int, left_out: dict[str, str], draw: Draw) -> Attempt:
        """Wait until enough clients are there; begin an attempt with those that are drawn.

        A `FederationError` if too few are there in time.
        """
        members = self._connections.members
        names = list(members)
        if not self.gathered:
            everyone = [name for name in names if not members[name].excluded]
            self._wait_for(number, len(everyone), self._rules.gather, left_out)
        self._wait_for(number, self._rules.min_clients, self._rules.wait, left_out)
        present = draw.members(number, names, self._available(left_out))
        if len(present) < self._rules.min_clients:
            raise self.too_few(number)
        missing = {
            name: left_out.get(name, members[name].state)
            for name in draw.members(number, names, names)
            if name not in present
        }
        ends = time.perf_counter() + self._rules.deadline
        return Attempt(number, attempt, present, missing, ends)

    def too_few(self, number: int) -> FederationError:
        """Return the error of a round that has too few clients."""
        states = "; ".join(f"{n}: {m.state}" for n, m in self._connections.members.items())
        return FederationError(
            f"Round {number} has fewer than min_clients = {self._rules.min_clients} clients "
            f"({states}). Go on with --resume when they are back, or lower min_clients in the "
            "study's [federation]."
        )

    def bytes(self) -> tuple[int, int]:
        """Return the bytes sent to all clients and received from them."""
        counts = [member.bytes for member in self._connections.members.values()]
        return sum(sent for sent, _ in counts), sum(received for _, received in counts)

    def next_event(self, ends: float) -> Incoming | None:
        """Take the next event, None when time is over; pass on a change of a client's status."""
        try:
            event = self._connections.inbox.get(timeout=max(0.0, ends - time.perf_counter()))
        except Empty:
            return None
        if isinstance(event, StatusChange):
            self._notify(event)
        return event

    def _available(self, left_out: dict[str, str]) -> list[str]:
        members = self._connections.members.items()
        return [name for name, member in members if member.available and name not in left_out]

    def _wait_for(self, number: int, wanted: int, seconds: float, left_out: dict[str, str]) -> None:
        members = self._connections.members
        ends = time.perf_counter() + seconds
        reported: list[str] = []
        while len(present := self._available(left_out)) < wanted:
            # Clients left out of a round are taken back when it is not possible without them.
            if len(present) + len(left_out) >= wanted:
                left_out.clear()
                continue
            away = {name: m.state for name, m in members.items() if name not in present}
            if list(away.values()) != reported:
                reported = list(away.values())
                self._notify(Waiting(number, present, away))
            self.next_event(min(ends, time.perf_counter() + 1))
            possible = sum(not member.excluded for member in members.values())
            if time.perf_counter() > ends or possible < wanted:
                return
