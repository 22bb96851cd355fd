"""Members' keys and certificates. Each member makes its own key; there is no authority."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from getpass import getpass
from pathlib import Path
from textwrap import wrap
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fedtopics.errors import IdentityError, refuse
from fedtopics.escaping import check_client_name
from fedtopics.files import create, make_folder, read_bytes

PRIVATE = "key.pem"
PUBLIC = "certificate.pem"
PASSPHRASE_FILE = "FEDTOPICS_PASSPHRASE_FILE"  # noqa: S105 an environment variable

YEARS = 10
# The same content has the same signature, so a message sent again has the same bytes.
SIGNATURE = ec.ECDSA(SHA256(), deterministic_signing=True)
UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)


def host_of(name: str) -> str:
    """Return the DNS name that stands for a member in its certificate."""
    return re.sub(r"[^a-z0-9-]", lambda found: f"-{ord(found[0]):x}-", name.lower()).strip("-")


@dataclass(frozen=True)
class Key:
    """A member's private key and its certificate, in a folder of its own."""

    name: str
    private: ec.EllipticCurvePrivateKey
    certificate: bytes  # PEM
    folder: Path

    @classmethod
    def create(cls, folder: str | Path, name: str, passphrase: bytes = b"") -> Key:
        """Make a key in a new folder, and NAME.pem next to it: the certificate for the others.

        With a passphrase, the private key is encrypted on disk.
        """
        check_client_name(name)
        folder = Path(folder)
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))  # clocks differ
            .not_valid_after(now + timedelta(days=365 * YEARS))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(name))]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .sign(private, SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        shared = folder.with_name(f"{name}.pem")
        for path in (folder, shared):
            if path.exists() or path.is_symlink():
                raise IdentityError(
                    f"{path} exists already, and a key is never overwritten; choose another name "
                    "or folder."
                )
        make_folder(folder)
        key = cls(name, private, certificate, folder)
        create(folder / PRIVATE, key.in_pem(passphrase))
        create(folder / PUBLIC, certificate, public=True)
        create(shared, certificate, public=True)
        return key

    @classmethod
    def load(cls, folder: str | Path) -> Key:
        """Read a key; IdentityError if it is missing, damaged or does not match its certificate."""
        path = Path(folder) / PRIVATE
        is_encrypted = path.is_file() and b"ENCRYPTED" in read_secret(path)
        passphrase = passphrase_for(str(path)) if is_encrypted else None
        try:
            private = serialization.load_pem_private_key(read_bytes(path), passphrase)
            content = read_bytes(Path(folder) / PUBLIC)
        except (OSError, TypeError, *UNREADABLE):
            raise IdentityError(
                f"The passphrase of {path} is wrong, or the key is damaged; give the right one."
                if is_encrypted
                else f'{folder} has no key, or a damaged one; make one with "fedtopics key create '
                'NAME".'
            ) from None
        content = alone(content, str(Path(folder) / PUBLIC))
        public = read_certificate(content, str(folder)).public_key()
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != public:
            raise IdentityError(f"The key and the certificate in {folder} do not belong together.")
        return cls(name_of(content, str(folder)), private, content, Path(folder))

    def in_pem(self, passphrase: bytes = b"") -> bytes:
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase)
            if passphrase
            else serialization.NoEncryption(),
        )

    def sign(self, content: bytes) -> bytes:
        """Sign; the same content always has the same signature (RFC 6979)."""
        return self.private.sign(content, SIGNATURE)

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        return has_signed(self.certificate, content, signature)


@dataclass(frozen=True)
class Roster:
    """The certificates of a study: by member, and the server's (None with Flower or FLARE)."""

    members: Mapping[str, bytes]  # PEM
    server: bytes | None

    @classmethod
    def of(cls, certificates: Mapping[str, str | None], server: str | None) -> Roster:
        """Make a roster of certificates in PEM; IdentityError if one is missing or wrong."""
        if missing := sorted(name for name, content in certificates.items() if content is None):
            raise IdentityError(
                f"The study names no certificate of {', '.join(missing)}; each member makes one "
                'with "fedtopics key create NAME".'
            )
        members = {n: alone((text or "").encode(), f"of {n}") for n, text in certificates.items()}
        for name, content in members.items():
            if (certified_name := name_of(content, f"of {name}")) != name:
                raise IdentityError(f"The certificate of {name!r} belongs to {certified_name!r}.")
        return cls(members, None if server is None else alone(server.encode(), "of the server"))

    @property
    def names(self) -> list[str]:
        return sorted(self.members)

    @cached_property
    def plain(self) -> dict[str, str]:
        """The SHA-256 of each certificate, for the digest of a study."""
        fingerprints = {name: certificate_fingerprint(self.members[name]) for name in self.names}
        return (
            fingerprints
            if self.server is None
            else fingerprints | {"": certificate_fingerprint(self.server)}
        )

    def verify(self, name: str, signature: bytes, content: bytes) -> bool:
        """Whether a member has signed the content."""
        return name in self.members and has_signed(self.members[name], content, signature)


