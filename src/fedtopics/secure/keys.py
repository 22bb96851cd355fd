"""Keys of participants, what pairs of them have in common, and what is derived from a secret.

References
----------
Langley and others, Elliptic Curves for Security, RFC 7748: X25519.
Krawczyk and Eronen, HMAC-based Extract-and-Expand Key Derivation Function (HKDF), RFC 5869.
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedtopics.errors import FederationError

LENGTH = 32  # bytes: of keys, of seeds, of digests
DOMAIN = b"fedtopics secure 1"  # a change of any derivation needs another number

_GROUPS, _GROUP = 8, 5  # letters of 5 bits: 200 bits, so that no two rosters are found alike


def framed(*parts: bytes) -> bytes:
    """Return parts with the length of each before it, so that no others give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def derive(secret: bytes, purpose: str, *context: bytes) -> bytes:
    """Return 32 bytes that follow from a secret, a purpose and a context, and tell none of them."""
    info = framed(DOMAIN, purpose.encode(), *context)
    return HKDF(SHA256(), LENGTH, salt=None, info=info).derive(secret)


class KeyPair:
    """A participant's X25519 key of one run: 32 secret bytes, and `public`, which others learn."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def secret_with(self, other: bytes, context: bytes) -> bytes:
        """Return the 32 bytes that both of a pair, and nobody else, have in a context.

        Parameters
        ----------
        other : the other's public key
        context : what they are for, such as a digest of study, run, exchange and attempt

        Raises
        ------
        FederationError
            If `other` is no key: not of 32 bytes, or of those few that lead to zero for everybody.
        """
        try:
            common = self._key.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise FederationError(
                "A participant's key for masks is no key of X25519, so whoever sent it could know "
                "what it must not; ask them which program they run."
            ) from None
        return derive(common, "pair", context, *sorted([self.public, other]))


def roster_digest(keys: Mapping[str, bytes]) -> str:
    """Return what participants compare by telephone, to see that all have the same keys.

    Examples
    --------
    >>> roster_digest({"north": bytes(32), "south": bytes(32)})
    'ILFRG UL33M 3PXCU Q4Q2J 3HYOT MWRFK FXQTT 2ZR2K'
    """
    parts = [part for name in sorted(keys) for part in (name.encode(), keys[name])]
    letters = b32encode(hashlib.sha256(framed(DOMAIN, b"roster", *parts)).digest()).decode()
    return " ".join(letters[_GROUP * k : _GROUP * (k + 1)] for k in range(_GROUPS))
