"""A service that remembers what its members send, in this process or in one of its own."""

import errno
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedtopics.errors import FederationError
from fedtopics.protocol.link import LinkError
from fedtopics.transport.grpc import GrpcLink, GrpcServer
from tests.helpers.pinned import Pair, pair

MEMBERS = ("east", "north", "south", "west")
CERTIFICATES = {name: pair(name).certificate for name in MEMBERS}
SERVER = pair("relay")
HOST = "127.0.0.1"
MOST = 64 << 20
CONTENT = 32 << 20


class Echo:
    """Answers with the name and the question; `wait` blocks until `go` or a newer question."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = 0
        self.failure = ""
        self.largest = MOST
        self.last: dict[str, bytes] = {}
        self.content = b"0123456789abcdef" * (CONTENT // 16)

    def ask(self, name: str, message: bytes) -> bytes:
        self.asked += 1
        if message == b"wait":
            self.go.wait(20)
        return f"{name}:".encode() + message

    def say(self, name: str, message: bytes) -> None:
        if message == b"refused":
            raise FederationError("These are other bytes than before.")
        if message == b"again":
            raise LinkError("the disk is full")
        if message == b"fault":
            raise OSError(errno.ENOSPC, "No space left on device")

        self.last[name] = message

    def fetch(self, name: str, what: bytes) -> bytes:
        return self.content if what == b"content" else self.last.get(name, b"")

    def differs(self, name: str, reason: str) -> None:
        self.failure = f"{name}: {reason}"

    def fail(self, reason: str) -> None:
        self.failure = reason


@contextmanager
def serving(
    service: Echo | None = None, seconds: float = 30.0, study: str = ""
) -> Iterator[GrpcServer]:
    server = GrpcServer(
        service or Echo(),
        f"{HOST}:0",
        key=SERVER.key,
        certificate=SERVER.certificate,
        members=CERTIFICATES,
        study=study,
        seconds=seconds,
    )
    try:
        yield server
    finally:
        server.close()


@contextmanager
def linked(
    port: int,
    who: Pair | str = "north",
    server: Pair = SERVER,
    seconds: float = 30.0,
    study: str = "",
) -> Iterator[GrpcLink]:
    member = pair(who) if isinstance(who, str) else who
    link = GrpcLink(
        f"{HOST}:{port}",
        key=member.key,
        certificate=member.certificate,
        server=server.certificate,
        study=study,
        seconds=seconds,
    )
    try:
        yield link
    finally:
        link.close()


class Process:
    """A server in a process of its own, which can be killed, frozen and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "relay.key").write_bytes(SERVER.key)
        (folder / "relay.pem").write_bytes(SERVER.certificate)
        for name, certificate in CERTIFICATES.items():
            (folder / f"{name}.pem").write_bytes(certificate)
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.helpers.echo", str(self._folder), str(self.port)]
        self.running = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.running.stdout is not None
        self.port = int(self.running.stdout.readline())

    def kill(self) -> None:
        self.running.kill()
        self.running.communicate(timeout=10)

    def memory(self) -> int:
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])


@contextmanager
def process(folder: Path) -> Iterator[Process]:
    server = Process(folder)
    try:
        yield server
    finally:
        server.kill()


def until_it_works(link: GrpcLink, seconds: float = 20.0) -> list[str]:
    """Ask until there is an answer; return the reasons of the attempts that failed."""
    reasons: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            assert link.ask(b"?").endswith(b":?")
            return reasons
        except LinkError as error:
            reasons.append(str(error))
            time.sleep(0.2)
    raise AssertionError(reasons)


def main(folder: Path, port: str) -> None:
    members = {name: (folder / f"{name}.pem").read_bytes() for name in MEMBERS}
    key = (folder / "relay.key").read_bytes()
    certificate = (folder / "relay.pem").read_bytes()
    server = GrpcServer(Echo(), f"{HOST}:{port}", key=key, certificate=certificate, members=members)
    unwanted = {"torch", "numba"} & set(sys.modules)
    print(server.port if not unwanted else f"imports {unwanted}", flush=True)
    time.sleep(300)
    server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
