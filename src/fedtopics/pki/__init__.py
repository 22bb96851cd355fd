"""Certificates for mutual TLS: an authority, and an identity for the server and each client.

::

    pki/                 the authority, at the organisation that runs the server
    ├── ca.crt           public: who trusts it trusts every certificate below
    ├── ca.key           secret: never travels, best kept offline
    ├── server/          identity of the server: ca.crt, server.crt, server.key
    ├── clients/NAME/    identity of a client: ca.crt, client.crt, client.key
    └── signed/NAME/     for a client that made its own key: ca.crt, client.crt, both public

A client's certificate has the client's name as its common name, and nothing else that names it:
this is who the client is to the server, wherever it connects from. Certificates are X.509 with
P-256 keys; a client's cannot serve as a server's, nor the other way round. A peer's serves for
both: it has a DNS name besides, which stands for its name.

From the bottom up: `files` keeps keys and certificates, `identity` reads and checks what travels,
`certificates` says what stands in a certificate, `signing` signs with its key, `authority` has what
people do.
"""

from fedtopics.pki.authority import (
    create,
    create_authority,
    issue,
    pki_option,
    renew_server,
    request,
    sign,
)
from fedtopics.pki.identity import Identity, Request
from fedtopics.pki.signing import Signer

__all__ = [
    "Identity",
    "Request",
    "Signer",
    "create",
    "create_authority",
    "issue",
    "pki_option",
    "renew_server",
    "request",
    "sign",
]
