"""A check that masked replies were added up right, by one number of each participant.

Digests of all masked replies are known before any reply leaves. The adder announces the total; a
challenge r follows from it and the digests. Each participant answers the inner product of r and its
masked reply, which tells nothing, as the reply is masked. They add up to the inner product of r and
the total; for another total they do with a probability of about 2^-61 a try. Who adds can try by
itself, and a member on its side can answer what fits: docs/secure-aggregation.md says what is left.

References
----------
Freivalds, Fast Probabilistic Algorithms, MFCS 1979; Fiat and Shamir, How to Prove Yourself, CRYPTO
1986, for a challenge that follows from what was said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from fedtopics.secure.field import Residues, dot_stream
from fedtopics.secure.keys import DOMAIN, derive, framed


def digest(values: Residues, context: bytes) -> bytes:
    """Return the SHA-256 by which a member is held to its masked reply."""
    return _hashed(b"reply", context, values).digest()


def challenge(context: bytes, total: Residues, digests: Mapping[str, bytes]) -> bytes:
    """Return the seed of the challenge to a total, from it and the digests by name."""
    hashed = _hashed(b"challenge", context, total)
    for name in sorted(digests):
        hashed.update(framed(name.encode(), digests[name]))
    return hashed.digest()


def products(seed: bytes, *vectors: Residues) -> list[tuple[int, int]]:
    """Return two inner products of each vector, modulo p: with a challenge, and one from that.

    Those of all members' masked replies add up to those of the total. With one challenge alone,
    who adds could try false totals in silence, and in 2^61 tries find one.
    """
    seeds = seed, derive(seed, "again")
    return list(zip(*(dot_stream(each, *vectors) for each in seeds), strict=True))


def _hashed(purpose: bytes, context: bytes, values: Residues) -> hashlib._Hash:
    hashed = hashlib.sha256(framed(DOMAIN, purpose, context))
    hashed.update(values.nbytes.to_bytes(8, "big"))  # as `framed` does, without a copy of them
    hashed.update(values.data)
    return hashed
