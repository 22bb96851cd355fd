"""Mutual TLS with pinned certificates: each side trusts the certificates of the roster only.

The certificates are self-signed and there is no authority. Both sides are gRPC, which agrees on
TLS 1.3; its Python interface cannot forbid 1.2.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding


def channel_credentials(
    key: bytes, certificate: bytes, server: bytes
) -> tuple[grpc.ChannelCredentials, str]:
    """Return a member's credentials, all from PEM, and the name in the server's certificate.

    gRPC compares that name in place of the host name: the certificate is pinned, and the server can
    move to another host.
    """
    names = x509.load_pem_x509_certificate(server).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return (
        grpc.ssl_channel_credentials(server, key, certificate),
        names.value.get_values_for_type(x509.DNSName)[0],
    )


def server_credentials(
    key: bytes, certificate: bytes, members: Mapping[str, bytes]
) -> grpc.ServerCredentials:
    """Return the server's credentials; its key and all certificates are in PEM."""
    roots = b"\n".join(members.values())
    return grpc.ssl_server_credentials([(key, certificate)], roots, require_client_auth=True)


def names_by_certificate(members: Mapping[str, bytes]) -> dict[bytes, str]:
    """Return the member's name for each certificate in DER; `members` has them in PEM."""
    return {
        x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER): name
        for name, pem in members.items()
    }


def certificate_of(context: Any) -> bytes:
    """Return the certificate in DER of whoever made a call, as TLS has checked it."""
    (pem,) = context.auth_context()["x509_pem_cert"]
    return ssl.PEM_cert_to_DER_cert(pem.decode())
