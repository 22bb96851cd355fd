"""Mutual TLS with real sockets and throwaway authorities: strangers stay out, and break nothing."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from fedtopics.engines.grpc.client import look

from fedtopics import pki
from fedtopics.engines.grpc import client
from fedtopics.errors import FederationError, IdentityError
from fedtopics.federation.policy import Policy
from fedtopics.federation.server import GrpcParticipation
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import assert_same
from tests.helpers.grpc_federation import (
    HOST,
    PATIENCE,
    VERSIONS,
    Federated,
    Half,
    Member,
    Raw,
    authority,
    door,
    federation,
    of_client,
    of_server,
    until,
)

CORPUS = Corpus.of([["oak", "ash"]] * 20)


@dataclass
class Guarded:
    """A server with TLS, and the folders of two authorities: its own, and another."""

    f: Federated
    ours: Path
    theirs: Path

    def honest(self, name: str, x: float) -> Member:
        """Join with what the authority gave."""
        half = Half({"ask": lambda **_: {"x": np.array([x]), "documents": 1}})
        credentials = of_client(self.ours, name)
        member = Member(f"localhost:{self.f.port}", name, door(name, half), credentials)
        self.f.ends.append(member.kill)
        return member

    def part(self, identity: Path | None, host: str = "localhost") -> GrpcParticipation:
        """A client as `fedtopics client` makes it."""
        address = f"{host}:{self.f.port}"
        out = self.ours.parent / "out"
        return GrpcParticipation(address, identity, CORPUS, Policy(), out, "a")

    def nobody_came(self) -> None:
        """Make sure that no member has a stream, and nothing but refusals was noted."""
        assert all(member.stream is None for member in self.f.server.members.values())
        while not self.f.server.inbox.empty():
            note = self.f.server.inbox.get()
            assert getattr(note, "status", "") == "refused", note

    def all_is_well(self) -> None:
        """An honest federation still works, on the same server."""
        self.nobody_came()
        for name, x in (("a", 1.0), ("b", 10.0)):
            self.honest(name, x)
        self.f.there("a", "b")
        assert_same(self.f.clients.sum("ask"), {"x": np.array([11.0]), "documents": 2})


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.05)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pki")
    ours = authority(folder / "ours", "a", "b", "stranger")
    theirs = authority(folder / "theirs", "a")
    return ours, theirs


@pytest.fixture
def guarded(authorities: tuple[Path, Path], tmp_path: Path) -> Iterator[Guarded]:
    ours, theirs = (shutil.copytree(path, tmp_path / path.name) for path in authorities)
    with federation("ab", credentials=of_server(ours)) as f:
        yield Guarded(f, ours, theirs)


def refused(raw: Raw) -> None:
    """The connection ends before the server says a word."""
    with pytest.raises(grpc.RpcError) as error:
        raw.hello()
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    raw.leave()


def test_honest_clients_join_by_the_names_of_their_certificates(guarded: Guarded) -> None:
    """What a client says of its own name counts for nothing."""
    lying = Raw(guarded.f.port, "b", credentials=of_client(guarded.ours, "a"), host="localhost")
    guarded.f.ends.append(lying.leave)
    lying.join()
    guarded.f.there("a")
    assert guarded.f.server.members["b"].stream is None
    lying.leave()
    until(lambda: guarded.f.server.members["a"].stream is None)
    while not guarded.f.server.inbox.empty():
        guarded.f.server.inbox.get()
    guarded.all_is_well()


def test_a_client_of_another_authority(guarded: Guarded) -> None:
    for folder in ("theirs", "mixed"):
        if folder == "mixed":  # it trusts our server, so that it is the server that refuses
            shutil.copy(guarded.ours / "ca.crt", guarded.theirs / "clients/a/ca.crt")
            pair = [guarded.theirs / "clients/a" / name for name in ("client.key", "client.crt")]
            key, certificate = (path.read_bytes() for path in pair)
            ca = (guarded.ours / "ca.crt").read_bytes()
            credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        else:
            credentials = of_client(guarded.theirs, "a")
        refused(Raw(guarded.f.port, "a", credentials=credentials, host="localhost"))
    guarded.all_is_well()


def test_a_client_says_that_the_authorities_differ(guarded: Guarded) -> None:
    with pytest.raises(FederationError) as error:
        guarded.part(guarded.theirs / "clients/a").run()
    assert str(error.value) == (
        f"The server localhost:{guarded.f.port} cannot be used: the server's certificate is not "
        "from this identity's authority (ca.crt); ask its operator which authority it uses."
    )
    guarded.all_is_well()


def test_an_ended_certificate(guarded: Guarded) -> None:
    pki.issue(guarded.ours, "a", days=0, renew=True)
    credentials = of_client(guarded.ours, "a", check=False)
    refused(Raw(guarded.f.port, "a", credentials=credentials, host="localhost"))
    with pytest.raises(IdentityError, match=r'Certificate of client "a" ended on .* Renew it with'):
        guarded.part(guarded.ours / "clients/a")
    pki.issue(guarded.ours, "a", renew=True)
    guarded.all_is_well()


def test_a_certificate_that_ends_while_its_client_is_away(guarded: Guarded) -> None:
    part = guarded.part(guarded.ours / "clients/a")
    part._credentials = of_client(guarded.theirs, "a")  # so that there is no connection
    pki.issue(guarded.ours, "a", days=0, renew=True)
    with pytest.raises(IdentityError, match=r'Certificate of client "a" ended on .* Renew it with'):
        part.run()


def test_the_servers_certificate_is_no_clients(guarded: Guarded) -> None:
    pair = [guarded.ours / "server" / name for name in ("server.key", "server.crt")]
    key, certificate = (path.read_bytes() for path in pair)
    ca = (guarded.ours / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    refused(Raw(guarded.f.port, "localhost", credentials=credentials, host="localhost"))
    with pytest.raises(IdentityError, match="holds the identity of a server"):
        guarded.part(guarded.ours / "server")
    guarded.all_is_well()


def test_no_certificate(guarded: Guarded) -> None:
    credentials = grpc.ssl_channel_credentials((guarded.ours / "ca.crt").read_bytes())
    refused(Raw(guarded.f.port, "a", credentials=credentials, host="localhost"))
    guarded.all_is_well()


def test_no_tls(guarded: Guarded) -> None:
    refused(Raw(guarded.f.port, "a"))
    with pytest.raises(FederationError) as error:
        guarded.part(None, HOST).run()
    assert str(error.value) == (
        f"The server {HOST}:{guarded.f.port} speaks TLS; leave out --insecure and give --identity."
    )
    guarded.all_is_well()


def test_a_name_that_is_not_in_the_study(guarded: Guarded) -> None:
    credentials = of_client(guarded.ours, "stranger")
    with pytest.raises(FederationError) as error:
        look(f"localhost:{guarded.f.port}", credentials, "a", VERSIONS)
    assert str(error.value).startswith("The server says: The study has no client named 'stranger';")
    raw = Raw(guarded.f.port, "a", credentials=credentials, host="localhost")
    assert "no client named 'stranger'" in raw.hello().refusal.reason
    raw.leave()
    guarded.all_is_well()


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\x00" * 100, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 999,
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 5000],
)  # fmt: skip
def test_garbage(guarded: Guarded, garbage: bytes) -> None:
    for _ in range(5):
        with socket.create_connection((HOST, guarded.f.port), PATIENCE) as line:
            line.sendall(garbage)
    guarded.all_is_well()


def test_garbage_within_tls(guarded: Guarded) -> None:
    folder = guarded.ours / "clients/a"
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    context.set_alpn_protocols(["h2"])
    for garbage in (b"\xff" * 3000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 3000):
        raw = socket.create_connection((HOST, guarded.f.port), PATIENCE)
        with context.wrap_socket(raw, server_hostname="localhost") as line:
            line.sendall(garbage)
    guarded.all_is_well()


@pytest.mark.parametrize(
    "first", [b"", b"\xff\xff", b"\x42\x03abc", b"\x32\x00", b"\x0a\x04\xff\xff\xff\xff"]
)
def test_garbage_within_the_service(guarded: Guarded, first: bytes) -> None:
    credentials = of_client(guarded.ours, "a")
    raw = Raw(guarded.f.port, "a", credentials=credentials, host="localhost")
    raw.send_raw(first)
    assert raw.end() != ""
    raw.leave()
    guarded.all_is_well()


def test_a_server_on_another_host(authorities: tuple[Path, Path], tmp_path: Path) -> None:
    ours, _ = authorities
    folder = shutil.copytree(ours, tmp_path / "ours")
    pki.renew_server(folder, ["topics.example.org"])
    with federation("ab", credentials=of_server(folder)) as f:
        credentials = of_client(folder, "a")
        refused(Raw(f.port, "a", credentials=credentials, host="localhost"))
        part = GrpcParticipation(
            f"localhost:{f.port}", folder / "clients/a", CORPUS, Policy(), tmp_path / "out"
        )
        with pytest.raises(FederationError, match="certificate is not for 'localhost'; use the"):
            part.run()
        assert f.server.members["a"].stream is None


def test_a_servers_ended_certificate(authorities: tuple[Path, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(authorities[0], tmp_path / "ours")
    pki.renew_server(folder, days=0)
    with federation("ab", credentials=of_server(folder, check=False)) as f:
        part = GrpcParticipation(
            f"localhost:{f.port}", folder / "clients/a", CORPUS, Policy(), tmp_path / "out"
        )
        with pytest.raises(FederationError, match="has expired; its operator has to renew it"):
            part.run()


def test_a_server_without_tls_is_not_spoken_to(
    authorities: tuple[Path, Path], tmp_path: Path
) -> None:
    with federation("ab") as f:
        identity = authorities[0] / "clients/a"
        part = GrpcParticipation(
            f"localhost:{f.port}", identity, CORPUS, Policy(), tmp_path / "out"
        )
        with pytest.raises(FederationError, match="what listens there does not speak TLS; is it"):
            part.run()
        assert f.server.members["a"].stream is None


def test_nothing_readable_travels(guarded: Guarded) -> None:
    """On the wire, words of a reply are ciphertext."""
    canary = b"quetzalcoatl"
    seen = bytearray()
    listening = socket.create_server((HOST, 0))
    port = listening.getsockname()[1]

    def forward() -> None:
        near, _ = listening.accept()
        far = socket.create_connection((HOST, guarded.f.port))
        near.settimeout(0.02)
        far.settimeout(0.02)
        while not stop:
            for source, sink in ((near, far), (far, near)):
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    continue
                seen.extend(data)
                sink.sendall(data)
        near.close()
        far.close()

    stop: list[Any] = []
    road = guarded.f.background(forward)
    half = Half({"ask": lambda **_: {"words": [canary.decode()], "documents": 1}})
    member = Member(f"localhost:{port}", "a", door("a", half), of_client(guarded.ours, "a"))
    guarded.f.ends.append(member.kill)
    guarded.honest("b", 1.0)
    guarded.f.there("a", "b")
    replies = guarded.f.clients.call("ask")
    assert replies["a"]["words"] == [canary.decode()]
    stop.append(True)
    road.result()
    listening.close()
    assert len(seen) > 500
    assert canary not in seen
    assert b"tiny" not in seen
