"""The rounds of a plain server: their clients, and the results of their steps."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from fedtopics import waiting
from fedtopics.contract.events import Event, Repeated, Waiting
from fedtopics.contract.interfaces import Draw
from fedtopics.contract.replies import ReplyValidator
from fedtopics.errors import FederationError, RunError
from fedtopics.protocol.outliers import Robust, Rule
from fedtopics.protocol.plain import Attempt, Request
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.values import loads

LATE = "it was away, or too late"


class FederationSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """How plain aggregation treats absent, late or faulty clients.

    These settings are not part of the fingerprint, so they may change before a run is resumed.
    """

    quorum: int | None = Field(
        None, ge=1, description="fewest clients in a round; by default more than half"
    )
    round_timeout: float = Field(
        waiting.ROUND,
        gt=0,
        description="seconds for a round, which then continues without missing clients",
    )
    join_timeout: float = Field(
        waiting.JOIN, ge=0, description="seconds that the server waits for all clients at the start"
    )
    quorum_timeout: float = Field(
        waiting.QUORUM,
        ge=0,
        description="seconds that a round waits for the quorum before the run ends",
    )
    outliers: Rule | None = Field(
        None,
        description='how plain aggregation treats updates far from the others: "none" changes '
        'nothing, "clip" limits them, "median" takes the median over clients; by default "clip"',
    )
    round_interval: float = Field(
        0.0, ge=0, description="seconds between two rounds, in which documents can arrive"
    )
    largest_message: int = Field(1024, ge=1, description="largest message, in megabytes")


class Rounds:
    """The `Source` of the server's own program, which decides on the entries."""

    def __init__(
        self,
        server: PlainServer,
        rules: FederationSettings,
        quorum: int,  # fewest clients of a round
        notify: Callable[[Event], None],
    ) -> None:
        self._server = server
        self._rules = rules
        self._quorum = quorum
        self._notify = notify
        self._robust = Robust(rules.outliers or "clip", notify)
        self._validator = ReplyValidator(len(server.names), notify)
        self._has_gathered = False
        self._limit = math.inf  # time after which a round is not repeated with lost clients

    def traffic(self) -> tuple[int, int]:
        return self._server.traffic

    def has(self, step: int) -> bool:
        """See `Source.has`; the server contributes nothing."""
        return True

    def leave(self, reason: str) -> None:
        """Do nothing: a server has no door that refuses."""

    def done(self, step: int) -> None:
        """Do nothing: the server writes its own model."""

    def _written(self, step: int) -> bytes | None:
        """Return an entry that an earlier process wrote."""
        log = self._server.log
        content = log.get(step)
        if content is None and step != log.next:
            raise RunError(
                f"The log lacks step {step} of this run; restore the whole folder, or start a new "
                "run: set run in the study to the next number."
            )
        return content

    # The clients of a round

    def begin(self, step: int, attempt: Attempt, draw: Draw, left_out: Mapping[str, str]) -> bytes:
        """Choose the clients of an attempt. FederationError if too few are there in time."""
        if (content := self._written(step)) is not None:
            return content
        server = self._server
        rules = self._rules
        number = attempt.round
        self._validator.begin()
        if attempt.number == 1:
            self._limit = math.inf

        def chosen(present: list[str]) -> list[str]:
            return self._enough(draw.members(number, server.names, present))

        if not self._has_gathered:  # a server that was restarted waits for all as well
            self._wait(
                number, rules.join_timeout, lambda present: present == server.possible(), False
            )
            self._has_gathered = True
        self._wait(
            number,
            rules.quorum_timeout,
            lambda present: len(chosen(present)) >= self._quorum,
            True,
        )
        with server.changed:
            present = server.there()
            now = time.monotonic()
            members = chosen([name for name in present if name not in left_out])
            if len(members) < self._quorum and left_out:  # too few without the lost clients
                members = chosen(present) if now <= self._limit else []
                self._limit = min(self._limit, now + rules.quorum_timeout)
            if len(members) < self._quorum:
                raise self._too_few(number)
            missing = {
                name: left_out.get(name) or self._why_not(name)
                for name in draw.members(number, server.names, server.names)
                if name not in members
            }
        return server.publish({"name": attempt.name, "members": members, "missing": missing})

    def _enough(self, members: list[str]) -> list[str]:
        """Leave out clients whose policies require more clients than there are."""
        while few := [n for n in members if self._server.clients[n].least > len(members)]:
            members = [name for name in members if name not in few]
        return members

    def _why_not(self, name: str) -> str:
        client = self._server.clients[name]
        return client.absence() or f"its policy requires {client.least} clients"

    def _too_few(self, round_: int) -> FederationError:
        states = (
            f"{name}: {self._server.clients[name].absence() or 'connected'}"
            for name in self._server.names
        )
        return FederationError(
            f"Round {round_} has fewer than quorum = {self._quorum} clients "
            f"({'; '.join(states)}); start the same command again when the others are back. If "
            "they do not return, lower quorum in the study's [federation]."
        )

    def _wait(
        self, round_: int, seconds: float, is_enough: Callable[[list[str]], bool], ends: bool
    ) -> None:
        """Wait for clients, unless too few could come."""
        server = self._server
        until = time.monotonic() + seconds
        shown: list[str] | None = None
        with server.changed:
            while not is_enough(present := server.there()) and is_enough(server.possible()):
                server.awaited = [name for name in server.possible() if name not in present]
                left = until - time.monotonic()
                if present != shown:
                    shown = present
                    away = {n: self._why_not(n) for n in server.names if n not in present}
                    self._notify(Waiting(round_, present, away, left, ends))
                if left <= 0:
                    break
                server.wait(min(left, waiting.CHECK))
            server.awaited = ()

    # The updates

    def add(self, step: int, attempt: Attempt, request: Request, own: bytes | None) -> bytes:
        """Collect the updates of a step, and write their result."""
        if (content := self._written(step)) is not None:
            return content
        server = self._server
        members = attempt.members
        total = self._robust.sum(
            request.function, request.template, attempt.exchanges + 1, attempt.round
        )
        replies = dict[str, Any]()
        faults = dict[str, str]()
        lost = dict[str, str]()
        until = time.monotonic() + self._rules.round_timeout
        server.open(members)
        for name in members:  # in this order, so that the order of arrival changes no bit
            content = server.received(name, until)
            if content is None:
                lost[name] = server.clients[name].excluded or server.clients[name].away or LATE
            elif fault := self._read(name, content, request, replies):
                faults[name] = fault
            elif not request.is_call:
                total.add(replies.pop(name), name)
        reasons = self._validator.blame(faults, members, attempt.round)
        for name in self._validator.excluded.keys() & faults.keys():
            server.clients[name].excluded = self._validator.excluded[name]
        for name, reason in lost.items():
            server.lose(name, reason)
        missing = {**lost, **reasons}
        left = [name for name in members if name not in missing]
        few = len(left) < self._quorum or self._enough(left) != left
        again = bool(faults or (lost and attempt.exchanges) or few)
        entry = {"name": request.function, "missing": missing, "again": again}
        if again:
            self._notify(Repeated(attempt.round, {**attempt.missing, **missing}))
        else:
            entry["result"] = replies if request.is_call else total.total()
        return server.publish(entry)

    def _read(self, name: str, content: bytes, request: Request, replies: dict[str, Any]) -> str:
        """Read an update; return its fault, or ""."""
        try:
            reply = loads(content, self._server.largest)
        except FederationError:
            return "it is damaged"
        fault = self._validator.fault(name, reply, request.template)
        if not fault:
            replies[name] = reply
        return fault
