"""Keys and rosters: what is written, what a signature is, and each way in which one is wrong."""

import os
import stat
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from fedtopics import Study
from fedtopics.errors import IdentityError, StudyError
from fedtopics.federation.connection import server_certificate
from fedtopics.protocol import roster
from fedtopics.protocol.roster import (
    Key,
    Roster,
    certificate_fingerprint,
    host_of,
    name_of,
    read_certificate,
    shown,
)

CONTENT = b"part 7 of a run"


def certificate(
    private: CertificateIssuerPrivateKeyTypes,
    names: tuple[str, ...] = ("north",),
    begins: int = -1,
    ends: int = 9,
) -> bytes:
    """A self-signed certificate of these names, from and until so many days from now."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(7)
        .not_valid_before(now + timedelta(begins))
        .not_valid_after(now + timedelta(ends))
    )
    signs = None if isinstance(private, ed25519.Ed25519PrivateKey) else SHA256()
    return builder.sign(private, signs).public_bytes(Encoding.PEM)


def p256() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture
def north(tmp_path: Path) -> Key:
    return Key.create(tmp_path / "north", "north")


def test_what_a_new_key_consists_of(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        key = Key.create(tmp_path / "keys" / "north", "north")
    finally:
        os.umask(mask)
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert files == ["keys/north.pem", "keys/north/certificate.pem", "keys/north/key.pem"]
    assert stat.S_IMODE((tmp_path / "keys/north/key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys/north").stat().st_mode) == 0o700
    assert (tmp_path / "keys/north.pem").read_bytes() == key.certificate
    assert b"PRIVATE" not in key.certificate
    made = x509.load_pem_x509_certificate(key.certificate)
    made.verify_directly_issued_by(made)
    assert made.subject.rfc4514_string() == "CN=north"
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["north"]
    assert (made.not_valid_after_utc - datetime.now(UTC)).days in (3649, 3650)
    read = Key.load(tmp_path / "keys/north")
    assert (read.name, read.in_pem()) == ("north", key.in_pem())
    assert read.certificate == key.certificate


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize(
    ("mode", "owner", "may"),
    [
        *((0o600, 0, True), (0o400, 0, True), (0o640, 0, False), (0o604, 0, False)),
        *((0o440, 1, True), (0o640, 1, True), (0o444, 1, False), (0o460, 1, False)),
    ],
)
def test_no_other_user_may_read_a_key(
    mode: int, owner: int, may: bool, north: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    (north.folder / "key.pem").chmod(mode)
    user = os.getuid() + owner
    monkeypatch.setattr("os.getuid", lambda: user)
    refusal = pytest.raises(IdentityError, match=r"run chmod 600 .*/north/key\.pem")
    with nullcontext() if may else refusal:
        assert Key.load(north.folder).in_pem() == north.in_pem()


def test_a_key_with_a_passphrase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key.create(tmp_path / "north", "north", b"green oaks")
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in (tmp_path / "north/key.pem").read_bytes()
    with pytest.raises(
        IdentityError, match=r"^.*north/key\.pem needs a passphrase; set FEDTOPICS_P"
    ):
        Key.load(key.folder)
    (tmp_path / "words").write_bytes(b"green oaks\n")
    (tmp_path / "words").chmod(0o600)
    monkeypatch.setenv("FEDTOPICS_PASSPHRASE_FILE", str(tmp_path / "words"))
    assert Key.load(key.folder).in_pem() == key.in_pem()
    (tmp_path / "words").write_bytes(b"brown oaks")
    with pytest.raises(IdentityError, match="is wrong, or the key is damaged; give the right one"):
        Key.load(key.folder)
    monkeypatch.delenv("FEDTOPICS_PASSPHRASE_FILE")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert roster.passphrase_for("a key", lambda text: text) == b"Passphrase of a key: "


def test_the_same_content_has_the_same_signature(north: Key, tmp_path: Path) -> None:
    signature = north.sign(CONTENT)
    assert Key.load(tmp_path / "north").sign(CONTENT) == signature
    assert north.has_signed(CONTENT, signature)
    assert not north.has_signed(CONTENT + b".", signature)
    assert not north.has_signed(CONTENT, b"")
    assert not Key.create(tmp_path / "south", "south").has_signed(CONTENT, signature)


def test_a_host_name_for_any_name() -> None:
    assert [host_of(name) for name in ("north", "St_Mary.1", "X-")] == [
        "north",
        "st-5f-mary-2e-1",
        "x",
    ]


@pytest.mark.parametrize("name", ["", "../a", "a/b", "-a", "a b", "a" * 65, "ä"])
def test_names_that_no_member_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot name a client"):
        Key.create(tmp_path / "key", name)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("taken", ["north/key.pem", "north.pem"])
def test_nothing_is_overwritten(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).parent.mkdir(exist_ok=True)
    (tmp_path / taken).write_text("mine")
    with pytest.raises(IdentityError, match=r"north(\.pem)? exists already, and a key is never"):
        Key.create(tmp_path / "north", "north")
    assert [(p, p.read_text()) for p in tmp_path.rglob("*") if p.is_file()] == [
        (tmp_path / taken, "mine")
    ]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "north").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IdentityError, match="exists already"):
        Key.create(tmp_path / "north", "north")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "key.pem").unlink(), "has no key, or a damaged one; make one"),
        (lambda folder: (folder / "certificate.pem").unlink(), "has no key, or a damaged one"),
        (lambda folder: (folder / "key.pem").write_bytes(b"-----BEGIN"), "has no key, or a damag"),
        (
            lambda folder: (folder / "certificate.pem").write_bytes(certificate(p256())),
            r"The key and the certificate in .*north do not belong together\.",
        ),
    ],
)
def test_no_keys(change: Callable[[Path], None], message: str, north: Key, tmp_path: Path) -> None:
    change(tmp_path / "north")
    with pytest.raises(IdentityError, match=message) as error:
        Key.load(tmp_path / "north")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged, or not a certificate; ask its owner"),
        (certificate(p256())[:-60], "is damaged, or not a certificate"),
        (
            certificate(p256(), begins=-9, ends=-2),
            r"is valid from \d{4}-\d\d-\d\d to .* make a new",
        ),
        (certificate(p256(), begins=2), "is valid from .* this computer's date is .* set the"),
        (certificate(ec.generate_private_key(ec.SECP384R1())), "has no P-256 key; use"),
        (certificate(ed25519.Ed25519PrivateKey.generate()), "has no P-256 key"),
    ],
    ids=["empty", "damaged", "expired", "not begun", "another curve", "another kind"],
)
def test_certificates_that_cannot_be_used(content: bytes, message: str) -> None:
    with pytest.raises(IdentityError, match=f"The certificate of north {message}"):
        read_certificate(content, "of north")
    with pytest.raises(IdentityError, match="The certificate of "):
        Roster.of({"north": content.decode()}, certificate(p256()).decode())


@pytest.mark.parametrize("names", [(), ("a", "b"), ("../a",)])
def test_certificates_of_no_name(names: tuple[str, ...]) -> None:
    with pytest.raises(StudyError, match="cannot name a client"):
        name_of(certificate(p256(), names), "of north")


def test_a_private_key_is_refused_as_a_certificate(north: Key) -> None:
    with pytest.raises(IdentityError, match="of north is a private key, which must stay secret"):
        read_certificate(north.in_pem() + north.certificate, "of north")


def test_a_roster_knows_whose_signature_it_is(north: Key, tmp_path: Path) -> None:
    south = Key.create(tmp_path / "south", "south")
    pems = {"south": south.certificate.decode(), "north": north.certificate.decode()}
    roster = Roster.of(pems, pems["north"])
    assert (roster.names, roster.server) == (["north", "south"], north.certificate)
    signers = ["north", "south", "east"]
    assert [n for n in signers if roster.verify(n, north.sign(CONTENT), CONTENT)] == ["north"]


def test_what_a_roster_lacks(north: Key) -> None:
    pem = north.certificate.decode()
    with pytest.raises(IdentityError, match=r"no certificate of east, west; each member makes one"):
        Roster.of({"west": None, "north": pem, "east": None}, pem)
    assert Roster.of({"north": pem}, None).plain.keys() == {"north"}
    with pytest.raises(IdentityError, match=r"The certificate of 'south' belongs to 'north'\."):
        Roster.of({"south": pem}, pem)


def test_a_fingerprint_is_of_the_certificate_and_not_of_its_file(north: Key) -> None:
    spaced = b"# from north\r\n" + north.certificate.replace(b"\n", b"\r\n") + b"\n\n"
    digest = certificate_fingerprint(north.certificate)
    assert certificate_fingerprint(spaced) == digest
    assert shown(north.certificate).replace(" ", "") == digest
    assert [len(group) for group in shown(north.certificate).split()] == [4] * 16
    pem = north.certificate.decode()
    assert Roster.of({"north": pem}, pem).plain == {"north": digest, "": digest}


def test_only_the_first_certificate_of_a_file_is_trusted(north: Key, tmp_path: Path) -> None:
    """Digest and pins are of the first certificate in a file, so only that one is used."""
    pem = north.certificate.decode()
    beside = Key.create(tmp_path / "beside", "beside").certificate.decode()
    for file in (pem + beside, f"a comment\n{pem}\n\n{beside}", pem.replace("\n", "\r\n")):
        assert Roster.of({"north": file}, file) == Roster(
            {"north": north.certificate}, north.certificate
        )


def test_a_server_on_a_network_has_a_certificate(north: Key) -> None:
    study = Study.make(clients={"north": {"certificate": north.certificate.decode()}})
    with pytest.raises(IdentityError, match="no certificate of its server; add it to"):
        server_certificate(study)
