"""Who adds up and lies: an adder by hand, which says to real clients what a test likes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedtopics.engines.decisions import ADDED, BEGUN
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Entry, Log
from fedtopics.engines.log_messages import Append, Begin, Position
from fedtopics.engines.messages import Accept, Message, Replicated, Reply, Welcome
from fedtopics.engines.transport import Closed, Opened, Transport
from fedtopics.protocol.values import dumps
from fedtopics.errors import FedTopicsError
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.server import origin, proposal
from fedtopics.federation.study import Study
from fedtopics.methods.core.aggregation import Rows
from tests.helpers.background import Background, Notes, until
from tests.helpers.federation import subjects
from tests.helpers.hub import Hub
from tests.helpers.sums import add_up

RUN = bytes(range(16))


class Liar:
    """An adder that keeps a log for each client, so that it can tell them different things.

    `pretends` has the signatures of clients that are not there: they are the liar's friends.
    """

    def __init__(
        self, members: Sequence[str], proposed: Proposal, origin: bytes, transport: Transport,
        run: bytes = RUN, pretends: Mapping[str, Signatures] | None = None,
    ) -> None:  # fmt: skip
        self.run = run
        self.members = list(members)
        self.transport = transport
        self.links: dict[str, str] = {}  # by client
        self.gone: set[str] = set()
        self.logs: dict[str, Log] = {}
        self.accepted: dict[str, Accept] = {}
        self._origin = origin
        self._introduction = Introduction(SERVER, proposed, run, Unsigned())
        self._friends = {
            name: Introduction(name, proposed, run, signs)
            for name, signs in (pretends or {}).items()
        }
        self._heard: dict[str, list[Message]] = {}
        transport.start()

    @classmethod
    def of(cls, plan: Study, transport: Transport, run: bytes = RUN, **more: Any) -> Liar:
        """Return the one of a study."""
        proposed = proposal(plan, None)
        return cls(list(plan.clients), proposed, origin(plan, run), transport, run, **more)

    def take(self) -> None:
        """Take what came, and answer as an honest adder does."""
        arrived = self.transport.receive(0.005)
        while arrived:
            for link, what in arrived:
                self._take(link, what)
            arrived = self.transport.receive(0.0)

    def _take(self, link: str, what: Any) -> None:
        if isinstance(what, Opened):
            self.transport.send(link, self._introduction.offer())
        elif isinstance(what, Accept):
            self.links[what.name], self.accepted[what.name] = link, what
            self.gone.discard(what.name)
            self.transport.send(link, Welcome(SERVER, b"a certificate"))
        else:
            self._of_client(link, what)

    def _of_client(self, link: str, what: Any) -> None:
        name = next((name for name, its in self.links.items() if its == link), "")
        if isinstance(what, Closed):
            self.gone.add(name)
        elif isinstance(what, Replicated):
            said = what.read()
            if isinstance(said, Position):
                self._serve(name, said)
        else:
            self._heard.setdefault(name, []).append(what)

    def _serve(self, name: str, position: Position) -> None:
        log = self.logs.setdefault(name, Log(self._origin))
        index = min(position.committed, log.last)
        begin = Begin(0, index, log.digest(index), position.digests[-1], 0, log.last)
        self.say(name, Replicated.of(begin))
        self._append(name, index)

    def _append(self, name: str, index: int) -> None:
        log = self.logs[name]
        entries = tuple(log.entry(number) for number in range(index + 1, log.last + 1))
        if entries:
            append = Append(0, index, log.digest(index), entries, log.last)
            self.say(name, Replicated.of(append))

    def say(self, name: str, message: Message) -> None:
        self.transport.send(self.links[name], message)

    def joined(self, *names: str) -> None:
        """Wait until clients have joined, and follow."""

        def there() -> bool:
            self.take()
            return all(name in self.logs for name in names)

        until(there)

    def hear(self, name: str, kind: type[Message]) -> Any:
        """Wait for what a client says next, of a kind."""
        found: list[Message] = []

        def said() -> bool:
            self.take()
            heard = self._heard.setdefault(name, [])
            while heard and not found:
                if isinstance(message := heard.pop(0), kind):
                    found.append(message)
            return bool(found)

        until(said)
        return found[0]

    # Decisions

    def decide(self, name: str, kind: str, content: Any) -> None:
        """Tell a client that something was decided."""
        log = self.logs[name]
        raw = content if isinstance(content, bytes) else dumps(content)
        log.append([Entry(kind, raw)])
        self._append(name, log.last - 1)

    def begun(self, turn: int, /, **other: Any) -> dict[str, Any]:
        """What an honest adder says when an attempt begins."""
        certificates = {
            name: self.accepted[name].certificate if name in self.accepted else b""
            for name in self.members
        }
        certificates |= {n: f._signatures.certificate for n, f in self._friends.items()}
        return {
            "turn": turn, "attempt": 1, "round": turn - 1, "members": self.members, "missing": {},
            "allowance": 1 << 30, "certificates": certificates,
            "keys": {n: self.accepted[n].key if n in self.accepted else b"" for n in certificates},
        } | other  # fmt: skip

    def added(
        self, name: str, replies: Mapping[str, Reply], one_by_one: bool = False, **other: Any
    ) -> dict[str, Any]:
        """What it says when these replies, and its friends' like that of a client, are added up."""
        index, own, first = self.logs[name].last + 1, replies[name], replies[min(replies)]
        given = {n: replies[n].reply if n in replies else first.reply for n in self.members}
        signatures = {n: replies[n].signature if n in replies else b"" for n in self.members}
        for friend, introduction in self._friends.items():
            signatures[friend] = introduction.sign_digest(index, own.digest)
        result = {"replies": given} if one_by_one else {"total": add_up(given)}
        decided = {"index": index, "missing": {}, "again": False, "signatures": signatures}
        return decided | result | other

    def begin(self, turn: int, *names: str) -> None:
        """Begin an attempt honestly, with these clients."""
        for name in names:
            self.decide(name, BEGUN, self.begun(turn))

    def exchange(self, *names: str, one_by_one: bool = False) -> dict[str, Reply]:
        """Add up honestly, or pass on; return the replies."""
        replies = {name: self.hear(name, Reply) for name in names}
        decided = self.added(names[0], replies, one_by_one)
        for name in names:
            self.decide(name, ADDED, decided)
        return replies

    def agree(self, *names: str) -> None:
        """Do LDA's first turn, the agreement on words, honestly."""
        self.joined(*names)
        self.begin(1, *names)
        self.exchange(*names)
        self.exchange(*names, one_by_one=True)


