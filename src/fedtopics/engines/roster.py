"""Who of a study's clients was asked what, over any engine between machines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from queue import SimpleQueue
from typing import Generic, TypeVar

from fedtopics.engines.connections import Call, CallFailed, Incoming, Member
from fedtopics.methods.events import StatusChange

M = TypeVar("M", bound=Member)


class Roster(ABC, Generic[M]):
    """Send calls to members, and note in `inbox` what comes of it."""

    def __init__(self, members: Mapping[str, M]) -> None:
        self.inbox: SimpleQueue[Incoming] = SimpleQueue()
        self.members = members
        self._standing: dict[str, Call] = {}

    @abstractmethod
    def send(self, member: M, call: Call) -> None:
        """Send a call to a member that is connected; do not wait."""

    def dispatch(self, call: Call, names: Iterable[str], standing: bool) -> None:
        """Send a call to some members; a standing one to all others when they are free."""
        if standing:
            self._standing[call.function] = call
        for name in names:
            member = self.members[name]
            if member.available:
                member.call = call
                self.send(member, call)
            else:
                self.inbox.put(CallFailed(name, call.id, member.state, bad=False))
        for member in self.members.values() if standing else ():
            if member.call is not call:  # it came late, or is late
                self.catch_up(member)

    def catch_up(self, member: M) -> None:
        """Repeat the standing calls that a member has not answered, one after the other."""
        missed = [call for call in self._standing.values() if call.id not in member.answered]
        if member.connected and not missed and not member.ready:
            self.inbox.put(StatusChange("ready", member.name))
        member.ready = member.connected and not missed
        if missed and member.connected and member.call is None and member.late is None:
            member.late = missed[0].id
            self.send(member, missed[0])

    def fail(self, member: M, reason: str, bad: bool = False) -> None:
        """Note that a member's call, if there is one, gets no reply."""
        if member.call is not None:
            self.inbox.put(CallFailed(member.name, member.call.id, reason, bad))
            member.call = None

    def give_up(self, call: int, reason: str, everyone: bool) -> None:
        """Wait no longer for the replies to a call; or for those alone that have not come."""
        for member in self.members.values():
            if member.has(call) and (everyone or not member.waits_for_memory):
                member.late = call
                self.fail(member, reason)

    def standing_call(self, number: int) -> Call | None:
        """Return the standing call of a number, or None."""
        return next((call for call in self._standing.values() if call.id == number), None)
