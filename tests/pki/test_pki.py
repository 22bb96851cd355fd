"""What stands in the certificates, what is refused, and whom TLS then trusts."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtopics import pki
from fedtopics.errors import FederationError, IdentityError, InputError, StudyError
from fedtopics.pki import certificates
from fedtopics.pki.names import check_client_name

HOSTS = ("localhost", "topics.example.org", "127.0.0.1", "2001:db8::7")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """An authority with a server, and the client north."""
    pki.create(tmp_path / "pki", HOSTS)
    pki.issue(tmp_path / "pki", "north")
    return tmp_path / "pki"


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def extension(path: Path, kind: type[x509.ExtensionType]) -> x509.Extension[x509.ExtensionType]:
    return certificate(path).extensions.get_extension_for_class(kind)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# What stands in a certificate


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


def test_renewing_what_a_crash_left(authority: Path) -> None:
    (authority / "clients/north/client.crt").unlink()
    with pytest.raises(IdentityError, match="already"):
        pki.issue(authority, "north")
    pki.issue(authority, "north", renew=True)
    assert pki.Identity.load(authority / "clients/north").name == "north"


def test_renewing_nobody(authority: Path) -> None:
    with pytest.raises(IdentityError, match=r'no client "south" in .*pki to renew'):
        pki.issue(authority, "south", renew=True)


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


def test_exit_codes() -> None:
    assert issubclass(IdentityError, InputError)
    assert (IdentityError.exit_code, FederationError.exit_code) == (2, 4)


# Whom TLS trusts: Python's own, with its strictest checks

EXPIRED, UNKNOWN_ISSUER, PURPOSE, OTHER_HOST, OTHER_ADDRESS = 10, 20, 26, 62, 64


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


def handshake(server: Path, client: Path, host: str = "localhost") -> dict[str, object]:
    """Shake hands by the files of two folders; return what the server knows of the client."""
    wires = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        context(server, ssl.PROTOCOL_TLS_SERVER).wrap_bio(*wires, server_side=True),
        context(client, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(*wires[::-1], server_hostname=host),
    ]
    waiting = list(reversed(sides))
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    sides[1].write(b"hello")
    assert sides[0].read() == b"hello"
    return sides[0].getpeercert() or {}


def context(folder: Path, protocol: int) -> ssl.SSLContext:
    files = {path.suffix: path for path in folder.iterdir() if path.stem in ("client", "server")}
    made = ssl.SSLContext(protocol)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_verify_locations(folder / "ca.crt")
    made.load_cert_chain(files[".crt"], files[".key"])
    return made


def later(shift: timedelta):  # type: ignore[no-untyped-def]
    """Return the clock of certificates, shifted."""
    now = certificates._now
    return lambda days=0: now(days) + shift


def pem(label: str, der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE", label).encode()
