"""The rounds of a plain server: who takes part in them, and what their steps come to."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedtopics.errors import FederationError, RunError
from fedtopics.methods.core.events import BadReply, Event, Excluded, Repeated, Waiting
from fedtopics.methods.core.interfaces import Draw
from fedtopics.methods.core.outliers import Robust, Rule
from fedtopics.methods.core.replies import BAD_REPLIES, ReplyValidator, check_blame
from fedtopics.protocol.plain import Attempt, Request
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.values import loads

PAUSE = 1.0  # seconds between two looks at who is away
LATE = "it was away, or too late"


@dataclass(frozen=True)
class Rules:
    """When rounds count; times are in seconds."""

    quorum: int  # fewest clients of a round
    join_timeout: float  # that the first round of a process waits for all clients
    quorum_timeout: float  # that any round waits for the quorum
    round_timeout: float  # for the updates of a step
    outliers: Rule = "none"


class Rounds:
    """The `Source` of entries of the server's own program, which decides what they are."""

    def __init__(self, server: PlainServer, rules: Rules, notify: Callable[[Event], None]) -> None:
        self._server = server
        self._rules = rules
        self._notify = notify
        self._robust = Robust(rules.outliers, notify)
        self._validator = ReplyValidator()
        self._bad: Counter[str] = Counter()  # replies
        self._has_gathered = False
        self._limit = math.inf  # from when on a round is not repeated with clients that it lost

    def traffic(self) -> tuple[int, int]:
        """See `Source.traffic`."""
        return self._server.traffic

    def has(self, step: int) -> bool:
        """See `Source.has`; the server contributes nothing."""
        return True

    def leave(self, reason: str) -> None:
        """Do nothing: a server has no door that refuses."""

    def done(self, step: int) -> None:
        """Do nothing: the server writes its own model."""

    def _written(self, step: int) -> bytes | None:
        """Return the entry of an earlier process."""
        log = self._server.log
        content = log.get(step)
        if content is None and step != log.next:
            raise RunError(
                f"The log lacks step {step} of this run; restore the whole folder, or begin a new "
                "run: set run in the study to the next number."
            )
        return content

    # Who takes part

    def begin(self, step: int, attempt: Attempt, draw: Draw, left_out: Mapping[str, str]) -> bytes:
        """Decide who takes part in an attempt at a round. FederationError if too few do in time."""
        if (content := self._written(step)) is not None:
            return content
        server, rules, number = self._server, self._rules, attempt.round
        self._validator = ReplyValidator()
        if attempt.number == 1:
            self._limit = math.inf

        def chosen(there: list[str]) -> list[str]:
            return self._enough(draw.members(number, server.names, there))

        if not self._has_gathered:  # a server that was restarted waits for all as well
            self._wait(number, rules.join_timeout, lambda there: there == server.possible())
            self._has_gathered = True
        self._wait(number, rules.quorum_timeout, lambda there: len(chosen(there)) >= rules.quorum)
        with server.changed:
            there, now = server.there(), time.monotonic()
            members = chosen([name for name in there if name not in left_out])
            if len(members) < rules.quorum and left_out:  # impossible without clients it lost
                members = chosen(there) if now <= self._limit else []
                self._limit = min(self._limit, now + rules.quorum_timeout)
            if len(members) < rules.quorum:
                raise self._too_few(number)
            missing = {
                name: left_out.get(name) or self._why_not(name)
                for name in draw.members(number, server.names, server.names)
                if name not in members
            }
        return server.publish({"name": attempt.name, "members": members, "missing": missing})

    def _enough(self, members: list[str]) -> list[str]:
        """Leave out clients whose policies require more clients than there are."""
        clients = self._server.clients
        while few := [name for name in members if clients[name].least > len(members)]:
            members = [name for name in members if name not in few]
        return members

    def _why_not(self, name: str) -> str:
        client = self._server.clients[name]
        return client.absence() or f"its policy requires {client.least} clients"

    def _too_few(self, round_: int) -> FederationError:
        clients = self._server.clients
        states = (f"{n}: {clients[n].absence() or 'connected'}" for n in self._server.names)
        return FederationError(
            f"Round {round_} has fewer than quorum = {self._rules.quorum} clients "
            f"({'; '.join(states)}). Start the same command again when the others are back, or "
            "lower quorum in the study's [federation]."
        )

    def _wait(self, round_: int, seconds: float, is_enough: Callable[[list[str]], bool]) -> None:
        """Wait for clients, unless those that are not excluded are too few anyway."""
        server, until = self._server, time.monotonic() + seconds
        shown: list[str] | None = None
        with server.changed:
            while not is_enough(there := server.there()) and is_enough(server.possible()):
                server.awaited = [name for name in server.possible() if name not in there]
                if there != shown:
                    shown = there
                    away = {n: self._why_not(n) for n in server.names if n not in there}
                    self._notify(Waiting(round_, there, away))
                if (left := until - time.monotonic()) <= 0:
                    break
                server.wait(min(left, PAUSE))
            server.awaited = ()

    # What they say

    def add(self, step: int, attempt: Attempt, request: Request, own: bytes | None) -> bytes:
        """Collect the updates of a step, and write what they come to."""
        if (content := self._written(step)) is not None:
            return content
        server, members = self._server, attempt.members
        total = self._robust.sum(
            request.function, request.template, attempt.exchanges + 1, attempt.round
        )
        replies, faults, lost = dict[str, Any](), dict[str, str](), dict[str, str]()
        until = time.monotonic() + self._rules.round_timeout
        server.open(members)
        for name in members:  # in this order: the order of arrival changes no bit
            content = server.received(name, until)
            if content is None:
                lost[name] = server.clients[name].excluded or server.clients[name].away or LATE
            elif fault := self._read(name, content, request, replies):
                faults[name] = f"sent a bad reply: {fault}"
            elif not request.is_call:
                total.add(replies.pop(name), name)
        check_blame(faults, members, len(server.names))
        self._count(attempt.round, faults)
        for name, reason in lost.items():
            server.lose(name, reason)
        missing = {**lost, **faults}
        left = [name for name in members if name not in missing]
        few = len(left) < self._rules.quorum or self._enough(left) != left
        again = bool(faults or (lost and attempt.exchanges) or few)
        entry = {"name": request.function, "missing": missing, "again": again}
        if again:
            self._notify(Repeated(attempt.round, {**attempt.missing, **missing}))
        else:
            entry["result"] = replies if request.is_call else total.total()
        return server.publish(entry)

    def _read(self, name: str, content: bytes, request: Request, replies: dict[str, Any]) -> str:
        """Read an update; return what is wrong with it."""
        try:
            reply = loads(content, self._server.largest)
        except FederationError:
            return "it is damaged"
        fault = self._validator.fault(name, reply, request.template)
        if not fault:
            replies[name] = reply
        return fault

    def _count(self, round_: int, faults: Mapping[str, str]) -> None:
        """Count bad replies; exclude who sent too many."""
        for name, reason in faults.items():
            self._bad[name] += 1
            self._notify(BadReply(name, round_, reason))
            if self._bad[name] == BAD_REPLIES:
                reason = f"{BAD_REPLIES} bad replies, the last: {reason}"
                self._server.clients[name].excluded = reason
                self._notify(Excluded(name, round_, reason))
