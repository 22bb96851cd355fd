"""Files of certificates and keys: a key is written once, for its owner's eyes only."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from fedtopics.errors import IdentityError
from fedtopics.files import create, make_folder, read_bytes, write_durably

# What reading a damaged certificate, or its key, can raise.
UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)


def read(path: Path) -> bytes:
    """Read a file; one sentence says why it cannot be read."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}.") from None


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM."""
    try:
        return x509.load_pem_x509_certificate(read(path))
    except UNREADABLE:
        raise IdentityError(
            f"{path} is no certificate in PEM, or is damaged; copy it again."
        ) from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read an unencrypted private key in PEM."""
    try:
        key = serialization.load_pem_private_key(read(path), password=None)
    except TypeError:
        raise IdentityError(f"The private key {path} is encrypted; decrypt it first.") from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityError(
            f"{path} is no private key as fedtopics makes them, or is damaged; copy it again."
        )
    return key


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key (PKCS #8, PEM) that only its owner can read; never over another."""
    form, secrecy = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, form, secrecy)
    make_folder(path.parent)
    try:
        create(path, pem)
    except FileExistsError:
        raise IdentityError(
            f"There is a private key {path} already, and it is not overwritten; take another "
            "folder."
        ) from None


def write_public(path: Path, content: bytes) -> None:
    """Write a public file, over an older one if there is one: all of it or nothing."""
    make_folder(path.parent)
    write_durably(path, content, public=True)


def fingerprint(key: PublicKeyTypes) -> str:
    """Return the SHA-256 of a public key (its SubjectPublicKeyInfo), for people to compare."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return _with_colons(hashlib.sha256(key.public_bytes(encoding, form)).digest())


def certificate_fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate, as openssl prints it."""
    return _with_colons(certificate.fingerprint(hashes.SHA256()))


def _with_colons(digest: bytes) -> str:
    return digest.hex(":").upper()
