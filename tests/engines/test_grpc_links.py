"""Links over gRPC: who lost one comes back."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import grpc
import pytest

from fedtopics.engines.grpc import transport as module
from fedtopics.engines.grpc.connection import places_of
from fedtopics.engines.grpc.frames import CHUNK, PART, Stream, frames_of
from fedtopics.engines.grpc.transport import Address, GrpcTransport, Listening
from fedtopics.engines.messages import Done, Granted, Message, Offer
from fedtopics.engines.transport import Closed, Opened
from fedtopics.errors import FederationError


def arrived(transport: GrpcTransport, kind: type[Any]) -> tuple[str, Any]:
    """Wait for something of a kind."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        for link, what in transport.receive(0.1):
            if isinstance(what, kind):
                return link, what
    raise TimeoutError(kind.__name__)


def test_a_link_is_opened_again_when_the_other_side_has_gone() -> None:
    here = GrpcTransport(Listening("127.0.0.1:0", None), (), 1, lambda _: None)
    here.start()
    place = f"127.0.0.1:{here.port}"
    there = GrpcTransport(None, [Address(place, None, "here")], 1, lambda _: None)
    there.start()
    try:
        for _ in range(2):
            link, _ = arrived(here, Opened)
            here.send(link, Granted(1))
            assert arrived(there, Granted)[1].index == 1
            here.stop()
            here = GrpcTransport(Listening(place, None), (), 1, lambda _: None)
            here.start()
    finally:
        there.stop()
        here.stop()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FederationError("It has another authority."), "It has another authority."),
        (OSError(107, "Not connected"), "(Not connected). Start the same"),
        (RuntimeError("a name that a document could have"), "(RuntimeError). Start the same"),
        (asyncio.CancelledError(), "(CancelledError). Start the same"),
    ],
)  # fmt: skip
def test_whatever_keeps_it_from_connecting_ends_the_wait(error: BaseException, reason: str) -> None:
    def diagnose() -> str:
        raise error

    with socket.create_server(("127.0.0.1", 0)) as closed:
        place = f"127.0.0.1:{closed.getsockname()[1]}"
    there = GrpcTransport(None, [Address(place, None, "", diagnose=diagnose)], 1, lambda _: None)
    there.start()
    try:
        link, what = arrived(there, Closed)
        assert not link
        assert reason in what.reason
        assert "document" not in what.reason
    finally:
        there.stop()


def test_a_display_that_fails_ends_the_wait() -> None:
    def notify(_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    there = GrpcTransport(None, [Address("127.0.0.1:1", None, "")], 1, notify)
    there.start()
    try:
        assert "(Broken pipe)" in arrived(there, Closed)[1].reason
    finally:
        there.stop()


@pytest.mark.parametrize("steps", range(12))
def test_whoever_cancels_a_link_as_it_ends_it_is_said_to_be_closed(steps: int) -> None:
    """GRPC cancels what lives with a stream whose other side is gone, at any moment of its end."""
    transport = GrpcTransport(None, (), 1, lambda _: None)

    async def gone() -> Any:
        return grpc.aio.EOF

    async def write(_: bytes) -> None:
        return None

    async def lives() -> None:
        life = asyncio.ensure_future(transport._live(Stream(gone, write), Opened(offers=True)))
        for _ in range(steps):
            await asyncio.sleep(0)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    asyncio.run(lives())
    kinds = [type(what) for _, what in transport.receive(0.0)]
    assert kinds in ([], [Opened, Closed])
    assert steps < 2 or kinds


def listening(address: str) -> GrpcTransport:
    transport = GrpcTransport(Listening(address, None), (), 1, lambda _: None)
    transport.start()
    return transport


def both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let localhost be what it is on most machines, or skip where there is no IPv6."""
    if "[::1]:0" not in places_of("[::1]:0"):
        pytest.skip("this machine has no IPv6")
    here = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]

    def resolved(host: str, port: int, *_: Any, **more: Any) -> list[tuple[Any, ...]]:
        return [(family, socket.SOCK_STREAM, 0, "", (place, port)) for family, place in here]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_a_name_of_two_families_is_listened_on_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    both_families(monkeypatch)
    assert places_of("localhost:7") == ["127.0.0.1:7", "[::1]:7"]
    transport = listening("localhost:0")
    try:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, transport.port), 5).close()
    finally:
        transport.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_name_of_two_families_is_refused_if_one_is_taken(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_families(monkeypatch)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((host, 0))
        other.listen()
        with pytest.raises(FederationError, match="cannot listen on localhost"):
            listening(f"localhost:{other.getsockname()[1]}")


def test_another_machines_address_is_no_place() -> None:
    assert places_of("203.0.113.9:7") == places_of("no.such.name.invalid:7") == []


def stranger(port: int, frames: Iterable[bytes], **how: Any) -> str:
    """Send frames to a port; say how it ended."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.max_send_message_length", -1)]) as c:
        try:
            for _ in c.stream_stream("/fedtopics.v2.Federation/Join")(iter(frames), **how):
                pass
        except grpc.RpcError as error:
            return str(error.details())
    return "closed"


def test_what_is_compressed_is_not_unpacked() -> None:
    transport = listening("127.0.0.1:0")
    try:
        bomb = PART + bytes(64 << 20)
        said = stranger(transport.port, [bomb], timeout=20, compression=grpc.Compression.Gzip)
        assert said == "Compression algorithm 'gzip' is disabled."
        arrived(transport, Closed)
    finally:
        transport.stop()


def test_a_structure_that_takes_long_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one is read, another link's messages arrive: the first waits until the second has."""
    came, read = threading.Event(), module.read_message

    def slowly(kind: str, buffer: memoryview, largest: int) -> Any:
        if kind == "offer":
            assert came.wait(20)
        return read(kind, buffer, largest)

    monkeypatch.setattr(module, "read_message", slowly)
    transport = listening("127.0.0.1:0")
    try:
        long = Offer("", 0, "", 0, {"x": ["word"] * 4096}, "", "", b"", 0.0, b"")
        ends = threading.Event()

        def says(message: Message) -> Iterator[bytes]:
            yield from frames_of(message, CHUNK)
            ends.wait(20)

        for message in (long, Granted(7)):
            work = partial(stranger, transport.port, says(message))
            threading.Thread(target=work, daemon=True).start()
            time.sleep(0)
        assert arrived(transport, Granted)[1].index == 7
        came.set()
        assert arrived(transport, Offer)[1].study == {"x": ["word"] * 4096}
        ends.set()
    finally:
        came.set()
        transport.stop()


def test_who_sends_faster_than_is_taken_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNREAD", 10 * module.QUICK)
    transport = listening("127.0.0.1:0")
    try:
        work = partial(stranger, transport.port, frames_of(Done(), CHUNK) * 500)
        threading.Thread(target=work, daemon=True).start()
        ends, taken, most = time.monotonic() + 20, 0, 0
        while taken < 500 and time.monotonic() < ends:
            time.sleep(0.01)  # slower than it comes
            messages = [what for _, what in transport.receive(0.1) if isinstance(what, Message)]
            taken, most = taken + len(messages), max(most, len(messages))
        assert taken == 500
        assert most <= 25
    finally:
        transport.stop()
