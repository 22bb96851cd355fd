"""Servers and clients of the gRPC engine in this process, over real connections on loopback.

`Member` is a client as it is, in a thread; `Raw` is a client's end of the stream by hand, which
says what a test wants to have said.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc

from fedtopics import __version__, pki
from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.attendance import Rules
from fedtopics.engines.grpc.client import Client
from fedtopics.engines.grpc.connection import channel_credentials, server_credentials
from fedtopics.engines.grpc.frames import CHUNK, SERVICE, chunks
from fedtopics.engines.grpc.server import Server
from fedtopics.engines.handshake import WIRE_VERSION, Proposal
from fedtopics.engines.rounds import RemoteClients
from fedtopics.engines.values import body_size, pack, unpack
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import GrpcParticipation, serve
from fedtopics.federation.study import Study
from fedtopics.methods.events import Event
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity
from fedtopics.text.corpus import Corpus

PATIENCE = 60.0  # seconds; a test that waits so long has failed
HOST = "127.0.0.1"
PROPOSAL = Proposal(__version__, "tiny", 1, {"clients": ["a", "b", "c"]}, "f00d")
VERSIONS = (__version__, {"tiny": 1})
POLICY = Policy(methods=("tiny",), min_documents=1, min_document_frequency=1)
T = TypeVar("T")
RULES = Rules(min_clients=2, deadline=PATIENCE, gather=0.0, wait=PATIENCE)


def until(true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something is true."""
    ends = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.005)


class Notes(list[dict[str, Any]]):
    """What a run or a client was told, in order."""

    def __call__(self, event: Event) -> None:
        self.append(event.plain())

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in self if note["event"] == kind]


@dataclass
class Half:
    """A client's half of a tiny method: its functions are the test's."""

    functions: Mapping[str, Callable[..., dict[str, Any]]]
    method: str = "tiny"
    calls: list[str] = field(default_factory=list)

    @property
    def published(self) -> tuple[str, ...]:
        return tuple(self.functions)

    def __getattr__(self, function: str) -> Callable[..., dict[str, Any]]:
        def called(**payload: Any) -> dict[str, Any]:
            self.calls.append(function)
            return self.functions[function](**payload)

        return called


def door(name: str, half: Half, ledger: Path | None = None, policy: Policy = POLICY) -> Door:
    return Door(name, half, policy, Ledger("tiny", "f00d", ledger))


