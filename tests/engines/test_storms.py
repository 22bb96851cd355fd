"""Connections that say nothing, come and go, or say again what was said: the study goes on."""

from __future__ import annotations

import asyncio
import math
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from fedtopics.engines import links
from fedtopics.engines.grpc import transport
from fedtopics.engines.grpc.frames import CHUNK, SERVICE, Stream, frames_of
from fedtopics.engines.messages import Accept, Reply, Waiting
from fedtopics.methods.core.events import StatusChange
from tests.helpers.background import Background, until
from tests.helpers.programs import Federation, Program, adding, federation, rounds
from tests.helpers.sockets import Sockets

ROUNDS = 15
BOTH = 101.0  # what a and c come to


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whoever is cut off comes back soon; nothing is logged, above all no traceback."""
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.05)
    yield
    assert caplog.text == ""


@contextmanager
def studied(number: int = ROUNDS) -> Iterator[tuple[Any, Federation, Background, Program]]:
    """A study of a and c over a port."""
    hub: Any = Sockets()
    with federation("ac", hub=hub) as f:
        program = rounds(*range(1, number + 1))
        yield hub, f, f.lead(program), program


def joined(f: Federation, program: Program) -> list[Any]:
    halves = {"a": 1.0, "c": 100.0}
    return [f.member(name, adding(x), program) for name, x in halves.items()]


def came_to_its_end(work: Background, members: list[Any]) -> None:
    assert [total for total, _ in work.result()] == [BOTH] * ROUNDS
    for member in members:
        member.work.result()


def test_five_hundred_silent_sockets() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 2000 if hard == resource.RLIM_INFINITY else min(hard, 2000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))
    with studied() as (hub, f, work, program):
        sockets = [socket.create_connection(("127.0.0.1", hub.port), 5) for _ in range(500)]
        try:
            came_to_its_end(work, joined(f, program))
        finally:
            for each in sockets:
                each.close()


def test_a_storm_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred a second that say a word, of somebody who has no place here, and are gone."""
    monkeypatch.setattr(links, "NAMED", math.inf)
    word = frames_of(Accept("z", "f00d", b"another", 1, b"", b""), CHUNK)
    with studied() as (hub, f, work, program):
        over = threading.Event()

        def storms() -> int:
            number = 0
            while not over.wait(0.01):
                with grpc.insecure_channel(f"127.0.0.1:{hub.port}") as channel:
                    call = channel.stream_stream(f"/{SERVICE}/Join")(iter(word), timeout=5)
                    number += bool(next(call, None))
                    call.cancel()
            return number

        storm = Background(storms)
        until(lambda: f.node._links._refused.get("", (0, 0))[1] > 20)
        members = joined(f, program)
        came_to_its_end(work, members)
        over.set()
        assert storm.result() > 20
        (told,) = f.notes.of("refused")  # or the log would be as long as strangers like
        assert told["client"] == "z"


def test_who_is_refused_again_and_again_is_named_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each by itself whose name is known; all others together, whatever they call themselves."""
    now = [100.0]
    monkeypatch.setattr(links, "time", SimpleNamespace(monotonic=lambda: now[0]))
    inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    here = links.Links("@server", "ab", None, None, inbox, None, None)  # type: ignore[arg-type]

    def told(name: str, vouched: str = "") -> list[str]:
        here._tell_refused(name, "why", vouched)
        return [] if inbox.empty() else [inbox.get()[1].reason]

    assert told("a") == told("z") == told("y", vouched="y") == told("b") == ["why"]
    assert [told(f"z{n}") for n in range(1200)] == [[]] * 1200
    assert told("a") == told("y", vouched="y") == []
    now[0] += links.NAMED
    assert told("x") == ["after 1,200 more since it was said: why"]
    assert told("a") == told("y", vouched="y") == ["after 1 more since it was said: why"]
    assert told("b") == ["why"]
    assert here._refused.keys() == {"", "a", "b", "y"}


def test_frames_said_again_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client has said is recorded, and said once more by a stranger, all of it."""
    recorded: list[bytes] = []
    send = Stream.send

    async def recording(self: Stream, frames: list[bytes]) -> None:
        if any(kind in frames[0][:20] for kind in (b"accept", b"waiting", b"reply")):
            recorded.append(frames[0])
        await send(self, frames)

    monkeypatch.setattr(Stream, "send", recording)
    with studied() as (hub, f, work, program):
        members = joined(f, program)
        until(lambda: len(recorded) > 12)
        again = list(recorded)
        with grpc.insecure_channel(f"127.0.0.1:{hub.port}") as channel:
            for frames in (again, again[2:]):
                call = channel.stream_stream(f"/{SERVICE}/Join")(iter(frames), timeout=5)
                assert len(list(call)) >= 1  # an offer, and that it is refused
        came_to_its_end(work, members)


def test_who_says_too_much_is_sent_away_and_may_come_back() -> None:
    """An adder that is busy keeps no more of a client's messages than it may need."""
    with federation("abc") as f:
        hand = f.hand("b")
        node = f.node
        for _ in range(40):  # the adder's program does not hear: it computes
            with hand.node._changed:
                hand.node.send("@server", Reply(1, b"", b"", {}))
        until(lambda: not node.members["b"].link)
        heard = [what for _, what in iter(node._next_heard, ("", None))]
        assert sum(isinstance(what, Reply) for what in heard) == 32
        assert any(isinstance(what, StatusChange) and what.status == "lost" for what in heard)
        hand.node.say(Waiting(1), 1)  # it is said again, once it is back
        until(lambda: node.members["b"].ready(1))


def test_a_name_has_a_few_connections_and_no_more() -> None:
    """By certificates: without them, nobody knows whose they are."""
    here = transport.GrpcTransport(transport.Listening("127.0.0.1:0", None), (), 1, lambda _: None)
    monkey: Any = here
    here.start()
    try:
        for number in range(transport.STREAMS):
            link = transport._Link(f"held{number}", Stream(None, None), "north")  # type: ignore[arg-type]
            monkey._links[link.name] = link

        class Context:
            def auth_context(self) -> dict[str, list[bytes]]:
                return {"x509_common_name": [b"north"]}

        done = asyncio.run_coroutine_threadsafe(here._joined(None, Context()), here._loop)
        assert done.result(5) is None
        assert here.receive(0.0) == []
        monkey._links.clear()
    finally:
        here.stop()