def read_secret(path: Path) -> bytes:
    """Read a private key or its passphrase; IdentityError if other users may read it too.

    As for PostgreSQL's keys, the group may read a file of another user, such as a mounted secret.
    """
    status = path.stat()
    if os.name == "posix" and status.st_mode & (0o077 if status.st_uid == os.getuid() else 0o037):
        raise IdentityError(f"Other users of this machine can use {path}; run chmod 600 {path}.")
    return read_bytes(path)


def passphrase_for(key: str, ask: Callable[[str], str] = getpass) -> bytes:
    """Read the passphrase of a key from the file that services name, or ask on the terminal."""
    file = Path(os.environ.get(PASSPHRASE_FILE, ""))
    passphrase = (
        read_secret(file).rstrip(b"\r\n")
        if file.is_file()
        else ask(f"Passphrase of {key}: ").encode()
        if sys.stdin.isatty()
        else b""
    )
    if not passphrase:
        raise IdentityError(
            f"{key} needs a passphrase; set {PASSPHRASE_FILE} to a file with it, or use a terminal."
        )
    return passphrase


def read_pem(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}.") from None


def read_certificate(content: bytes, where: str) -> x509.Certificate:
    """Read a certificate; IdentityError if it is damaged or not valid now."""
    if b"PRIVATE KEY" in content:
        raise IdentityError(
            f"The certificate {where} is a private key, which must stay secret; use the member's "
            "NAME.pem."
        )
    try:
        certificate = x509.load_pem_x509_certificate(content)
        public = certificate.public_key()
        certificate.subject.rfc4514_string()  # a damaged name fails only when it is read
        now = datetime.now(UTC)
    except UNREADABLE:
        raise IdentityError(
            f"The certificate {where} is damaged, or not a certificate; ask its owner for NAME.pem "
            "again."
        ) from None
    first = certificate.not_valid_before_utc
    last = certificate.not_valid_after_utc
    refuse(
        {
            f'The certificate {where} has no P-256 key; use "fedtopics key create NAME".': (
                not isinstance(public, ec.EllipticCurvePublicKey)
                or public.curve.name != "secp256r1"
            ),
            f"The certificate {where} is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, and this "
            f"computer's date is {now:%Y-%m-%d}; set the clock, or make a new key.": (
                not first <= now <= last
            ),
        },
        error=IdentityError,
    )
    return certificate


def alone(content: bytes, where: str) -> bytes:
    """Return only the first certificate of a PEM file, which people compare."""
    return read_certificate(content, where).public_bytes(serialization.Encoding.PEM)


def name_of(content: bytes, where: str) -> str:
    names = read_certificate(content, where).subject.get_attributes_for_oid(
        x509.NameOID.COMMON_NAME
    )
    name = str(names[0].value) if len(names) == 1 else ""
    check_client_name(name)
    return name


def certificate_fingerprint(content: bytes) -> str:
    return x509.load_pem_x509_certificate(content).fingerprint(SHA256()).hex()


def shown(content: bytes) -> str:
    """Return the SHA-256 of a certificate in groups of four digits, to be read aloud."""
    return " ".join(wrap(certificate_fingerprint(content), width=4))


def public_key_of(certificate: bytes) -> ec.EllipticCurvePublicKey:
    # `read_certificate` accepts no other kind of key.
    return cast(
        "ec.EllipticCurvePublicKey", x509.load_pem_x509_certificate(certificate).public_key()
    )


def has_signed(certificate: bytes, content: bytes, signature: bytes) -> bool:
    try:
        public_key_of(certificate).verify(signature, content, SIGNATURE)
    except InvalidSignature:
        return False
    return True
