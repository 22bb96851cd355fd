"""Secrets in shares, of which so many are needed, and messages that only one participant can read.

Shamir's sharing is pycryptodome's, over the field of 2^128 elements. It makes something of any
points, so each share has a digest of the secret, which tells nothing of 16 random bytes.

References
----------
Shamir, How to Share a Secret, CACM 22 (1979).
McGrew and Viega, The Galois/Counter Mode of Operation, NIST SP 800-38D.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from hmac import compare_digest

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedtopics.errors import FederationError
from fedtopics.secure.keys import DOMAIN, framed

SECRET = 16  # bytes that are split: those of a field of 2^128
NONCE = 12
SEAL = NONCE + 16  # bytes that a sealed message has more than its content


def threshold(n: int) -> int:
    """Return how many of n participants can open a secret: two groups of so many share a member."""
    return n // 2 + 1


def split(secret: bytes, names: Sequence[str], threshold: int) -> dict[str, bytes]:
    """Split 16 random bytes into a share for each name; fewer than the threshold tell nothing.

    A share is 16 bytes of a point, whose place is the name's among the sorted ones from 1 on, and
    the 32 of the secret's digest. Called again it gives others, which do not go with the first.
    """
    points = Shamir.split(threshold, len(names), secret)
    return {
        name: value + _commitment(secret)
        for name, (_, value) in zip(sorted(names), points, strict=True)
    }


def combine(shares: Mapping[str, bytes], names: Sequence[str], threshold: int) -> bytes:
    """Return the secret, from the shares of enough of those among whom it was split.

    Raises
    ------
    FederationError
        If there are too few, or one of those that are used is damaged.
    """
    places = {name: place for place, name in enumerate(sorted(names), 1)}
    used = sorted(shares.keys() & places.keys())[:threshold]
    if len(used) < threshold:
        raise FederationError(
            f"{len(used)} of {len(names)} participants gave their share of a secret and "
            f"{threshold} are needed; begin a new attempt with those who are there."
        )
    points = [(places[name], shares[name][:SECRET]) for name in used]
    digests = {shares[name][SECRET:] for name in used}
    fit = len(digests) == 1 and all(len(value) == SECRET for _, value in points)
    secret = Shamir.combine(points) if fit else b""
    if not fit or not compare_digest(_commitment(secret), digests.pop()):
        raise FederationError(
            "The shares of a secret do not fit together: one of them was changed, or they were "
            "never of one secret; begin a new attempt."
        )
    return secret


def seal(content: bytes, key: bytes, context: bytes, nonce: bytes = b"") -> bytes:
    """Encrypt content for who has the same key of 32 bytes, which is used for one message only.

    By default the nonce is random all the same: shares that are split again after a restart are
    others.
    """
    nonce = nonce or os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, context)


def unseal(sealed: bytes, key: bytes, context: bytes) -> bytes:
    """Return the content; raise FederationError if it, the key or the context is another one."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], context)
    except (InvalidTag, ValueError):  # too short to be any
        raise FederationError(
            "A sealed message cannot be opened: it was changed, or sealed for another participant "
            "or exchange; begin a new attempt."
        ) from None


def _commitment(secret: bytes) -> bytes:
    return hashlib.sha256(framed(DOMAIN, b"share", secret)).digest()
