"""Whom TLS trusts: Python's own, with its strictest checks."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from fedtopics import pki
from tests.helpers.certificates import (
    PURPOSE,
    handshake,
)


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
