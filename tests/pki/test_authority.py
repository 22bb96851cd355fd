"""The authority: its files, and what it issues."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from fedtopics import pki
from fedtopics.errors import IdentityError
from fedtopics.pki import certificates
from tests.helpers.certificates import HOSTS, certificate, extension, handshake, later, mode, pem

# Files


def test_the_layout(authority: Path) -> None:
    files = {str(path.relative_to(authority)) for path in authority.rglob("*") if path.is_file()}
    assert files == {
        "ca.crt", "ca.key",
        "server/ca.crt", "server/server.crt", "server/server.key",
        "clients/north/ca.crt", "clients/north/client.crt", "clients/north/client.key",
    }  # fmt: skip


def test_only_the_owner_reads_keys(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        pki.create(tmp_path / "pki", HOSTS)
        pki.issue(tmp_path / "pki", "north")
        pki.request(tmp_path / "east", "east")
    finally:
        os.umask(mask)
    keys = list(tmp_path.rglob("*.key"))
    assert len(keys) == 4
    assert {mode(key) for key in keys} == {0o600}
    assert {mode(key.parent) for key in keys} == {0o700}
    for key in keys:
        assert key.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----\n")
        serialization.load_pem_private_key(key.read_bytes(), password=None)


def test_nothing_is_overwritten(authority: Path, tmp_path: Path) -> None:
    pki.request(tmp_path / "east", "east")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(IdentityError, match=r"There is an authority in .* already"):
        pki.create(authority, HOSTS)
    with pytest.raises(IdentityError, match=r'Client "north" is in .*clients/north already'):
        pki.issue(authority, "north")
    with pytest.raises(IdentityError, match=r"a private key .*east/client\.key already"):
        pki.request(tmp_path / "east", "east")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_link_at_the_keys_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "east").mkdir()
    (tmp_path / "east/client.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IdentityError, match="a private key"):
        pki.request(tmp_path / "east", "east")
    assert not (tmp_path / "elsewhere").exists()


def test_a_failed_write_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", full)
        with pytest.raises(OSError, match="No space"):
            pki.request(tmp_path / "east", "east")
    pki.request(tmp_path / "east", "east")


# Issuing again


def test_renewing_keeps_the_key(authority: Path) -> None:
    folder = authority / "clients/north"
    old = pki.Identity.load(folder)
    (folder / "client.key").unlink()  # delivered, and deleted here as the command says
    pki.issue(authority, "north", days=400, renew=True)
    assert not (folder / "client.key").exists()
    (folder / "client.key").write_bytes(old.key)
    new = pki.Identity.load(folder)
    assert new.not_after - old.not_after > timedelta(days=34)
    assert new.certificate != old.certificate
    assert new.fingerprints["public_key"] == old.fingerprints["public_key"]


def test_renewing_the_server(authority: Path) -> None:
    old = pki.Identity.load(authority / "server")
    pki.renew_server(authority, days=400)
    new = pki.Identity.load(authority / "server")
    assert (new.key, new.hosts) == (old.key, HOSTS)
    assert new.not_after > old.not_after
    pki.renew_server(authority, ["other.org"])
    assert pki.Identity.load(authority / "server").hosts == ("other.org",)


def test_an_authority_that_ended(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "_now", later(timedelta(days=-3700)))
        pki.create(tmp_path / "pki", HOSTS)
    with pytest.raises(IdentityError, match=r"The authority in .* ended on \d{4}-\d\d-\d\d;"):
        pki.issue(tmp_path / "pki", "north")


def test_an_authority_without_its_key(authority: Path, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"There is no authority in .*; make one with"):
        pki.issue(tmp_path / "nowhere", "north")
    key = (authority / "ca.key").read_bytes()
    (authority / "ca.key").unlink()
    with pytest.raises(IdentityError, match="bring the authority's key back"):
        pki.issue(authority, "south")
    (authority / "ca.key").write_bytes((authority / "server/server.key").read_bytes())
    with pytest.raises(IdentityError, match=r"ca\.key does not belong to .*ca\.crt"):
        pki.issue(authority, "south")
    (authority / "ca.key").write_bytes(key)
    pki.issue(authority, "south")


# A key that never travels


def test_a_request_becomes_an_identity(authority: Path, tmp_path: Path) -> None:
    sent = pki.request(tmp_path / "east", "east")
    made = (tmp_path / "east/client.key").read_bytes()
    assert sent == tmp_path / "east/request.csr"
    assert b"PRIVATE" not in sent.read_bytes()
    with pytest.raises(IdentityError, match=r'Client "east" has no certificate yet. Send .*csr to'):
        pki.Identity.load(tmp_path / "east")

    back = pki.sign(authority, shutil.copy(sent, tmp_path / "mail.csr"))
    assert back == authority / "signed/east"
    assert {path.name for path in back.iterdir()} == {"ca.crt", "client.crt"}
    for path in back.iterdir():
        shutil.copy(path, tmp_path / "east")
    identity = pki.Identity.load(tmp_path / "east")
    assert (identity.name, identity.role, identity.key) == ("east", "client", made)
    assert identity.fingerprints["public_key"] == pki.Request.load(sent).fingerprint
    handshake(authority / "server", tmp_path / "east")

    pki.sign(authority, sent, days=400)
    renewed = certificate(back / "client.crt").not_valid_after_utc
    assert renewed > identity.not_after
    pki.issue(authority, "east", days=500, renew=True)
    assert certificate(back / "client.crt").not_valid_after_utc > renewed
    assert certificate(back / "client.crt").public_key() == pki.Request.load(sent).public_key


@pytest.mark.parametrize("known", ["north", "east"])
def test_a_name_keeps_its_key(authority: Path, tmp_path: Path, known: str) -> None:
    pki.sign(authority, pki.request(tmp_path / "east", "east"))
    other = pki.request(tmp_path / "intruder", known)
    with pytest.raises(
        IdentityError, match=f'Client "{known}" has a certificate in .* another key'
    ):
        pki.sign(authority, other)


def test_tampered_requests(authority: Path, tmp_path: Path) -> None:
    path = pki.request(tmp_path / "east", "east")
    request = x509.load_pem_x509_csr(path.read_bytes())
    der = request.public_bytes(serialization.Encoding.DER)
    assert der.count(b"east") == 1
    for changed, message in [
        (der.replace(b"east", b"west"), "was changed after it was signed"),
        (der[:-1] + bytes([der[-1] ^ 1]), "was changed after it was signed"),
        (der[:40], "is no request"),
    ]:
        path.write_bytes(pem("CERTIFICATE REQUEST", changed))
        with pytest.raises(IdentityError, match=message):
            pki.sign(authority, path)
    path.write_bytes((authority / "ca.crt").read_bytes())
    with pytest.raises(IdentityError, match="is no request"):
        pki.sign(authority, path)
    with pytest.raises(IdentityError, match="cannot be read: No such file"):
        pki.sign(authority, tmp_path / "nowhere.csr")
    assert not (authority / "signed").exists()


def test_requests_that_ask_for_too_much(authority: Path, tmp_path: Path) -> None:
    key, path = ec.generate_private_key(ec.SECP256R1()), tmp_path / "request.csr"

    def ask(*names: str, with_key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key) -> None:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
        wanted = x509.CertificateSigningRequestBuilder(subject).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        signed = wanted.sign(with_key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    for name in ("../server", "a b", "-north"):
        ask(name)
        with pytest.raises(IdentityError, match=r"cannot be signed: .* cannot name a client"):
            pki.sign(authority, path)
    for names in ((), ("east", "north")):
        ask(*names)
        with pytest.raises(IdentityError, match=f"has {len(names)} common names"):
            pki.sign(authority, path)
    ask("east", with_key=rsa.generate_private_key(65537, 2048))
    with pytest.raises(IdentityError, match="not on the curve P-256"):
        pki.sign(authority, path)
    ask("east")
    made = pki.sign(authority, path) / "client.crt"
    assert extension(made, x509.BasicConstraints).value.ca is False, "only name and key are taken"
