"""Keys of a step and what they seal, as pure functions.

Every key is used for one purpose in one step: `bound` names the step and its list, which holds the
one-time keys, which are drawn from the vector or the reply.

References
----------
Krawczyk and Eronen, HMAC-based Extract-and-Expand Key Derivation Function (HKDF), RFC 5869.
"""

from __future__ import annotations

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
    """Join fields, each after its length in eight bytes, so that no two lists give the same."""
    encoded = [f if isinstance(f, bytes) else str(f).encode() for f in fields]
    return b"".join(part for field in encoded for part in (len(field).to_bytes(8, "big"), field))


def digest(*fields: bytes | str | int) -> bytes:
    """Return the SHA-256 of some fields."""
    return hashlib.sha256(framed(LABEL, *fields)).digest()


def digest_of_list(parts: Sequence[bytes]) -> bytes:
    """Return the digest of what is signed in a list: a signature can be written in several ways."""
    read = (decode(part, Part) for part in parts)
    return digest(*(encode(msgspec.structs.replace(part, signature=b"")) for part in read))


def derive(secret: bytes, *label: bytes | str | int) -> bytes:
    """Return a key of 32 bytes for the purpose that a label names."""
    return HKDF(SHA256(), LENGTH, None, framed(LABEL, *label)).derive(secret)


def context_of(study: bytes, part: Part, names: Sequence[str]) -> bytes:
    """Return the digest of everything that the members of a step agree on beforehand."""
    place = part.run, part.step, part.transcript
    return digest("context", study, *place, part.function, part.kind, part.layout, *names)


def next_transcript(
    group: bytes, before: bytes, function: str, list_: bytes, opened: bytes
) -> bytes:
    """Return the transcript after a step, by the digest of what it came to.

    Without the key, a small total could be found in it by trying all possible ones.
    """
    content = framed(before, function, list_, opened)
    return hmac.new(derive(group, "transcript"), content, hashlib.sha256).digest()


def one_time(fresh: bytes, context: bytes, content: bytes) -> bytes:
    """Return a private key for one step.

    It depends on the vector or reply as well, so that a cloned process whose random numbers repeat
    never masks two vectors with the same keys.
    """
    return derive(fresh, "one-time key", context, content)


def public_key(private: bytes) -> bytes:
    """Return the public key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared(private: bytes, public: bytes) -> bytes:
    """Return what two keys have in common; FederationError if the public one is not a key."""
    try:
        other = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(private).exchange(other)
    except ValueError:
        raise FederationError("a one-time key is not valid") from None


def seal(key: bytes, content: bytes) -> bytes:
    """Encrypt a reply under a key that is used once, padded to a power of two."""
    size = max(SMALLEST_REPLY, 1 << (len(content) + 3).bit_length())
    padded = (len(content).to_bytes(4, "big") + content).ljust(size, b"\0")
    return AESGCM(key).encrypt(bytes(12), padded, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt a reply, or raise FederationError."""
    try:
        padded = AESGCM(key).decrypt(bytes(12), sealed, None)
    except (InvalidTag, ValueError):
        raise FederationError("a reply was changed on its way") from None
    return padded[4 : 4 + int.from_bytes(padded[:4], "big")]
