"""Addresses and credentials: mutual TLS, or none on one's own machine."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from contextlib import suppress

import grpc

from fedtopics.errors import FederationError
from fedtopics.pki import Identity

DEFAULT_PORT = 7557
PATIENCE = 5.0  # seconds


def split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT, [IPv6]:PORT, HOST or IPv6; a `FederationError` if it is none of these."""
    address = address.rpartition("://")[2].rstrip("/")  # of a link that was copied
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]") or (":" in host and "[" not in host):
        host, port = address, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise FederationError(f"{address!r} is no address; write HOST:PORT, as in localhost:7557.")
    return host, int(port)


def places_of(address: str) -> list[str]:
    """Return all places of this machine that an address to listen on means, as HOST:PORT.

    There is one for each family that the machine has: a name can be an IPv4 and an IPv6 address,
    and whoever listens on one alone leaves the other to any process. None for another machine's.
    """
    host, port = split_address(address)
    found: dict[str, None] = {}
    with suppress(OSError):
        for family, kind, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with suppress(OSError), socket.socket(family, kind) as trial:
                trial.bind((place[0], 0))
                found[join_address(str(place[0]), port)] = None
    return list(found)


def join_address(host: str, port: int) -> str:
    """Write host and port as gRPC takes them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Show the server's certificate, ask for one of the same authority."""
    pair = (identity.key, identity.certificate)
    return grpc.ssl_server_credentials([pair], identity.ca, require_client_auth=True)


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """Show the client's certificate, trust servers of the same authority alone."""
    return grpc.ssl_channel_credentials(identity.ca, identity.key, identity.certificate)


def check_loopback(address: str) -> None:
    """Refuse, by a `FederationError`, to speak without TLS to other machines."""
    host, _ = split_address(address)
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise FederationError(
            f"--insecure speaks without encryption and works on this machine alone, not with "
            f"{host}; leave it out and make certificates with: fedtopics pki create"
        )


def speaks_tls(address: str) -> bool:
    """Whether what listens at an address answers with TLS, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(split_address(address), PATIENCE) as raw:
            context.wrap_socket(raw).close()
    except OSError:
        return False
    return True
