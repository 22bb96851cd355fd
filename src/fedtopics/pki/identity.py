"""Read and check what travels: an identity folder, and a client's request for a certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtopics.errors import IdentityError, StudyError
from fedtopics.pki.files import (
    certificate_fingerprint,
    fingerprint,
    read,
    read_certificate,
    read_key,
)
from fedtopics.pki.names import check_client_name

Role = Literal["server", "client"]

PURPOSES: dict[Role, x509.ObjectIdentifier] = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
}
REQUEST = "request.csr"


@dataclass(frozen=True)
class Identity:
    """Who a server or a client is: its certificate, its key, and the authority both sides trust."""

    name: str  # the client's; of a server the first of its hosts
    role: Role
    ca: bytes  # PEM, as gRPC takes it, like the next two
    certificate: bytes
    key: bytes = field(repr=False)
    hosts: tuple[str, ...]  # where clients reach a server; empty for a client
    not_before: datetime  # when the certificate begins and ends, UTC
    not_after: datetime

    @classmethod
    def load(
        cls, folder: str | Path, role: Role | None = None, *, check_validity: bool = True
    ) -> Identity:
        """Read an identity folder, and check that its parts belong together.

        `role` refuses an identity of the other role. Without `check_validity` a certificate that
        has ended or not begun is read as well, to show it or to try what happens. An
        `IdentityError` if a file is missing or damaged, the key is not the certificate's, the
        certificate is not signed by ``ca.crt`` or not made for the role, or now is not in its time.
        """
        folder = Path(folder)
        wanted, role = role, _role(folder)
        if wanted not in (None, role):
            raise IdentityError(
                f"{folder} holds the identity of a {role}; name the folder of a {wanted}'s."
            )
        files = [folder / name for name in ("ca.crt", f"{role}.crt", f"{role}.key")]
        if missing := [path for path in files if not path.is_file()]:
            raise IdentityError(
                f"There is no {missing[0]}; the identity of a {role} is ca.crt, {role}.crt and "
                f"{role}.key in one folder."
            )
        certificate = read_certificate(files[1])
        _check_parts(folder, role, certificate)
        hosts = hosts_of(certificate)
        name = common_name(certificate.subject, files[1])
        name = hosts[0] if role == "server" and hosts else name
        ca, pem, key = map(read, files)
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        identity = cls(name, role, ca, pem, key, hosts, begins, ends)
        if check_validity and identity.problem:
            raise IdentityError(identity.problem)
        return identity

    @property
    def title(self) -> str:
        """What to call it in a sentence."""
        return f'client "{self.name}"' if self.role == "client" else f'the server "{self.name}"'

    @property
    def fingerprints(self) -> dict[str, str]:
        """SHA-256 of the certificate, of its public key, and of the authority's certificate."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        authority = x509.load_pem_x509_certificate(self.ca)
        return {
            "certificate": certificate_fingerprint(certificate),
            "public_key": fingerprint(certificate.public_key()),
            "authority": certificate_fingerprint(authority),
        }

    @property
    def problem(self) -> str | None:
        """Say that the certificate has ended, or not begun by this machine's clock, if so."""
        now = datetime.now(UTC)
        if now < self.not_before:
            return (
                f"Certificate of {self.title} begins on {self.not_before:%Y-%m-%d %H:%M} UTC, and "
                f"this machine's clock says {now:%Y-%m-%d %H:%M}. Set the clock."
            )
        if now >= self.not_after:
            again = f"issue {self.name}" if self.role == "client" else "create"
            return (
                f"Certificate of {self.title} ended on {self.not_after:%Y-%m-%d}. Renew it with: "
                f"fedtopics pki {again} --renew"
            )
        return None


@dataclass(frozen=True)
class Request:
    """What a client asks an authority to certify: that this public key is its own."""

    name: str
    public_key: ec.EllipticCurvePublicKey

    @classmethod
    def load(cls, path: str | Path) -> Request:
        """Read a request and check its signature, its key and its name.

        An `IdentityError` if it is no request, was changed after the client signed it, has a key of
        another kind, or names no client.
        """
        path = Path(path)
        pem = read(path)
        try:
            request = x509.load_pem_x509_csr(pem)
            intact, key, subject = request.is_signature_valid, request.public_key(), request.subject
        except (ValueError, UnsupportedAlgorithm):
            raise IdentityError(
                f"{path} is no request for a certificate, or is damaged; the client makes one "
                "with: fedtopics pki request NAME"
            ) from None
        if not intact:
            raise IdentityError(
                f"The request {path} was changed after it was signed with the client's key; "
                "ask the client to send it again."
            )
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            raise IdentityError(
                f"The key of the request {path} is not on the curve P-256; the client makes one "
                "with: fedtopics pki request NAME"
            )
        name = common_name(subject, path)
        try:
            check_client_name(name)
        except StudyError as error:
            raise IdentityError(f"The request {path} cannot be signed: {error}") from None
        return cls(name, key)

    @classmethod
    def waiting(cls, folder: str | Path) -> Request | None:
        """Return the request in a client's folder that has a key, but no certificate yet."""
        key, path, certificate = (Path(folder) / n for n in ("client.key", REQUEST, "client.crt"))
        if key.exists() and path.exists() and not certificate.exists():
            return cls.load(path)
        return None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the public key, which client and authority compare by telephone."""
        return fingerprint(self.public_key)


def common_name(subject: x509.Name, path: str | Path = "A certificate") -> str:
    """Return the one common name in the subject of a certificate or request."""
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise IdentityError(f"{path} has {len(names)} common names; a client has exactly one name.")
    return str(names[0].value)


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of a server's certificate."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names.value)


def _role(folder: Path) -> Role:
    """Return whose identity a folder is, by the names of its files."""
    if not folder.is_dir():
        raise IdentityError(f"There is no folder {folder} with an identity.")
    if (folder / "ca.key").exists():
        raise IdentityError(
            f"{folder} is an authority, not an identity; identities are {folder}/server and "
            f"{folder}/clients/NAME."
        )
    kept = {path.name for path in folder.iterdir()}
    client, server = kept & {"client.crt", "client.key"}, kept & {"server.crt", "server.key"}
    if bool(client) == bool(server):
        raise IdentityError(
            f"{folder} is no identity: it must hold either client.crt and client.key, or "
            "server.crt and server.key, beside ca.crt."
        )
    if waiting := Request.waiting(folder):
        raise IdentityError(
            f'Client "{waiting.name}" has no certificate yet. Send {folder / REQUEST} to who '
            f"runs the server, to be signed with: fedtopics pki sign {REQUEST}; then put "
            f"ca.crt and client.crt, which come back, into {folder}."
        )
    return "client" if client else "server"


def _check_parts(folder: Path, role: Role, certificate: x509.Certificate) -> None:
    """Hold the key, the authority and the purpose against the certificate."""
    path, key, ca = folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt"
    if fingerprint(read_key(key).public_key()) != fingerprint(certificate.public_key()):
        raise IdentityError(
            f"The key {key} does not belong to the certificate {path}; copy both from one identity."
        )
    try:
        certificate.verify_directly_issued_by(read_certificate(ca))
    except (ValueError, TypeError, InvalidSignature):
        raise IdentityError(
            f"The certificate {path} is not signed by the authority {ca}; copy both from one "
            "identity."
        ) from None
    usages = (each.value for each in certificate.extensions)
    if not any(isinstance(u, x509.ExtendedKeyUsage) and PURPOSES[role] in u for u in usages):
        raise IdentityError(
            f"The certificate {path} is not made for a {role}; take the identity of a {role}."
        )
