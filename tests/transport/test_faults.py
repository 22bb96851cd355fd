"""Servers that are killed, frozen, reset, silent or away: every call ends by its deadline."""

import os
import select
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from fedtopics.protocol.link import LinkError
from tests.helpers.echo import CONTENT, HOST, Echo, linked, process, serving, until_it_works


@contextmanager
def handled_by(connection: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """A port whose connections are handled by this class, each in a thread."""
    with socketserver.ThreadingTCPServer((HOST, 0), connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextmanager
def cutting(target: int, most: int) -> Iterator[tuple[int, list[int]]]:
    """A port in front of another that ends a connection after so many bytes; bytes of each."""
    counts: list[int] = []

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            counts.append(0)
            with suppress(OSError), socket.create_connection((HOST, target)) as far:
                others = {self.request: far, far: self.request}
                while counts[-1] < most:
                    for source in select.select([*others], [], [], 10)[0]:
                        data = source.recv(16_384)
                        counts[-1] += len(data) or most  # its end ends the other
                        others[source].sendall(data)
                    time.sleep(0.002)  # slower than the reader, which so misses little at a cut

    with handled_by(Connection) as port:
        yield port, counts


def test_a_killed_server_is_found_again(tmp_path: Path) -> None:
    with process(tmp_path) as server, linked(server.port) as link, ThreadPoolExecutor(1) as pool:
        assert link.ask(b"1") == b"north:1"
        waiting = pool.submit(link.ask, b"wait")
        time.sleep(0.3)
        server.kill()
        with pytest.raises(LinkError, match=r"^cannot reach "):
            waiting.result(3)
        starting = pool.submit(lambda: time.sleep(1) or server.start())
        assert f"cannot reach {HOST}:{server.port}: Connection refused" in until_it_works(link)
        starting.result(5)


def test_a_frozen_server_ends_in_an_error_by_the_deadline(tmp_path: Path) -> None:
    with process(tmp_path) as server, linked(server.port, seconds=1) as link:
        assert link.ask(b"1") == b"north:1"
        os.kill(server.running.pid, signal.SIGSTOP)
        try:
            for call in (link.ask, link.say):
                began = time.monotonic()
                with pytest.raises(LinkError, match=r"does not answer$"):
                    call(b"1")
                assert time.monotonic() - began < 4
        finally:
            os.kill(server.running.pid, signal.SIGCONT)
        until_it_works(link)


class Reset(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        at_once = b"\1\0\0\0\0\0\0\0"  # on, no seconds
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.request.close()


def test_a_port_that_resets() -> None:
    with handled_by(Reset) as port, linked(port) as link:
        for _ in range(4):  # a new channel among them
            with pytest.raises(LinkError, match=r"^cannot reach .*Connection reset by peer"):
                link.ask(b"1")


def test_a_port_that_says_nothing() -> None:
    silent = socket.create_server((HOST, 0))
    with silent, linked(silent.getsockname()[1], seconds=1) as link:
        began = time.monotonic()
        with pytest.raises(LinkError, match=r"does not answer$"):
            link.ask(b"1")
        assert time.monotonic() - began < 3


def test_closing_ends_a_call() -> None:
    service = Echo()
    with serving(service) as server, linked(server.port) as link, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.ask, b"wait")
        while not service.asked:
            time.sleep(0.01)
        link.close()
        with pytest.raises(LinkError):
            waiting.result(3)
        with pytest.raises(LinkError, match="the link was closed"):
            link.ask(b"1")
        service.go.set()


def test_an_answer_on_its_way_arrives_though_the_server_stops() -> None:
    with serving() as server, linked(server.port) as link, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.fetch, b"content")
        time.sleep(0.05)
        server.close()
        assert len(waiting.result(5)) == CONTENT


def test_five_hundred_connections() -> None:
    with serving() as server:
        threads = 0
        for number in range(500):
            with linked(server.port) as link:
                assert link.ask(b"%d" % number) == b"north:%d" % number
            if number == 20:
                threads = threading.active_count()
        assert threading.active_count() <= threads + 5
        assert len(os.listdir("/proc/self/fd")) < 200  # noqa: PTH208 - not a path to walk


def repeated(call: Callable[[], bytes | None]) -> bytes | None:
    for _ in range(20):
        with suppress(LinkError):
            return call()
    raise AssertionError


@pytest.mark.parametrize("way", ["say", "fetch"])
def test_an_interrupted_message_resumes_at_the_byte_that_is_missing(way: str) -> None:
    service = Echo()
    service.content = os.urandom(8_400_000)
    with (
        serving(service) as server,
        cutting(server.port, 1_000_000) as (port, counts),
        linked(port) as link,
    ):
        answer = repeated(
            partial(getattr(link, way), service.content if way == "say" else b"content")
        )
    assert (answer or service.last["north"]) == service.content
    # Each cut loses a part of a chunk, and what a busy machine had not read yet.
    assert 9 <= len(counts) <= 13
    assert sum(counts[:-1]) < 1.4 * len(service.content)


def test_another_message_does_not_resume_the_interrupted_one() -> None:
    service = Echo()
    service.content = os.urandom(4_000_000)
    second = os.urandom(len(service.content))
    with (
        serving(service) as server,
        cutting(server.port, 2_000_000) as (port, _),
        linked(port) as link,
        linked(server.port, "south") as other,
    ):
        with pytest.raises(LinkError):
            link.say(service.content)
        assert len(server._partial["north"][1].getvalue()) > 1_000_000
        other.say(service.content)  # of which the server has nothing from this member
        repeated(partial(link.say, second))
        assert service.last == {"north": second, "south": service.content}
        with pytest.raises(LinkError):
            link.fetch(b"content")
        service.content = second
        assert repeated(partial(link.fetch, b"content")) == second
    assert server._partial == {}
