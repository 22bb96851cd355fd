"""Self-signed certificates, as members make them."""

import datetime
from dataclasses import dataclass
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Pair:
    key: bytes
    certificate: bytes


@cache
def pair(name: str, number: int = 0, issuer: Pair | None = None) -> Pair:
    """A key and its certificate, in PEM: the same for the same arguments; of an issuer, a child."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    by = subject
    signer = key
    if issuer is not None:
        by = x509.load_pem_x509_certificate(issuer.certificate).subject
        loaded = serialization.load_pem_private_key(issuer.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(number + 1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return Pair(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        certificate.public_bytes(serialization.Encoding.PEM),
    )
