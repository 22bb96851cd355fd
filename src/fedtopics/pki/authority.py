"""Make what identifies a server and its clients: folders with keys and certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

from fedtopics.errors import IdentityError
from fedtopics.pki.certificates import Authority, new_key, server_names, subject
from fedtopics.pki.files import fingerprint, read_certificate, read_key, write_key, write_public
from fedtopics.pki.identity import REQUEST, Request, Role, hosts_of
from fedtopics.pki.names import check_client_name


def create(folder: str | Path, servers: Sequence[str], days: int = 365) -> Path:
    """Make an authority, and the identity of the server.

    Parameters
    ----------
    folder : path
        The authority's folder; made if missing.
    servers : sequence of str
        DNS names and IP addresses by which clients reach the server.
    days : int
        How long the server's certificate is valid; the authority's is for ten years.

    Returns
    -------
    Path
        The server's identity folder.

    Raises
    ------
    IdentityError
        If there is an authority already, or a server is no DNS name or IP address.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in ("ca.key", "ca.crt", "server")):
        raise IdentityError(
            f"There is an authority in {folder} already, and it is not overwritten. Renew its "
            f"server's certificate with: fedtopics pki create {folder} --renew"
        )
    hosts, authority, key = server_names(servers), Authority.make(), new_key()
    certificate = authority.certify_server(key.public_key(), hosts, days)
    write_key(folder / "ca.key", authority.key)
    write_public(folder / "ca.crt", authority.pem)
    write_key(folder / "server/server.key", key)
    return _deliver(folder / "server", "server", authority, certificate)


def renew_server(folder: str | Path, servers: Sequence[str] = (), days: int = 365) -> Path:
    """Make a new certificate for the server's key, of the same hosts unless others are given.

    Parameters are those of `create`. In the server's identity folder, which is returned, only
    ``server.crt`` is new.

    Raises
    ------
    IdentityError
        If there is no authority in the folder, or it has ended.
    """
    folder = Path(folder)
    authority = Authority.load(folder)
    old = read_certificate(folder / "server/server.crt")
    hosts = server_names(servers or hosts_of(old))
    certificate = authority.certify_server(old.public_key(), hosts, days)
    return _deliver(folder / "server", "server", authority, certificate)


def issue(folder: str | Path, name: str, days: int = 365, *, renew: bool = False) -> Path:
    """Make the identity of a client, key included; or a new certificate for the key it has.

    Parameters
    ----------
    folder : path
        The authority's folder.
    name : str
        Name of the client, as in the study.
    days : int
        How long the certificate is valid, but no longer than the authority's. With 0 it has
        ended at once, to try what happens.
    renew : bool
        Keep the client's key, whoever made it, and replace its certificate.

    Returns
    -------
    Path
        What goes to the client: its identity with the secret key, or, if it made its key itself,
        the folder with the two public files.

    Raises
    ------
    IdentityError
        If the client has a certificate and `renew` is not set, or it has none and it is; if
        there is no authority in the folder, or it has ended.
    StudyError
        If the name cannot name a client.
    """
    folder = Path(folder)
    check_client_name(name)
    authority, client = Authority.load(folder), _find_client(folder, name)
    if client is not None and not renew:
        raise IdentityError(
            f'Client "{name}" is in {client.folder} already. Renew its certificate with: '
            f"fedtopics pki issue {name} --renew{pki_option(folder)}"
        )
    if client is None and renew:
        raise IdentityError(
            f'There is no client "{name}" in {folder} to renew. Make its identity with: '
            f"fedtopics pki issue {name}{pki_option(folder)}"
        )
    if client is not None:
        certificate = authority.certify_client(client.public_key, name, days)
        return _deliver(client.folder, "client", authority, certificate)
    key, target = new_key(), folder / "clients" / name
    certificate = authority.certify_client(key.public_key(), name, days)
    write_key(target / "client.key", key)
    return _deliver(target, "client", authority, certificate)


def request(folder: str | Path, name: str) -> Path:
    """Make a client's own key, and a request that an authority can sign; the key never travels.

    Parameters
    ----------
    folder : path
        The client's identity folder; made if missing.
    name : str
        Name of the client, as in the study.

    Returns
    -------
    Path
        The file ``request.csr``, which goes to the authority and holds nothing secret.

    Raises
    ------
    IdentityError
        If there is a key in the folder already.
    StudyError
        If the name cannot name a client.
    """
    check_client_name(name)
    key, path = new_key(), Path(folder) / REQUEST
    requested = x509.CertificateSigningRequestBuilder().subject_name(subject(name))
    signed = requested.sign(key, hashes.SHA256())
    write_key(path.with_name("client.key"), key)
    write_public(path, signed.public_bytes(serialization.Encoding.PEM))
    return path


def sign(folder: str | Path, request_path: str | Path, days: int = 365) -> Path:
    """Make the certificate that a client asks for; the same request again renews it.

    Of the request only the name and the public key are taken.

    Parameters
    ----------
    folder : path
        The authority's folder.
    request_path : path
        The client's ``request.csr``.
    days : int
        As in `issue`.

    Returns
    -------
    Path
        The folder with the two public files that go to the client, ``ca.crt`` and
        ``client.crt``; it puts them beside its key.

    Raises
    ------
    IdentityError
        If the request cannot be trusted (see `Request.load`), if the client has a certificate
        for another key, if there is no authority in the folder, or it has ended.
    """
    folder = Path(folder)
    requested = Request.load(request_path)
    authority, client = Authority.load(folder), _find_client(folder, requested.name)
    target = folder / "signed" / requested.name if client is None else client.folder
    if client is not None and fingerprint(client.public_key) != requested.fingerprint:
        raise IdentityError(
            f'Client "{requested.name}" has a certificate in {target} for another key than that of '
            f"{request_path}. Ask it by telephone whether it made a new key; if so, remove "
            f"{target} and sign again."
        )
    certificate = authority.certify_client(requested.public_key, requested.name, days)
    return _deliver(target, "client", authority, certificate)


def pki_option(folder: Path) -> str:
    """Return the option that names an authority's folder, if it is not the default."""
    return "" if folder == Path("pki") else f" --pki {folder}"


class _Client(NamedTuple):
    """A client that an authority knows: where, and by which key."""

    folder: Path
    public_key: CertificatePublicKeyTypes


def _find_client(folder: Path, name: str) -> _Client | None:
    # The certificate says which key is the client's; the key itself need not be kept here.
    for target in (folder / "clients" / name, folder / "signed" / name):
        if (target / "client.crt").exists():
            return _Client(target, read_certificate(target / "client.crt").public_key())
        if (target / "client.key").exists():
            return _Client(target, read_key(target / "client.key").public_key())
    return None


def _deliver(folder: Path, role: Role, authority: Authority, certificate: bytes) -> Path:
    write_public(folder / "ca.crt", authority.pem)
    write_public(folder / f"{role}.crt", certificate)
    return folder
