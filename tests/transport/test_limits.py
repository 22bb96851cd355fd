"""One member cannot keep the others out: slow, many, large, incomplete and foreign calls."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import grpc
import pytest

from fedtopics.errors import FederationError
from fedtopics.protocol.link import LinkError
from fedtopics.transport.grpc import CALLS, CHUNK, GrpcLink, channel_credentials
from fedtopics.versions import WIRE
from tests.helpers.echo import CONTENT, HOST, MEMBERS, SERVER, Echo, linked, process, serving
from tests.helpers.pinned import pair


def raw(port: int, path: str, chunks: Iterator[bytes], size: str) -> Any:
    """A member's call that keeps to no rule, on a connection of its own; its answers."""
    member_key = pair("north")
    credentials, name = channel_credentials(
        member_key.key, member_key.certificate, SERVER.certificate
    )
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.secure_channel(f"{HOST}:{port}", credentials, options)
    return channel.stream_stream(path)(chunks, metadata=[("size", size)])


def refused(port: int, path: str, chunks: Iterator[bytes], size: str) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as caught:
        list(raw(port, path, chunks, size))
    return caught.value.code(), caught.value.details()


def dripping(seconds: float = 0.2) -> Iterator[bytes]:
    for _ in range(200):
        yield b"a"
        time.sleep(seconds)


@pytest.mark.parametrize("call", ["Ask", "Say", "Fetch"])
def test_a_byte_now_and_then_is_ended(call: str) -> None:
    with serving(seconds=1) as server, linked(server.port, "south") as other:
        began = time.monotonic()
        code = refused(server.port, f"/fedtopics.{WIRE}/{call}", dripping(), "200")[0]
        assert code is grpc.StatusCode.CANCELLED
        assert 0.9 < time.monotonic() - began < 3
        assert other.ask(b"1") == b"south:1"


def test_who_does_not_read_is_ended() -> None:
    with serving(seconds=1) as server:
        answers = raw(server.port, f"/fedtopics.{WIRE}/Fetch", iter([b"content"]), "7")
        next(answers)
        # Each chunk under way allows 16 s; so time goes faster.
        for _ in range(100):
            for _, deadline in server._calls["north"]:
                deadline.extend(-20)
            time.sleep(0.05)
        assert not any(server._calls.values())
        with pytest.raises(grpc.RpcError):
            list(answers)


@pytest.mark.parametrize(
    ("chunks", "size"), [([], "1"), ([b"a"], "3"), ([b"abcd"], "3"), ([b"a"], "-1"), ([b"a"], "")]
)
def test_an_incomplete_request_is_not_handed_over(chunks: list[bytes], size: str) -> None:
    service = Echo()
    with serving(service) as server:
        for call in ("Ask", "Say"):
            assert refused(server.port, f"/fedtopics.{WIRE}/{call}", iter(chunks), size) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "the request is not complete",
            )
    assert (service.failure, service.asked, service.last) == ("", 0, {})


def test_more_than_a_say_may_have_is_refused_before_it_is_read() -> None:
    read = []

    def endless() -> Iterator[bytes]:
        for chunk in repeat(bytes(CHUNK), 100):
            read.append(1)
            yield chunk

    with serving() as server:
        code, sentence = refused(server.port, f"/fedtopics.{WIRE}/Say", endless(), str(100 << 20))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "at most 67,108,864 are expected" in sentence
        assert len(read) < 10
        for call, announced, code in (
            ("Ask", 2 << 20, grpc.StatusCode.FAILED_PRECONDITION),
            ("Say", 1 << 20, grpc.StatusCode.RESOURCE_EXHAUSTED),  # more than announced
        ):
            path = f"/fedtopics.{WIRE}/{call}"
            assert refused(server.port, path, endless(), str(announced))[0] is code


def test_another_version_gets_both_numbers() -> None:
    with serving() as server:
        code, sentence = refused(server.port, "/fedtopics.3/Ask", iter([b"a"]), "1")
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "uses version 4 of the protocol, and north version 3; install" in sentence
        assert server._service.failure.startswith("north: its version of the protocol")
        code, _ = refused(server.port, f"/fedtopics.{WIRE}/Tell", iter([b"a"]), "1")
        assert code is grpc.StatusCode.UNIMPLEMENTED


def test_a_member_sees_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(tmp_path) as server, linked(server.port) as link:
        monkeypatch.setattr("fedtopics.transport.grpc.WIRE", 2)
        with pytest.raises(FederationError, match=r"version 4 of the protocol, .* version 2; in"):
            link.ask(b"1")