class Loop:
    """One asyncio loop for all clients of the tests: gRPC does not like it when loops end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._works: list[tuple[object, Future[Any]]] = []
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], owner: object) -> T:
        self._works.append((owner, self.start(work)))
        found: T = self._works[-1][1].result()
        return found

    def working(self, owner: object) -> list[Future[Any]]:
        return [work for whose, work in self._works if whose is owner]


LOOP = Loop()


def _run_in_that_loop(self: Client) -> None:
    LOOP.run(self.take_part(), self._participant)


# A process has one client, a test's process many.
Client.run = _run_in_that_loop  # type: ignore[method-assign]


class Member:
    """A client as it is, until it ends, is dismissed or killed."""

    def __init__(
        self,
        address: str,
        name: str,
        answering: Door,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.notes = Notes()
        self.files: Mapping[str, Any] = {}
        self._answering = answering
        client = Client(address, credentials, name, VERSIONS, self, self.notes)
        self._work = LOOP.start(client.take_part())

    def consider(self, proposal: Proposal) -> Door:
        return self._answering

    def receive(self, files: Mapping[str, Any]) -> None:
        self.files = files

    def diagnose(self) -> str:
        return ""

    def error(self) -> BaseException | None:
        """Wait for its end; return what it raised."""
        return self._work.exception(PATIENCE)

    def kill(self) -> None:
        """End it at once, as a process that dies: without a word to the server."""
        self._work.cancel()
        wait([self._work], PATIENCE)


class Raw:
    """A client's end of a stream, by hand."""

    def __init__(
        self,
        port: int,
        name: str = "",
        process: bytes = b"",
        credentials: grpc.ChannelCredentials | None = None,
        host: str = HOST,
    ) -> None:
        self.name = name
        self.process = process or os.urandom(8)
        address = f"{host}:{port}"
        self._channel = (
            grpc.insecure_channel(address)
            if credentials is None
            else grpc.secure_channel(address, credentials)
        )
        self._out: SimpleQueue[bytes | None] = SimpleQueue()
        open_stream = self._channel.stream_stream(f"/{SERVICE}/Join")
        self._in: Any = open_stream(iter(self._out.get, None), timeout=PATIENCE)

    def send(self, **kind: Any) -> None:
        """Send a frame."""
        self.send_raw(wire.Frame(**kind).SerializeToString())

    def send_raw(self, raw: bytes) -> None:
        self._out.put(raw)

    def next(self) -> wire.Frame:
        """Wait for a frame, and answer heartbeats."""
        while True:
            frame = wire.Frame.FromString(next(self._in))
            if not frame.HasField("heartbeat"):
                return frame
            self.send(heartbeat=wire.Heartbeat())

    def hello(self, **other: Any) -> wire.Frame:
        """Say hello, return the answer."""
        product, methods = VERSIONS
        said = {
            "product": product,
            "wire": WIRE_VERSION,
            "methods": methods,
            "process": self.process,
            "name": self.name,
        }
        self.send(hello=wire.Hello(**(said | other)))
        return self.next()

    def join(self) -> Raw:
        """Shake hands."""
        offer = self.hello().offer
        self.send(accept=wire.Accept(fingerprint=offer.fingerprint))
        return self

    def call(self) -> tuple[wire.Call, Any]:
        """Wait for a call; return it and its payload."""
        frame = self.next()
        assert frame.HasField("call"), frame
        content = frame.call.body.small
        while len(content) < body_size(frame.call.body):
            content += self.next().chunk
        return frame.call, unpack(frame.call.body, memoryview(content))

    def reply(self, call: wire.Call, study: str = "f00d", **reply: Any) -> None:
        """Answer a call."""
        packed = pack(reply)
        self.send(reply=wire.Reply(id=call.id, study=study, body=packed.header))
        for chunk in chunks(packed, CHUNK):
            self.send_raw(chunk)

    def answer(self, **reply: Any) -> Any:
        """Answer the next call; return its payload."""
        call, payload = self.call()
        self.reply(call, **reply)
        return payload

    def end(self) -> str:
        """Wait until the server refuses or ends the stream; return the reason of a refusal."""
        with suppress(grpc.RpcError, StopIteration):
            while not (frame := self.next()).HasField("refusal"):
                pass
            return frame.refusal.reason
        return ""

    def leave(self) -> None:
        """Break the stream."""
        self._channel.close()


class Relay:
    """A road between clients and a server that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        self._deaf = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection((HOST, self._target))
                self._open += [near, far]
                deaf = self._deaf
                for source, sink, lossy in ((near, far, deaf), (far, near, threading.Event())):
                    threading.Thread(
                        target=self._pump, args=(source, sink, lossy), daemon=True
                    ).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, lossy: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not lossy.is_set():
                    sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def deafen(self) -> None:
        """Lose what the clients send from now on, until the cut."""
        self._deaf.set()

    def cut(self) -> None:
        """Break all connections; new ones are taken."""
        self._deaf = threading.Event()
        broken, self._open = self._open, []
        for end in broken:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._listening.close()
        self.cut()


@dataclass
class Federated:
    """A server that listens, its clients as a method calls them, and what they tell."""

    server: Server
    port: int
    clients: RemoteClients
    notes: Notes
    ends: list[Callable[[], None]]

    def raw(self, name: str, process: bytes = b"") -> Raw:
        """Join by hand; return when the server knows."""
        raw = Raw(self.port, name, process)
        self.ends.append(raw.leave)
        raw.join()
        until(lambda: self.server.members[name].stream is not None)
        return raw

    def member(
        self, name: str, half: Half, port: int | None = None, ledger: Path | None = None
    ) -> Member:
        """Start a client."""
        member = Member(f"{HOST}:{port or self.port}", name, door(name, half, ledger))
        self.ends.append(member.kill)
        return member

    def there(self, *names: str) -> None:
        """Wait until clients can be called."""
        until(lambda: all(self.server.members[name].available for name in names))

    def begin(self, *names: str) -> None:
        """Wait until clients can be called, and no longer for others."""
        self.there(*names)
        self.clients.round(0, lambda: None)

    def background(self, work: Callable[[], Any]) -> Background:
        """Work in a thread, as the method's thread does."""
        return Background(work)


