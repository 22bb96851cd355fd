"""Networks that fail and visitors without a place: namespaces, raw TLS, plaintext, a scanner."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np

from faults_stage import NotHereError
from fedtopics.engines.grpc.frames import SERVICE

PATIENCE = 5.0  # seconds that a visitor waits for the server's word
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)  # and an empty SETTINGS frame


class Namespaces:
    """Two network namespaces joined by a cable that can be pulled."""

    SERVER, CLIENT = "192.0.2.1", "192.0.2.2"

    def __init__(self) -> None:
        ip = shutil.which("ip")
        if os.geteuid() or ip is None:
            raise NotHereError("it needs root and the command ip, for network namespaces")
        self._ip_command = ip
        tag = f"ft{os.getpid() % 100_000}"
        self.server, self.client = f"{tag}s", f"{tag}c"
        try:
            self._make()
        except subprocess.CalledProcessError:
            self.close()
            raise NotHereError("network namespaces cannot be made here") from None

    def _make(self) -> None:
        for name in (self.server, self.client):
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "set", "lo", "up")
        self._ip(
            "link", "add", "cable", "netns", self.server, "type", "veth",
            "peer", "name", "cable", "netns", self.client,
        )  # fmt: skip
        for name, address in ((self.server, self.SERVER), (self.client, self.CLIENT)):
            self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            self._ip("-n", name, "link", "set", "cable", "up")

    def _ip(self, *words: str, check: bool = True) -> None:
        subprocess.run([self._ip_command, *words], check=check, capture_output=True)

    def inside(self, name: str) -> list[str]:
        """Return what begins a command that runs in a namespace."""
        return [self._ip_command, "netns", "exec", name]

    def cable(self, state: str) -> None:
        """Pull the cable ("down") or plug it in ("up")."""
        self._ip("-n", self.client, "link", "set", "cable", state)

    def close(self) -> None:
        """Take them away."""
        for name in (self.server, self.client):
            self._ip("netns", "del", name, check=False)


def tls(port: int, ca: Path, identity: Path | None = None) -> str:
    """Open a TLS connection, with or without a client's certificate; say how it ends."""
    context = ssl.create_default_context(cafile=str(ca))
    context.set_alpn_protocols(["h2"])
    if identity is not None:
        context.load_cert_chain(identity / "client.crt", identity / "client.key")
    try:
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as line,
        ):
            line.sendall(HTTP2)
            # With TLS 1.3 the server's opinion of the certificate comes after the handshake.
            answer = line.recv(1)
    except ssl.SSLError as error:
        return f"TLS alert: {(error.reason or 'unknown').lower().replace('_', ' ')}"
    except TimeoutError:
        return "no answer: the connection stays open"
    except OSError as error:
        return f"the server ended the connection ({type(error).__name__})"
    return "the server answered" if answer else "the server ended the connection"


def plaintext(port: int) -> str:
    """Call the service without TLS; say how it ends."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream(f"/{SERVICE}/Join")(iter([b""]), timeout=PATIENCE)
        try:
            return f"the server answered with {len(next(call))} bytes"
        except grpc.RpcError as error:
            return f"gRPC without TLS: {error.code().name}"


def scan(port: int, seed: int = 0) -> list[socket.socket]:
    """Open connections, send random bytes on each, some behind a TLS record's head; keep them."""
    rng = np.random.default_rng(seed)
    opened = []
    for size in (0, 1, 16, 300, 5_000, 70_000):
        for head in (b"", b"\x16\x03\x01\x02\x00\x01"):
            line = socket.create_connection(("127.0.0.1", port), PATIENCE)
            with suppress(OSError):  # the server may have hung up already
                line.sendall(head + rng.bytes(size))
            opened.append(line)
    return opened


def dropped(opened: list[socket.socket]) -> int:
    """Count the connections that the server has ended."""
    return sum(_ended(line) for line in opened)


def _ended(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while line.recv(1 << 12):
            continue
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
