"""Identities as their owners read them."""

from __future__ import annotations

import dataclasses
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from fedtopics import pki
from fedtopics.errors import IdentityError, StudyError
from fedtopics.pki import certificates
from fedtopics.protocol.roster import check_client_name
from tests.helpers.certificates import (
    EXPIRED,
    HOSTS,
    PURPOSE,
    handshake,
    later,
)

# Reading an identity


def test_identities(authority: Path) -> None:
    north = pki.Identity.load(authority / "clients/north")
    assert (north.name, north.role, north.hosts) == ("north", "client", ())
    assert north.ca == (authority / "ca.crt").read_bytes()
    assert north.key == (authority / "clients/north/client.key").read_bytes()
    assert "PRIVATE" not in repr(north)
    with pytest.raises(dataclasses.FrozenInstanceError):
        north.name = "south"  # type: ignore[misc]
    server = pki.Identity.load(authority / "server")
    assert (server.name, server.role, server.hosts) == ("localhost", "server", HOSTS)
    assert server.fingerprints["authority"] == north.fingerprints["authority"]
    assert len(server.fingerprints["certificate"].split(":")) == 32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "ca.crt").unlink(), r"There is no .*ca\.crt; the identity of a client is"),
        (lambda f: (f / "client.key").unlink(), r"There is no .*client\.key; the identity"),
        (lambda f: (f / "client.crt").unlink(), r"There is no .*client\.crt; the identity"),
        (lambda f: shutil.rmtree(f), "There is no folder .*clients/north"),
        (lambda f: (f / "ca.key").touch(), "is an authority, not an identity"),
        (lambda f: (f / "server.key").touch(), "it must hold either client.crt and client.key, or"),
        (lambda f: (f / "client.crt").write_text("x"), r"client\.crt is no certificate in PEM"),
        (lambda f: (f / "client.key").write_text("x"), r"client\.key is no private key"),
    ],
)  # fmt: skip
def test_damaged_identities(authority: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    change(authority / "clients/north")
    with pytest.raises(IdentityError, match=message):
        pki.Identity.load(authority / "clients/north")


def test_an_encrypted_key(authority: Path) -> None:
    path = authority / "clients/north/client.key"
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(IdentityError, match=r"client\.key is encrypted"):
        pki.Identity.load(path.parent)


def test_parts_of_two_identities(authority: Path, tmp_path: Path) -> None:
    north, south = authority / "clients/north", pki.issue(authority, "south")
    shutil.copytree(north, tmp_path / "key")
    shutil.copy(south / "client.key", tmp_path / "key")
    with pytest.raises(IdentityError, match=r"client\.key does not belong to the certificate"):
        pki.Identity.load(tmp_path / "key")

    pki.create(tmp_path / "other", HOSTS)
    shutil.copytree(north, tmp_path / "ca")
    shutil.copy(tmp_path / "other/ca.crt", tmp_path / "ca")
    with pytest.raises(
        IdentityError, match=r"client\.crt is not signed by the authority .*ca\.crt"
    ):
        pki.Identity.load(tmp_path / "ca")

    (tmp_path / "role").mkdir()
    for suffix in ("crt", "key"):
        shutil.copy(north / f"client.{suffix}", tmp_path / f"role/server.{suffix}")
    shutil.copy(north / "ca.crt", tmp_path / "role")
    with pytest.raises(IdentityError, match=r"server\.crt is not made for a server"):
        pki.Identity.load(tmp_path / "role")


def test_ended_certificates(authority: Path) -> None:
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    pki.issue(authority, "north", days=0, renew=True)
    with pytest.raises(IdentityError) as error:
        pki.Identity.load(authority / "clients/north")
    assert str(error.value) == (
        f'Certificate of client "north" ended on {today}. Renew it with: '
        "fedtopics pki issue north --renew"
    )
    ended = pki.Identity.load(authority / "clients/north", check_validity=False)
    assert ended.problem == str(error.value)
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        handshake(authority / "server", authority / "clients/north")
    assert refused.value.verify_code == EXPIRED

    pki.renew_server(authority, days=0)
    with pytest.raises(IdentityError) as error:
        pki.Identity.load(authority / "server")
    assert str(error.value) == (
        f'Certificate of the server "localhost" ended on {today}. Renew it with: '
        "fedtopics pki create --renew"
    )


def test_a_certificate_of_tomorrow(authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_now", later(timedelta(days=1)))
    pki.issue(authority, "south")
    with pytest.raises(IdentityError, match=r'"south" begins on .* UTC, and this machine\'s clock'):
        pki.Identity.load(authority / "clients/south")


# Names and errors


def test_names_of_clients(authority: Path) -> None:
    longest = "n" * 64
    check_client_name(longest)
    assert pki.Identity.load(pki.issue(authority, longest)).name == longest
    for name in ("n" * 65, "../north", "a/b", ""):
        with pytest.raises(StudyError, match="cannot name a client"):
            pki.issue(authority, name)
        with pytest.raises(StudyError, match="cannot name a client"):
            pki.request(authority / "own", name)
    assert not (authority / "own").exists()


# Whom TLS trusts: Python's own, with its strictest checks


def test_roles_cannot_be_exchanged(authority: Path) -> None:
    for server, client in [("clients/north", "clients/north"), ("server", "server")]:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            handshake(authority / server, authority / client)
        assert refused.value.verify_code == PURPOSE


def test_a_client_cannot_certify_others(authority: Path, tmp_path: Path) -> None:
    north, forged = authority / "clients/north", tmp_path / "forged"
    forged.mkdir()
    shutil.copy(north / "client.crt", forged / "ca.crt")
    shutil.copy(north / "client.key", forged / "ca.key")
    south = pki.issue(forged, "south")
    chain = (south / "client.crt").read_bytes() + (north / "client.crt").read_bytes()
    (south / "client.crt").write_bytes(chain)
    shutil.copy(authority / "ca.crt", south)
    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA certificate"):
        handshake(authority / "server", south)
