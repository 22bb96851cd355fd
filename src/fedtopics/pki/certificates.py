"""What stands in a certificate: who, for what, how long, signed by the authority."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from fedtopics.errors import IdentityError
from fedtopics.pki.files import fingerprint, read_certificate, read_key
from fedtopics.pki.identity import PURPOSES, Role
from fedtopics.pki.names import peer_host

AUTHORITY_DAYS = 3652
CLOCK_TOLERANCE = timedelta(minutes=5)
HOST_NAME = re.compile(r"(?=.{1,253}$)([A-Za-z0-9_-]{1,63}\.)*(?![0-9]+$)[A-Za-z0-9_-]{1,63}")
USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


class Authority(NamedTuple):
    """A certificate that signs others, and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls) -> Authority:
        """Make a new one, for ten years."""
        key, name = new_key(), subject("fedtopics authority")
        builder = _builder(name, name, key.public_key(), _now(AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage("key_cert_sign", "crl_sign"), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, folder: Path) -> Authority:
        """Read it from its folder; refuse one that has ended or lacks its key."""
        if not (folder / "ca.key").exists():
            if (folder / "ca.crt").exists():
                raise IdentityError(
                    f"There is no {folder / 'ca.key'}; bring the authority's key back from where "
                    "it is kept, for as long as you sign."
                )
            raise IdentityError(
                f"There is no authority in {folder}; make one with: fedtopics pki create {folder} "
                "--server HOST"
            )
        certificate, key = read_certificate(folder / "ca.crt"), read_key(folder / "ca.key")
        if fingerprint(key.public_key()) != fingerprint(certificate.public_key()):
            raise IdentityError(
                f"The key {folder / 'ca.key'} does not belong to {folder / 'ca.crt'}; take both "
                "from one authority."
            )
        if certificate.not_valid_after_utc <= _now():
            raise IdentityError(
                f"The authority in {folder} ended on {certificate.not_valid_after_utc:%Y-%m-%d}; "
                "make a new one, and new identities, with: fedtopics pki create DIR --server HOST"
            )
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        """The certificate, for those who trust it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def certify(
        self,
        key: CertificatePublicKeyTypes,
        name: str,
        days: int,
        hosts: x509.SubjectAlternativeName | None = None,
        peer: bool = False,
    ) -> bytes:
        """Return the certificate, in PEM, of a public key: a server's if it has hosts.

        With that of a `peer` others connect to a client as well.
        """
        roles: tuple[Role, ...] = ("client",) if hosts is None else ("server",)
        if peer:
            roles, hosts = ("client", "server"), server_names([peer_host(name)])
        if not 0 <= days <= AUTHORITY_DAYS:
            raise IdentityError(
                f"A certificate cannot be valid for {days} days; take 0 to {AUTHORITY_DAYS}."
            )
        ends = min(_now(days), self.certificate.not_valid_after_utc)
        identifier = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)
        builder = _builder(subject(name), self.certificate.subject, key, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage("digital_signature"), True)
        builder = builder.add_extension(
            x509.ExtendedKeyUsage([PURPOSES[role] for role in roles]), False
        )
        builder = builder.add_extension(issuer, False)
        if hosts is not None:
            builder = builder.add_extension(hosts, False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: CertificatePublicKeyTypes, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - CLOCK_TOLERANCE)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


def server_names(servers: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return the names of hosts as a certificate has them: DNS names, and IP addresses apart."""
    if not servers:
        raise IdentityError("Name at least one host of the server: --server HOST")
    hosts: list[x509.GeneralName] = []
    for server in dict.fromkeys(servers):
        try:
            hosts.append(x509.IPAddress(ipaddress.ip_address(server)))
        except ValueError:
            if not HOST_NAME.fullmatch(server):
                raise IdentityError(
                    f"{server!r} is no DNS name and no IP address; write it as in "
                    "topics.example.org or 192.0.2.7, without port."
                ) from None
            hosts.append(x509.DNSName(server))
    return x509.SubjectAlternativeName(hosts)


def new_key() -> ec.EllipticCurvePrivateKey:
    """Make a P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def _now(days: int = 0) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def subject(name: str) -> x509.Name:
    """Make a subject of nothing but a common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*usages: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in usages for usage in USAGES})
