"""What stands in a certificate."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtopics import pki
from fedtopics.errors import IdentityError
from fedtopics.pki import certificates
from tests.helpers.certificates import MINUTE, certificate, extension, later


def test_the_authority(authority: Path) -> None:
    ca = certificate(authority / "ca.crt")
    assert (ca.not_valid_after_utc - ca.not_valid_before_utc).days == 3652
    constraints = extension(authority / "ca.crt", x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = extension(authority / "ca.crt", x509.KeyUsage)
    assert usage.critical
    assert usage.value.key_cert_sign
    assert usage.value.crl_sign
    assert not usage.value.digital_signature
    ca.verify_directly_issued_by(ca)


def test_the_server(authority: Path) -> None:
    path = authority / "server/server.crt"
    names = extension(path, x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "topics.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address("127.0.0.1"),
        ipaddress.ip_address("2001:db8::7"),
    ]
    purposes = extension(path, x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client(authority: Path) -> None:
    path = authority / "clients/north/client.crt"
    found = certificate(path)
    assert found.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
    assert list(extension(path, x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    with pytest.raises(x509.ExtensionNotFound):
        extension(path, x509.SubjectAlternativeName)
    found.verify_directly_issued_by(certificate(authority / "ca.crt"))


@pytest.mark.parametrize("file", ["server/server.crt", "clients/north/client.crt"])
def test_what_server_and_client_have_in_common(authority: Path, file: str) -> None:
    path, now = authority / file, datetime.now(UTC)
    found = certificate(path)
    begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
    assert 4 * MINUTE < now - begins < 6 * MINUTE
    assert timedelta(days=365) - MINUTE < ends - now < timedelta(days=365) + MINUTE
    key = found.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert extension(path, x509.BasicConstraints).value.ca is False
    assert extension(path, x509.KeyUsage).value.digital_signature
    assert not extension(path, x509.KeyUsage).value.key_cert_sign
    own = extension(authority / "ca.crt", x509.SubjectKeyIdentifier).value
    issuer = extension(path, x509.AuthorityKeyIdentifier).value
    assert issuer.key_identifier == own.digest
    assert extension(path, x509.SubjectKeyIdentifier).value == (
        x509.SubjectKeyIdentifier.from_public_key(key)
    )


def test_days_end_with_the_authority(authority: Path) -> None:
    pki.issue(authority, "south", days=30)
    ends = certificate(authority / "clients/south/client.crt").not_valid_after_utc
    assert abs(ends - datetime.now(UTC) - timedelta(days=30)) < MINUTE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificates, "_now", later(timedelta(days=3000)))
        pki.issue(authority, "east", days=3652)
    ends = certificate(authority / "clients/east/client.crt").not_valid_after_utc
    assert ends == certificate(authority / "ca.crt").not_valid_after_utc
    for days in (-1, 3653):
        with pytest.raises(IdentityError, match=f"valid for {days} days; take 0 to 3652"):
            pki.issue(authority, "west", days=days)
    assert not (authority / "clients/west").exists()


@pytest.mark.parametrize(
    "host",
    ["", "localhost:8443", "https://a.org", "a b", "ä.org", "1.2.3", "300.1.1.1", "a..b", "[::1]"],
)
def test_wrong_hosts(tmp_path: Path, host: str) -> None:
    with pytest.raises(IdentityError, match="is no DNS name and no IP address"):
        pki.create(tmp_path / "pki", ["localhost", host])
    assert not (tmp_path / "pki").exists()


def test_no_host(tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="at least one host"):
        pki.create(tmp_path / "pki", [])
