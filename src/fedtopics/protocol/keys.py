"""Keys of a step and encryption with them, as pure functions.

Every key has one purpose in one step. `bound` identifies the step and its list, which contains the
one-time keys; these are derived from the vector or the reply.

References
----------
Krawczyk and Eronen, HMAC-based Extract-and-Expand Key Derivation Function (HKDF), RFC 5869.
"""

import hashlib
import hmac
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedtopics.errors import FederationError
from fedtopics.protocol.messages import Part, decode, encode

LABEL = "fedtopics 3"
LENGTH = 32  # bytes of keys and digests
SMALLEST_REPLY = 64  # bytes of a padded reply


def framed(*fields: bytes | str | int) -> bytes:
    """Join fields, each preceded by its length in eight bytes, so the result is unambiguous."""
    encoded = [f if isinstance(f, bytes) else str(f).encode() for f in fields]
    return b"".join(part for field in encoded for part in (len(field).to_bytes(8, "big"), field))


def digest_of_fields(*fields: bytes | str | int) -> bytes:
    return hashlib.sha256(framed(LABEL, *fields)).digest()


def digest_of_list(parts: Sequence[bytes]) -> bytes:
    """Return the digest of a list without signatures, which can be written in several ways."""
    return digest_of_fields(
        *(encode(msgspec.structs.replace(decode(part, Part), signature=b"")) for part in parts)
    )


def derive(secret: bytes, *label: bytes | str | int) -> bytes:
    """Return a key of 32 bytes for the purpose that the label names."""
    return HKDF(SHA256(), LENGTH, None, framed(LABEL, *label)).derive(secret)


def context_of(study: bytes, part: Part, names: Sequence[str]) -> bytes:
    """Return the digest of everything that the members of a step agree on beforehand."""
    return digest_of_fields(
        "context",
        study,
        part.run,
        part.step,
        part.transcript,
        part.function,
        part.kind,
        part.layout,
        *names,
    )


def next_transcript(
    group: bytes, before: bytes, function: str, list_: bytes, opened: bytes
) -> bytes:
    """Return the transcript after a step, given the digest of its result."""
    # With a key: otherwise a small total could be found by trying all possible ones.
    return hmac.digest(
        derive(group, "transcript"), framed(before, function, list_, opened), "sha256"
    )


def one_time(fresh: bytes, context: bytes, content: bytes) -> bytes:
    """Return a private key for one step."""
    # A cloned process with the same random numbers must not mask two vectors with the same keys.
    return derive(fresh, "one-time key", context, content)


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared(private: bytes, public: bytes) -> bytes:
    """Return the shared secret of two keys; FederationError if the public one is not a key."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise FederationError("a one-time key is not valid") from None


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt a reply under a key that is used once, padded to a power of two."""
    size = max(SMALLEST_REPLY, 1 << (len(content) + 3).bit_length())
    padded = (len(content).to_bytes(4, "big") + content).ljust(size, b"\0")
    return AESGCM(key).encrypt(bytes(12), padded, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt a reply; FederationError if it was changed."""
    try:
        padded = AESGCM(key).decrypt(bytes(12), sealed, None)
    except (InvalidTag, ValueError):
        raise FederationError("a reply was changed on its way") from None
    return padded[4 : 4 + int.from_bytes(padded[:4], "big")]
