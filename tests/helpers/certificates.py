"""Certificates to look into, and TLS with them."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

from cryptography import x509

from fedtopics.pki import certificates

# What OpenSSL calls the reasons.
EXPIRED, UNKNOWN_ISSUER, PURPOSE, OTHER_HOST, OTHER_ADDRESS = 10, 20, 26, 62, 64
HOSTS = ("localhost", "topics.example.org", "127.0.0.1", "2001:db8::7")
MINUTE = timedelta(minutes=1)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(path: Path, kind: type[x509.ExtensionType]) -> x509.Extension[x509.ExtensionType]:
    return certificate(path).extensions.get_extension_for_class(kind)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def handshake(server: Path, client: Path, host: str = "localhost") -> dict[str, object]:
    """Shake hands by the files of two folders; return what the server knows of the client."""
    wires = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        context(server, ssl.PROTOCOL_TLS_SERVER).wrap_bio(*wires, server_side=True),
        context(client, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(*wires[::-1], server_hostname=host),
    ]
    waiting = list(reversed(sides))
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    sides[1].write(b"hello")
    assert sides[0].read() == b"hello"
    return sides[0].getpeercert() or {}


def context(folder: Path, protocol: int) -> ssl.SSLContext:
    files = {path.suffix: path for path in folder.iterdir() if path.stem in ("client", "server")}
    made = ssl.SSLContext(protocol)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(folder / "ca.crt")
    made.load_cert_chain(files[".crt"], files[".key"])
    return made


def later(shift: timedelta):  # type: ignore[no-untyped-def]
    """Return the clock of certificates, shifted."""
    now = certificates._now
    return lambda days=0: now(days) + shift


def pem(label: str, der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", label).encode()
