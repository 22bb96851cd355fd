"""Participants of a tiny method, whose program and whose clients' functions are the test's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import __version__
from fedtopics.engines.adder import Rules
from fedtopics.engines.decisions import ADDED, BEGUN
from fedtopics.engines.exchange import Door as AnyDoor
from fedtopics.engines.exchange import Exchange
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Log
from fedtopics.engines.messages import Failure, Reply, Waiting
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.protocol.values import loads
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.participant import ALONE, key_of
from fedtopics.federation.policy import Policy
from tests.helpers.background import PATIENCE, Background, Notes, until
from tests.helpers.hub import Hub

PROPOSAL = Proposal(__version__, "tiny", 1, {"clients": ["a", "b", "c"]}, "f00d")
POLICY = Policy(methods=("tiny",), min_documents=1, min_document_frequency=1, min_clients_in_sum=1)
RULES = Rules(min_clients=2, deadline=PATIENCE, gather=PATIENCE, wait=PATIENCE)
RUN, ORIGIN = b"run", b"origin"
Program = Callable[[Any], Any]


@dataclass
class Half:
    """A client's half of the tiny method: its functions are the test's."""

    functions: Mapping[str, Callable[..., dict[str, Any]]]
    method: str = "tiny"
    calls: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)  # of the calls
    attempt: int = 1  # by the door
    summed: int = 0
    noisy: bool = False

    @property
    def published(self) -> tuple[str, ...]:
        return tuple(self.functions)

    def __getattr__(self, function: str) -> Callable[..., dict[str, Any]]:
        def called(**payload: Any) -> dict[str, Any]:
            self.calls.append(function)
            self.attempts.append(self.attempt)
            return self.functions[function](**payload)

        return called


def door(name: str, half: Any, ledger: Path | None = None, policy: Policy = POLICY) -> Door:
    return Door(name, half, policy, Ledger("tiny", "f00d", ledger))


def introduced(
    name: str, signatures: Signatures, run: bytes = RUN, proposal: Proposal = PROPOSAL,
    key: bytes = b"",
) -> Introduction:  # fmt: skip
    """How somebody introduces itself in the study of these tests."""
    return Introduction(name, proposal, run, signatures, key=key)


class Member:
    """A client as it is, until its program ends or it is killed."""

    def __init__(
        self, name: str, names: Sequence[str], transport: Transport, answering: AnyDoor | None,
        program: Program, signatures: Signatures,
    ) -> None:  # fmt: skip
        self.notes = Notes()
        self.name = name
        unknown = introduced(name, signatures, b"")
        self.node = Node(name, (), transport, unknown, self.notes, keeps=False)
        self._joined = names, signatures
        self._door = answering
        self._program = program
        self.work = Background(self._run)

    def _run(self) -> Any:
        names, signatures = self._joined
        self.node.start()
        try:
            link, offer = self.node.offered()
            replica = Replica(self.name, [SERVER], names, Log(ORIGIN))
            key = b"" if self._door is None else key_of(self._door)
            introduction = introduced(self.name, signatures, offer.run, key=key)
            exchange = Exchange(self.node, ALONE, self.notes, self.name, self._door)
            self.node.join(link, offer, names, introduction, replica)
            found = self._program(exchange)
            self.node.done()
            return found
        finally:
            self.node.stop()


class Hand:
    """A client by hand: it has the log of decisions, and says what a test wants."""

    def __init__(
        self, name: str, names: Sequence[str], transport: Transport, signatures: Signatures
    ) -> None:
        self.notes = Notes()
        self.node = Node(
            name, (), transport, introduced(name, signatures, b""), self.notes, keeps=False
        )
        self.node.start()
        link, offer = self.node.offered()
        replica = Replica(name, [SERVER], names, Log(ORIGIN))
        self.node.join(link, offer, names, introduced(name, signatures, offer.run), replica)
        self.index = 0

    def begun(self, turn: int) -> dict[str, Any]:
        """Wait for a turn, until an attempt at it begins; return the decision."""
        self.node.say(Waiting(turn), self.index + 1)
        return self.next(BEGUN)

    def added(self) -> dict[str, Any]:
        """Wait until an exchange is decided."""
        return self.next(ADDED)

    def next(self, kind: str) -> dict[str, Any]:
        until(lambda: self.node.decided(self.index + 1))
        entry = self.node.decided(self.index + 1)
        assert entry is not None
        self.index += 1
        assert entry.kind == kind
        found: dict[str, Any] = loads(entry.content)
        return found

    def say(self, **reply: Any) -> None:
        """Reply to the exchange that is next."""
        self.late(self.index + 1, **reply)

    def late(self, index: int, **reply: Any) -> None:
        """Reply to an exchange."""
        digest, signature = self.node.sign(index)
        self.node.say(Reply(index, digest, signature, reply), self.index + 1)

    def fail(self, reason: str = "defect", leaves: bool = False) -> None:
        self.node.say(Failure(self.index + 1, reason, leaves), self.index + 1)

    def answer(self, **reply: Any) -> dict[str, Any]:
        """Reply, and wait what the exchange comes to."""
        self.say(**reply)
        return self.added()

    def error(self) -> BaseException:
        """Wait until it is sent away."""
        until(lambda: self.node._failure)
        assert self.node._failure is not None
        return self.node._failure


@dataclass
class Federation:
    """A server and its clients, over a hub or another transport."""

    hub: Any
    names: Sequence[str]
    rules: Rules
    notes: Notes = field(default_factory=Notes)
    signatures: Mapping[str, Signatures] = field(default_factory=dict)
    proposal: Proposal = PROPOSAL
    ends: list[Callable[[], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        introduction = introduced(SERVER, self.signed(SERVER), proposal=self.proposal)
        transport = self.hub.listen()
        self.node = Node(SERVER, self.names, transport, introduction, self.notes)
        self.exchange = Exchange(self.node, self.rules, self.notes)
        self.node.start(Replica(SERVER, [SERVER], self.names, Log(ORIGIN)))
        self.ends.append(self.node.stop)

    def signed(self, name: str) -> Signatures:
        return self.signatures.get(name, Unsigned())

    def lead(self, program: Program) -> Background:
        """Begin to execute the program at the server."""
        return Background(lambda: program(self.exchange))

    def member(
        self, name: str, half: Half | None, program: Program, ledger: Path | None = None,
        policy: Policy = POLICY, wrap: Callable[[Door], AnyDoor] = lambda door: door,
    ) -> Member:  # fmt: skip
        """Start a client."""
        answering = None if half is None else wrap(door(name, half, ledger, policy))
        port, signed = self.hub.port_of(name), self.signed(name)
        self.ends.append(lambda: self.hub.kill(name))
        return Member(name, self.names, port, answering, program, signed)

    def hand(self, name: str) -> Hand:
        """Join by hand; return when the server knows."""
        hand = Hand(name, self.names, self.hub.port_of(name), self.signed(name))
        self.ends.append(hand.node.stop)
        until(lambda: self.node.members[name].link)
        return hand

    def lost(self, name: str) -> None:
        """Cut somebody off, for good, and wait until the server knows."""
        self.hub.away.add(name)
        self.hub.cut(name)
        until(lambda: not self.node.members[name].link)

    def waits(self, name: str, turn: int) -> None:
        """Wait until a client has come to a turn."""
        until(lambda: self.node.members[name].ready(turn))


@contextmanager
def federation(
    names: Sequence[str] = "abc", rules: Rules = RULES, hub: Any = None, **more: Any
) -> Iterator[Federation]:
    """Start a server; end it, and all clients that were started."""
    federation = Federation(hub or Hub(), names, rules, **more)
    try:
        yield federation
    finally:
        for end in reversed(federation.ends):
            end()


# Programs, and clients of them


def adding(x: float) -> Half:
    """A client whose first function gives x, whose second gives x times what is shared."""
    return Half(
        {
            "first": lambda **_: {"x": np.array([x]), "documents": 1},
            "second": lambda shared, **_: {"x": shared * x, "documents": 1},
        }
    )


def rounds(
    *numbers: int, before: Callable[[int], Any] = lambda number: None, template: Any = None
) -> Program:
    """A program of rounds of one exchange; returns each one's sum and report."""

    def program(clients: Any) -> list[tuple[float, dict[str, Any]]]:
        found = []
        for number in numbers:
            before(number)
            work = lambda n=number: clients.sum("first", template, round=n)  # noqa: E731
            total, report = clients.round(number, work)
            found.append((float(total["x"].sum()), report))
        return found

    return program


def honest(f: Federation, program: Program) -> dict[str, Half]:
    """Start the clients a and c."""
    halves = {"a": adding(1.0), "c": adding(100.0)}
    for name, half in halves.items():
        f.member(name, half, program)
    return halves


def x(value: float) -> dict[str, Any]:
    return {"x": np.array([value]), "documents": 1}