def test_a_newer_say_ends_the_older_one() -> None:
    with serving() as server, ThreadPoolExecutor(1) as pool:
        older = pool.submit(refused, server.port, f"/fedtopics.{WIRE}/Say", dripping(), "200")
        time.sleep(0.5)
        with linked(server.port) as link:
            link.say(b"newer")
            assert older.result(5)[0] is grpc.StatusCode.CANCELLED
            assert link.fetch(b"last") == b"newer"


def test_too_many_calls_at_once_are_refused_at_once() -> None:
    service = Echo()
    with (
        serving(service) as server,
        ThreadPoolExecutor(CALLS) as pool,
        linked(server.port) as many,
        linked(server.port) as more,
    ):
        waiting = [pool.submit(many.ask, b"wait") for _ in range(CALLS)]
        while service.asked < CALLS:
            time.sleep(0.01)
        began = time.monotonic()
        with pytest.raises(LinkError, match="north makes more than 6 calls at once"):
            more.ask(b"1")
        with linked(server.port, "south") as other:
            assert other.ask(b"1") == b"south:1"
        assert time.monotonic() - began < 2
        service.go.set()
        assert [call.result(5) for call in waiting] == [b"north:wait"] * CALLS
        assert more.ask(b"1") == b"north:1"


def test_a_flood_of_one_member_leaves_the_others_served(tmp_path: Path) -> None:
    with (
        process(tmp_path) as server,
        linked(server.port) as flooding,
        linked(server.port, "south") as other,
        ThreadPoolExecutor(1) as pool,
    ):
        flooding.say(b"0")
        memory = server.memory()
        flood = pool.submit(lambda: [*map(flooding.say, map(b"%d".__mod__, range(1_000)))])
        times = []
        while not flood.done():
            began = time.monotonic()
            assert other.ask(b"1") == b"south:1"
            times.append(time.monotonic() - began)
            time.sleep(0.02)
        assert len(flood.result()) == 1_000
        assert flooding.fetch(b"last") == b"999"
        assert max(times) < 2
        assert server.memory() - memory < 20 << 20


def test_content_is_not_copied_for_each_member(tmp_path: Path) -> None:
    with process(tmp_path) as server, ThreadPoolExecutor(len(MEMBERS)) as pool:
        memory = server.memory()

        def fetched(name: str) -> bytes:
            with linked(server.port, name) as link:
                return link.fetch(b"content")

        for content in pool.map(fetched, MEMBERS):
            assert content == b"0123456789abcdef" * (CONTENT // 16)
        assert server.memory() - memory < CONTENT


def test_large_messages_take_their_own_size(tmp_path: Path) -> None:
    content = bytes(CONTENT)
    with process(tmp_path) as server, ThreadPoolExecutor(len(MEMBERS)) as pool:
        memory = server.memory()

        def sent(name: str) -> bytes:
            with linked(server.port, name) as link:
                link.say(content)
                return link.ask(b"")

        assert [*pool.map(sent, MEMBERS)] == [f"{name}:".encode() for name in MEMBERS]
        # Of the four that it keeps.
        assert server.memory() - memory < 1.5 * len(MEMBERS) * CONTENT


def test_large_messages_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.transport.grpc.LARGE_REQUESTS", 1)
    with serving(seconds=2) as server, linked(server.port, "south") as other:
        slow = raw(server.port, f"/fedtopics.{WIRE}/Say", dripping(), str(2 << 20))
        time.sleep(0.3)
        other.say(b"small")
        other.say(bytes(3 << 20))  # after the slow one's deadline, which comes before its own
        assert other.fetch(b"last") == bytes(3 << 20)
        with pytest.raises(grpc.RpcError):
            list(slow)


def test_a_fault_of_the_service_ends_the_run() -> None:
    service = Echo()
    with (
        serving(service) as server,
        linked(server.port) as link,
        pytest.raises(LinkError, match="the server failed"),
    ):
        link.say(b"fault")
    assert service.failure == "the server failed: No space left on device"


def test_a_server_cannot_send_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.transport.grpc.LARGEST_ANSWER", 5 << 20)
    with serving() as server, linked(server.port) as link:
        assert isinstance(link, GrpcLink)
        with pytest.raises(Exception, match="sent more than 5,242,880 bytes"):
            link.fetch(b"content")
        with pytest.raises(Exception, match="sent more than 7 bytes"):
            link.fetch(b"content", 7)
        assert link.ask(b"1") == b"north:1"