# Studies that are lied to

SIZES = {"north": 40, "south": 30, "west": 30}
POLICY = Policy(min_documents=5, min_document_frequency=1, min_clients_in_sum=3)


def planned(**method: Any) -> Study:
    lda = {"name": "lda", "n_components": 4, "max_rounds": 6, "batch_size": 20}
    lda["initialisation"] = "random"
    limits = {"min_document_frequency": 1}
    plan = Study.make(method=lda | method, vocabulary=limits, secure=False)
    return plan.with_clients(SIZES)


@dataclass
class Client:
    """A real client, and what it did."""

    part: Participation
    work: Background
    events: Notes = field(default_factory=Notes)

    @property
    def left(self) -> list[dict[str, Any]]:
        return [line for line in self.ledger if line["what"] == "left"]

    @property
    def ledger(self) -> list[dict[str, Any]]:
        lines = (self.part.out / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def calls(self) -> int:
        return len(self.events.of("call"))


@dataclass
class Scene:
    """A liar, and real clients that believe it to be the server."""

    plan: Study
    folder: Path
    hub: Hub = field(default_factory=Hub)
    identities: dict[str, Signatures] = field(default_factory=dict)
    clients: list[Client] = field(default_factory=list)

    def liar(self, *real: str, **more: Any) -> Liar:
        friends = {n: s for n, s in self.identities.items() if n not in real}
        return Liar.of(self.plan, self.hub.listen(), pretends=friends, **more)

    def client(self, name: str = "north", policy: Policy = POLICY) -> Client:
        notes = Notes()
        part = Participation(name, subjects(SIZES)[name], policy, self.folder / name, notes.append)
        signed = self.identities.get(name, Unsigned())
        work = Background(lambda: part.take_part(self.hub.port_of(name), signed))
        self.clients.append(Client(part, work, notes))
        return self.clients[-1]


def stops(
    client: Client, liar: Liar, round_: int, left: int, calls: int | None = None, said: str = ""
) -> str:
    """The client ends with one sentence that names the round; nothing has left since."""

    def ended() -> bool:
        liar.take()
        return not client.work.running

    until(ended)
    error = client.work.error()
    assert isinstance(error, FedTopicsError), repr(error)
    message = str(error)
    where = said or f"round {round_}"
    assert where in message or f"turn {round_ + 1}" in message, message
    assert len(client.left) == left
    assert client.calls == (left if calls is None else calls)
    return message


def times(rows: Rows, factor: float) -> Rows:
    return Rows(rows.index, rows.values * factor, rows.n_rows)
