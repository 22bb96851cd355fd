"""Whom TLS trusts: Python's own, with its strictest checks."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from fedtopics import pki
from tests.helpers.certificates import (
    HOSTS,
    OTHER_ADDRESS,
    OTHER_HOST,
    PURPOSE,
    UNKNOWN_ISSUER,
    handshake,
)


def test_mutual_tls(authority: Path) -> None:
    for host in HOSTS:
        peer = handshake(authority / "server", authority / "clients/north", host)
        assert peer["subject"] == ((("commonName", "north"),),)


@pytest.mark.parametrize(
    ("host", "code"), [("example.org", OTHER_HOST), ("127.0.0.2", OTHER_ADDRESS)]
)
def test_a_server_on_another_host(authority: Path, host: str, code: int) -> None:
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        handshake(authority / "server", authority / "clients/north", host)
    assert refused.value.verify_code == code


def test_roles_cannot_be_exchanged(authority: Path) -> None:
    for server, client in [("clients/north", "clients/north"), ("server", "server")]:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            handshake(authority / server, authority / client)
        assert refused.value.verify_code == PURPOSE


@pytest.mark.parametrize("stranger", ["server", "client"])
def test_another_authority(authority: Path, tmp_path: Path, stranger: str) -> None:
    other = tmp_path / "other"
    pki.create(other, HOSTS)
    pki.issue(other, "north")
    folders = {"server": authority / "server", "client": authority / "clients/north"}
    strange = {"server": other / "server", "client": other / "clients/north"}
    # The stranger trusts the true authority, so that it is the other side that refuses.
    shutil.copy(authority / "ca.crt", strange[stranger])
    folders[stranger] = strange[stranger]
    with pytest.raises(ssl.SSLCertVerificationError) as refused:
        handshake(folders["server"], folders["client"])
    assert refused.value.verify_code == UNKNOWN_ISSUER


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
