"""Make what identifies a server and its clients: folders with keys and certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from fedtopics.errors import IdentityError
from fedtopics.pki.certificates import Authority, new_key, server_names, subject
from fedtopics.pki.files import fingerprint, read_certificate, read_key, write_key, write_public
from fedtopics.pki.identity import REQUEST, Request, Role, hosts_of
from fedtopics.pki.names import check_client_name

SERVER = "fedtopics server"  # the common name in every server's certificate


def create(folder: str | Path, servers: Sequence[str], days: int = 365) -> Path:
    """Make an authority in a folder, and the identity of the server; return the latter's folder.

    Clients reach the server by `servers`, DNS names and IP addresses. The authority is valid for
    ten years. An `IdentityError` if there is one already, or a server is no DNS name or IP address.
    """
    folder = Path(folder)
    _check_unused(folder)
    hosts, key = server_names(servers), new_key()
    authority = create_authority(folder)
    certificate = authority.certify(key.public_key(), SERVER, days, hosts)
    write_key(folder / "server/server.key", key)
    return _deliver(folder / "server", "server", authority, certificate)


def create_authority(folder: str | Path) -> Authority:
    """Make an authority in a folder, without a server: its participants are all alike.

    An `IdentityError` if there is one already.
    """
    folder = Path(folder)
    _check_unused(folder)
    authority = Authority.make()
    write_key(folder / "ca.key", authority.key)
    write_public(folder / "ca.crt", authority.pem)
    return authority


def _check_unused(folder: Path) -> None:
    if any((folder / name).exists() for name in ("ca.key", "ca.crt", "server")):
        raise IdentityError(
            f"There is an authority in {folder} already, and it is not overwritten. Renew its "
            f"server's certificate with: fedtopics pki create {folder} --renew"
        )


def renew_server(folder: str | Path, servers: Sequence[str] = (), days: int = 365) -> Path:
    """Make a new ``server.crt`` for the server's key, of the same hosts unless others are named.

    As `create`; an `IdentityError` if there is no authority in the folder, or it has ended.
    """
    folder = Path(folder)
    authority = Authority.load(folder)
    old = read_certificate(folder / "server/server.crt")
    hosts = server_names(servers or hosts_of(old))
    certificate = authority.certify(old.public_key(), SERVER, days, hosts)
    return _deliver(folder / "server", "server", authority, certificate)


def issue(
    folder: str | Path, name: str, days: int = 365, *, renew: bool = False, peer: bool = False
) -> Path:
    """Make the identity of a client, key included; or a new certificate for the key it has.

    It is valid for `days`, but no longer than the authority; with 0 it has ended at once, to try
    what happens. To a `peer` others connect as well, in a study without a server. `renew` keeps the
    client's key, whoever made it. Return the folder that goes to the client: with the secret key,
    or, if it made its key itself, the two public files. An `IdentityError` if the client has a
    certificate and `renew` is not set, if it has none and it is, or if the authority is missing or
    has ended.
    """
    folder = Path(folder)
    check_client_name(name)
    authority, (target, public_key) = Authority.load(folder), _find_client(folder, name)
    if public_key is not None and not renew:
        raise IdentityError(
            f'Client "{name}" is in {target} already. Renew its certificate with: '
            f"fedtopics pki issue {name} --renew{pki_option(folder)}"
        )
    if public_key is None and renew:
        raise IdentityError(
            f'There is no client "{name}" in {folder} to renew. Make its identity with: '
            f"fedtopics pki issue {name}{pki_option(folder)}"
        )
    if public_key is not None:
        certificate = authority.certify(public_key, name, days, peer=peer or _is_peer(target))
        return _deliver(target, "client", authority, certificate)
    key, target = new_key(), folder / "clients" / name
    certificate = authority.certify(key.public_key(), name, days, peer=peer)
    write_key(target / "client.key", key)
    return _deliver(target, "client", authority, certificate)


def request(folder: str | Path, name: str) -> Path:
    """Make a client's own key in its folder, which never leaves that, and a request to certify it.

    Return the file ``request.csr``, which goes to the authority and holds nothing secret. An
    `IdentityError` if there is a key in the folder already.
    """
    check_client_name(name)
    key, path = new_key(), Path(folder) / REQUEST
    requested = x509.CertificateSigningRequestBuilder().subject_name(subject(name))
    signed = requested.sign(key, hashes.SHA256())
    write_key(path.with_name("client.key"), key)
    write_public(path, signed.public_bytes(serialization.Encoding.PEM))
    return path


def sign(
    folder: str | Path, request_path: str | Path, days: int = 365, *, peer: bool = False
) -> Path:
    """Make the certificate that a client's ``request.csr`` asks for; the same again renews it.

    Return the folder with the two public files that go to the client. An `IdentityError` if the
    request cannot be trusted (see `Request.load`), if the client has a certificate for another key,
    or if the authority is missing or has ended.
    """
    folder = Path(folder)
    requested = Request.load(request_path)  # of which only the name and the public key are taken
    authority, (target, public_key) = Authority.load(folder), _find_client(folder, requested.name)
    target = folder / "signed" / requested.name if public_key is None else target
    if public_key is not None and fingerprint(public_key) != requested.fingerprint:
        raise IdentityError(
            f'Client "{requested.name}" has a certificate in {target} for another key than that of '
            f"{request_path}. Ask it by telephone whether it made a new key; if so, remove "
            f"{target} and sign again."
        )
    peer = peer or _is_peer(target)
    certificate = authority.certify(requested.public_key, requested.name, days, peer=peer)
    return _deliver(target, "client", authority, certificate)


def pki_option(folder: Path) -> str:
    """Return the option that names an authority's folder, if it is not the default."""
    return "" if folder == Path("pki") else f" --pki {folder}"


def _find_client(folder: Path, name: str) -> tuple[Path, CertificatePublicKeyTypes | None]:
    """Return a client's folder and its key; a new client has no key, and no folder of that name."""
    # The certificate says which key is the client's; the key itself need not be kept here.
    for target in (folder / "clients" / name, folder / "signed" / name):
        if (target / "client.crt").exists():
            return target, read_certificate(target / "client.crt").public_key()
        if (target / "client.key").exists():
            return target, read_key(target / "client.key").public_key()
    return folder, None


def _is_peer(folder: Path) -> bool:
    """Whether the certificate that a client has is one of a peer."""
    path = folder / "client.crt"
    return path.exists() and bool(hosts_of(read_certificate(path)))


def _deliver(folder: Path, role: Role, authority: Authority, certificate: bytes) -> Path:
    write_public(folder / "ca.crt", authority.pem)
    write_public(folder / f"{role}.crt", certificate)
    return folder
