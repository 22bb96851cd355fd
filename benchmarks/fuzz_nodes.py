"""Who hears a fuzzer: a server, a client and a peer in one process, and a study on a port."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from fedtopics.engines.feeds import Settings
from fedtopics.engines.grpc.frames import SERVICE
from fedtopics.engines.handshake import Introduction, Proposal, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Entry, Log
from fedtopics.engines.messages import Accept, Message, Offer, Outgoing, Welcome, read_bytes
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Closed, Opened
from fedtopics.errors import FederationError, FedTopicsError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.helpers.programs import adding, federation, rounds
from tests.helpers.sockets import Sockets

NAMES = ("a", "b", "c")
PROPOSAL = Proposal("0.1.0", "lda", 1, {"clients": list(NAMES)}, "f00d")
RUN = b"run"
LIFE = 400  # messages that one node hears
STEP = 0.3  # seconds that pass between two of them, so that adders are given up, and come back
AT_ONCE = 8  # connections
PATIENCE = 1.0  # seconds of one of them
ROUNDS = 20
SLOW = 0.01  # seconds of a round, so that frames come in all of them


class Recording:
    """A transport that sends nowhere; keeps the last challenge, to be answered."""

    def __init__(self) -> None:
        self.challenges: dict[str, bytes] = {}
        self.closed: set[str] = set()

    def send(self, link: str, message: Message) -> None:
        if isinstance(message, Offer):
            self.challenges[link] = message.challenge

    def close(self, link: str) -> None:
        self.closed.add(link)

    def allow(self, size: int, link: str = "") -> None:
        """Do nothing: it has come."""

    def quiet(self) -> None:
        """Nobody waits."""


class Hearer:
    """A node with links to others, whose messages a fuzzer writes."""

    def __init__(self, own: str, voters: tuple[str, ...], listens_to: tuple[str, ...]) -> None:
        self.transport = Recording()
        self.others = [name for name in (SERVER, *NAMES) if name != own]
        self._listens_to = listens_to  # who offers it the study
        introduction = Introduction(own, PROPOSAL, RUN, Unsigned())
        transport: Any = self.transport
        self.node = Node(own, NAMES, transport, introduction, lambda _: None, own != "c")
        log = Log(b"origin")
        log.append([Entry("begun", b"x" * 40), Entry("added", b"y" * 40)])
        log.committed = 1
        self.replica = Replica(own, voters, set(NAMES) - set(voters), log, Settings())
        self.node._replica = self.replica
        self.now = 0.0
        for name in self.others:
            self.link(name)

    def link(self, name: str) -> None:
        """Let somebody be at its link, as if it had just come."""
        node, offers = self.node, name not in self._listens_to
        node._take(name, Opened(offers, "" if name == SERVER else name))
        if offers and name in self.transport.challenges:
            accept = Accept(name, "f00d", name.encode(), 1, b"", b"")
            node._links.admit(name, accept)
        elif not offers:
            node._links.welcomed(name, Welcome(name))

    def hear(self, link: str, message: Message) -> str:
        """Take a message, as `Node` does in its thread; say what came of it."""
        node = self.node
        outcome = "read"
        try:
            node._take(link, message)
        except FedTopicsError as error:
            outcome = "refused"
            node._links.refuse(link, str(error), again=True)
        self.now += STEP
        self.replica.tick(self.now)
        node._flush()
        node._look_for_disagreements(self.replica)
        node._look_for_adder(self.replica)
        node._look_for_majority(self.replica)
        while node._next_heard()[0]:
            pass
        if node._failure is not None and not isinstance(node._failure, FedTopicsError):
            raise node._failure
        for closed in sorted(self.transport.closed):
            node._take(closed, Closed())
            self.link(closed)
        self.transport.closed.clear()
        return outcome

    @property
    def ended(self) -> bool:
        """Whether it takes part no more, as a fuzzer that all believe can bring about."""
        return self.node._failure is not None or self.replica.halted


class Stage:
    """Who hears the next message: a server, a client, a peer, each for a while."""

    def __init__(self) -> None:
        self._turns = cycle(HEARERS)
        self._begin()

    def _begin(self) -> None:
        self.name, hearer = next(self._turns)
        self._hearer, self._left = Hearer(*hearer), LIFE

    def next(self) -> None:
        """Let the next one come, if who was there has heard enough."""
        self._left -= 1
        if not self._left or self._hearer.ended:
            self._begin()

    def draw(self, rng: np.random.Generator, message: Message) -> tuple[str, Message]:
        """Draw the link of a message, which travels as bytes."""
        link = str(rng.choice(self._hearer.others))
        return link, read_bytes(Outgoing.of(message).bytes())

    def take(self, link: str, message: Message) -> str:
        return self._hearer.hear(link, message)


HEARERS: list[tuple[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = [
    ("a server", (SERVER, (SERVER,), ())),
    ("a client", ("c", (SERVER,), (SERVER,))),
    ("a peer", ("b", NAMES, ("a",))),
]


def port_of_a_study(streams: Iterable[list[bytes]]) -> int:
    """Send frames to the port of a server, beside its study; return over how many connections.

    An error if the study is harmed: it does not come to its totals, or something was raised. No
    frame says that it is of one of the study's two clients: without certificates, it would be.
    """
    errors: list[str] = []
    before = threading.excepthook
    threading.excepthook = lambda problem: errors.append(repr(problem.exc_value))
    try:
        hub: Any = Sockets()
        with federation("ac", hub=hub) as f:
            transport: Any = f.node._transport
            transport._loop.set_exception_handler(
                lambda _, context: errors.append(str(context.get("exception", context["message"])))
            )
            slowly = threading.Event()
            program = rounds(*range(1, ROUNDS + 1), before=lambda _: slowly.wait(SLOW))
            work = f.lead(program)
            members = [f.member(n, adding(x), program) for n, x in (("a", 1.0), ("c", 100.0))]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                ends = Counter(pool.map(lambda raws: stranger(hub.port, raws), streams))
            found = [total for total, _ in work.result()]
            for member in members:
                member.work.result()
        if found != [101.0] * ROUNDS:
            raise ArithmeticError(f"the honest study came to {found}")
        if errors:
            raise RuntimeError(errors[0])
        return ends.total()
    finally:
        threading.excepthook = before


def stranger(port: int, raws: list[bytes]) -> str:
    """Say frames over a connection of one's own; return how it ended."""
    said = threading.Event()

    def frames() -> Iterator[bytes]:
        yield from raws
        said.wait(0.02)  # or the end would overtake them

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            for _ in channel.stream_stream(f"/{SERVICE}/Join")(frames(), timeout=PATIENCE):
                pass
        except grpc.RpcError as error:
            code = error.code()
            if code == grpc.StatusCode.UNKNOWN:
                raise FederationError(f"the server failed: {code}") from None
            return str(code)
    return "closed"
