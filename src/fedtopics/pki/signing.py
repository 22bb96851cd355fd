"""Signatures by the keys of certificates: what a participant says, others can hold it to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedtopics.errors import IdentityError
from fedtopics.pki.files import UNREADABLE
from fedtopics.pki.identity import Identity, Role, common_name

_HASH = ec.ECDSA(SHA256())


def has_signed(key: ec.EllipticCurvePublicKey, content: bytes, signature: bytes) -> bool:
    """Whether a signature of some content is by a key."""
    try:
        key.verify(signature, content, _HASH)
    except InvalidSignature:
        return False
    return True


class Signer:
    """Signs with an identity's key, and checks the signatures of others of its authority."""

    def __init__(self, identity: Identity) -> None:
        key = load_pem_private_key(identity.key, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - as Identity.load checks
        self.certificate = identity.certificate
        self._key = key
        self._authority = x509.load_pem_x509_certificate(identity.ca)
        own = identity.certificate, key.public_key()  # for what comes back by way of others
        self._known = {identity.name: own}

    @classmethod
    def load(cls, folder: str | Path, role: Role, name: str = "") -> Signer:
        """Read an identity folder as `Identity.load`; an `IdentityError` if its name is another."""
        identity = Identity.load(folder, role)
        if name not in ("", identity.name):
            raise IdentityError(
                f"The identity in {folder} is of {identity.name!r}, and this client is called "
                f"{name!r}; they have to be the same."
            )
        return cls(identity)

    def sign(self, content: bytes) -> bytes:
        """Sign with ECDSA on P-256."""
        return self._key.sign(content, _HASH)

    def learn(self, name: str, certificate: bytes) -> None:
        """Take the certificate of who has a name.

        An `IdentityError` if it is of another authority or another name, or the name has another
        key already.
        """
        if name in self._known and self._known[name][0] == certificate:
            return
        if not certificate:
            raise IdentityError(
                f"Client {name!r} has shown no certificate; where one participant has an identity, "
                "the server and all others need one as well."
            )
        try:
            read = x509.load_pem_x509_certificate(certificate)
            read.verify_directly_issued_by(self._authority)
            key = read.public_key()
        except (*UNREADABLE, TypeError, InvalidSignature):
            raise IdentityError(
                f"The certificate of client {name!r} is not of this study's authority."
            ) from None
        if common_name(read.subject) != name or not isinstance(key, ec.EllipticCurvePublicKey):
            raise IdentityError(f"The certificate that was shown for {name!r} is another's.")
        self._known[name] = certificate, key

    def ended(self, name: str) -> str:
        """Say that the certificate of who has a name has ended, or not begun, if so."""
        read = x509.load_pem_x509_certificate(self.known(name))
        begins, ends = read.not_valid_before_utc, read.not_valid_after_utc
        if begins <= datetime.now(UTC) < ends:
            return ""
        return (
            f"Certificate of client {name!r} is of {begins:%Y-%m-%d} and ended on {ends:%Y-%m-%d}. "
            f"Renew it with: fedtopics pki issue {name} --renew"
        )

    def known(self, name: str) -> bytes:
        """Return the certificate of who has a name, or nothing."""
        return self._known[name][0] if name in self._known else b""

    def fits(self, name: str, content: bytes, signature: bytes) -> bool:
        """Whether who has a name has signed this; not, if its certificate is not known."""
        return name in self._known and has_signed(self._known[name][1], content, signature)