class Background:
    """Work in a thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._found: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._work()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        """Wait for it; return or raise what it did."""
        self._thread.join(PATIENCE)
        assert not self.running, "it never ended"
        if self._error is not None:
            raise self._error
        return self._found


@contextmanager
def federation(
    names: str = "abc",
    rules: Rules = RULES,
    credentials: grpc.ServerCredentials | None = None,
    proposal: Proposal = PROPOSAL,
    largest: int = 1 << 30,
) -> Iterator[Federated]:
    """Start a server; end it, and all clients that were started."""
    server = Server(proposal, names, f"{HOST}:0", credentials, largest)
    port, notes = server.start(), Notes()
    ends: list[Callable[[], None]] = []
    try:
        yield Federated(server, port, RemoteClients(server, rules, notes), notes, ends)
    finally:
        for end in ends:
            end()
        server.stop()


@contextmanager
def answering(
    halves: Mapping[str, Half], rules: Rules | None = None, **how: Any
) -> Iterator[Federated]:
    """Start a server and all its clients."""
    rules = rules or replace(RULES, min_clients=min(2, len(halves)))
    with federation("".join(halves), rules, **how) as federated:
        for name, half in halves.items():
            federated.member(name, half)
        federated.there(*halves)
        yield federated


def authority(folder: Path, *names: str, hosts: tuple[str, ...] = ("localhost", HOST)) -> Path:
    """Make an authority, a server and clients."""
    pki.create(folder, hosts)
    for name in names:
        pki.issue(folder, name)
    return folder


def of_server(folder: Path, check: bool = True) -> grpc.ServerCredentials:
    """Return the credentials of an authority's server."""
    return server_credentials(Identity.load(folder / "server", check_validity=check))


def of_client(folder: Path, name: str, check: bool = True) -> grpc.ChannelCredentials:
    """Return the credentials of an authority's client."""
    return channel_credentials(Identity.load(folder / "clients" / name, check_validity=check))


# Whole studies


class Partner:
    """A client of a study, as `fedtopics client` starts it, in a thread."""

    def __init__(self, part: GrpcParticipation, events: Notes) -> None:
        self.part, self.events = part, events
        self._work = Background(part.run)

    def result(self) -> None:
        """Wait for its end; raise what it raised."""
        self._work.result()

    def error(self) -> Exception | None:
        """Wait for its end; return what it raised."""
        try:
            self.result()
        except Exception as error:
            return error
        return None

    def kill(self) -> None:
        """End it at once."""
        for work in LOOP.working(self.part):
            work.cancel()
        with suppress(CancelledError):
            self.result()


@dataclass
class Outcome:
    """What a federated study left."""

    model: TopicModel
    events: Notes
    partners: dict[str, Partner]


def partner(
    address: str,
    name: str,
    corpus: Corpus,
    out: Path,
    policy: Policy = OPEN_POLICY,
    identity: Path | None = None,
) -> Partner:
    """Start a client."""
    events = Notes()
    part = GrpcParticipation(address, identity, corpus, policy, out, name, events.append)
    return Partner(part, events)


def federated(
    plan: Study,
    corpora: Mapping[str, Corpus],
    folder: Path,
    authority: Path | None = None,
    policy: Policy = OPEN_POLICY,
    odd: GrpcParticipation | None = None,
    **how: Any,
) -> Outcome:
    """Run a study with a server and all its clients; by default without TLS.

    An odd client takes the place of the one of its name; how it ends is for the test to ask. What
    else is given goes to `serve`.
    """
    events, partners = Notes(), {}

    def begin(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] != "listening":
            return
        address = event["address"]
        for name, corpus in corpora.items():
            if odd is not None and odd.name == name:
                notes = Notes()
                odd._address, odd._on_event = address, notes.append
                partners[name] = Partner(odd, notes)
            else:
                identity = None if authority is None else authority / "clients" / name
                partners[name] = partner(address, name, corpus, folder / name, policy, identity)

    identity = None if authority is None else Identity.load(authority / "server")
    model = serve(
        plan.with_clients(corpora), identity, f"{HOST}:0", folder / "server", on_event=begin, **how
    )
    for each in partners.values():
        if each.part is not odd:
            each.result()
    return Outcome(model, events, partners)
