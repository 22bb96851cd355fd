"""Who can speak with whom: pinned certificates, and nobody who vouches for others."""

import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import FederationError
from fedtopics.protocol.link import LinkError
from fedtopics.transport.grpc import GrpcServer
from tests.helpers.echo import CERTIFICATES, HOST, SERVER, Echo, linked, process, serving
from tests.helpers.pinned import Pair, pair


def test_each_member_has_the_name_of_its_certificate() -> None:
    with serving() as server:
        for name in CERTIFICATES:
            with linked(server.port, name) as link:
                assert link.ask(b"1") == f"{name}:1".encode()


UNKNOWN = r"may not know this member's certificate$"


@pytest.mark.parametrize(
    ("own", "errors", "message"),
    [
        (pair("stranger", number=1), LinkError, UNKNOWN),
        (pair("north", number=1), LinkError, UNKNOWN),
        # TLS lets a certificate pass that a member has signed; it is not a member's own.
        (pair("south", number=1, issuer=pair("north")), (FederationError, LinkError), None),
        # A stolen certificate, without its key.
        (Pair(pair("thief").key, pair("north").certificate), LinkError, None),
    ],
)
def test_a_stranger_is_refused_whatever_its_name(
    own: Pair, errors: Any, message: str | None
) -> None:
    service = Echo()
    refusal = pytest.raises(errors, match=message)
    with serving(service) as server, linked(server.port, own) as link, refusal:
        link.ask(b"1")
    assert service.asked == 0


@pytest.mark.parametrize("expected", [pair("relay", number=1), pair("other")])
def test_the_client_refuses_another_server(expected: Pair) -> None:
    service = Echo()
    refusal = pytest.raises(LinkError, match=f"^the certificate of {HOST}:.* differs from the one")
    with serving(service) as server, linked(server.port, server=expected) as link, refusal:
        link.ask(b"1")
    assert service.asked == 0


def test_a_trusted_certificate_that_is_no_members_is_refused() -> None:
    service = Echo()
    both = pair("north").certificate + pair("second").certificate
    server = GrpcServer(service, f"{HOST}:0", SERVER.key, SERVER.certificate, {"north": both})
    try:
        refusal = pytest.raises(FederationError, match="does not belong to a member")
        with linked(server.port, "second") as link, refusal:
            link.ask(b"1")
        with linked(server.port, "north") as link:
            assert link.ask(b"1") == b"north:1"
    finally:
        server.close()
    assert service.asked == 1


def test_the_port_of_another_program() -> None:
    with serving() as server, pytest.raises(FederationError, match="the port is in use"):
        GrpcServer(Echo(), f"{HOST}:{server.port}", SERVER.key, SERVER.certificate, CERTIFICATES)


def test_a_member_needs_tls_1_3(tmp_path: Path) -> None:
    """The server is a process of its own, in which nothing has imported grpc before."""
    (tmp_path / "north.key").write_bytes(pair("north").key)
    versions: list[str | None] = []
    with process(tmp_path) as server:
        context = ssl.create_default_context(cafile=tmp_path / "relay.pem")
        context.load_cert_chain(tmp_path / "north.pem", tmp_path / "north.key")
        context.set_alpn_protocols(["h2"])
        for context.maximum_version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with suppress(OSError), socket.create_connection((HOST, server.port), 5) as plain:
                versions.append(context.wrap_socket(plain, server_hostname="relay").version())
        with linked(server.port) as link:
            assert link.ask(b"1") == b"north:1"
    assert versions == ["TLSv1.3"]
