"""Residues modulo the prime 2^61 - 1: what replies are while they are masked.

A reply is one vector of residues, little-endian words of eight bytes on the wire. Streams of a seed
are AES-256 in counter mode; they are made, reduced and used a block at a time, so that no mask is
ever whole in memory.

References
----------
Dworkin, Recommendation for Block Cipher Modes of Operation, NIST SP 800-38A, section 6.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from fedtopics.errors import FederationError
from fedtopics.extras import compiled

Residues: TypeAlias = NDArray[np.uint64]

BITS = 61
PRIME = (1 << BITS) - 1
BLOCK = 1 << 15  # words of a stream at a time: with the zeros they are made of, 512 KB

_ZEROS = memoryview(bytes(8 * BLOCK))
# Constants of the loops: numba takes a Python integer for a signed one.
_P, _2P, _SHIFT = np.uint64(PRIME), np.uint64(2 * PRIME), np.uint64(BITS)
_HALF, _LOW_HALF = np.uint64(31), np.uint64((1 << 31) - 1)
_WORD, _LOW_WORD = np.uint64(32), np.uint64((1 << 32) - 1)


def check_residues(values: Any, size: int) -> Residues:
    """Return what was received, if it is so many residues; raise FederationError if not."""
    if (
        not isinstance(values, np.ndarray)
        or values.dtype != np.uint64
        or values.shape != (size,)
        or bool((values >= _P).any())
    ):
        raise FederationError(
            f"What arrived as a masked reply is not {size} numbers modulo 2^61 - 1; see that all "
            "participants run the same version of fedtopics."
        )
    return values


def add(total: Residues, other: Residues) -> None:
    """Add residues to others in place."""
    _add(total, other)


def add_stream(total: Residues, seed: bytes, sign: int) -> None:
    """Add the stream of a seed of 32 bytes in place, or subtract it if `sign` is -1."""
    change = _add if sign > 0 else _subtract
    for place, words in _stream(seed, len(total)):
        change(total[place], words)


def dot_stream(seed: bytes, *vectors: Residues) -> list[int]:
    """Return the inner products of vectors with the stream of a seed of 32 bytes, modulo p."""
    totals = [0] * len(vectors)
    for place, words in _stream(seed, len(vectors[0])):
        for number, values in enumerate(vectors):
            outer_low, outer_high, inner_low, inner_high = map(int, _dot(values[place], words))
            totals[number] += outer_low + (outer_high << 32)
            totals[number] += (inner_low + (inner_high << 32)) << 31
    return [total % PRIME for total in totals]


def _stream(seed: bytes, size: int) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
    """Yield places of a vector and the stream's words there, which are not reduced yet.

    The array is the same each time. Words are the keystream's bytes as they are: processors are
    little-endian.
    """
    encryptor = Cipher(AES256(seed), CTR(bytes(16))).encryptor()
    words = np.empty(min(size, BLOCK), np.uint64)
    for start in range(0, size, BLOCK):
        block = words[: size - start]
        encryptor.update_into(_ZEROS[: block.nbytes], block.data.cast("B"))
        yield slice(start, start + len(block)), block


@compiled
def _add(total: Any, words: Any) -> None:
    """Add words of 64 bits to residues; 2^61 is 1 modulo p, so what is above it is added to it.

    Sums stay below 2^62 + 7 before the last reduction, whatever the words are.
    """
    for place in range(len(total)):
        word = words[place]
        x = total[place] + (word & _P) + (word >> _SHIFT)
        x = (x & _P) + (x >> _SHIFT)
        total[place] = min(x, x - _P)  # x - p wraps around to a large number where x < p


@compiled
def _subtract(total: Any, words: Any) -> None:
    """Subtract likewise: 2p is added first, so that nothing falls below zero."""
    for place in range(len(total)):
        word = words[place]
        x = total[place] + _2P - (word & _P) - (word >> _SHIFT)
        x = (x & _P) + (x >> _SHIFT)
        total[place] = min(x, x - _P)


@compiled
def _dot(values: Any, words: Any) -> Any:
    """Return four sums of 64 bits, of which the inner product of residues and words is made.

    Factors are split at bit 31: of a = a1 2^31 + a0 and b likewise, a b is a0 b0 + 2 a1 b1, as
    2^62 is 2 modulo p, and (a0 b1 + a1 b0) 2^31. Both are below 2^63, also of words that are p + 7
    as yet, and the lower and upper 32 bits of up to 2^32 of each add up within 64.
    """
    outer_low = outer_high = inner_low = inner_high = np.uint64(0)
    for place in range(len(values)):
        a, word = values[place], words[place]
        b = (word & _P) + (word >> _SHIFT)
        a0, a1, b0, b1 = a & _LOW_HALF, a >> _HALF, b & _LOW_HALF, b >> _HALF
        outer = a0 * b0 + ((a1 * b1) << np.uint64(1))
        inner = a0 * b1 + a1 * b0
        outer_low += outer & _LOW_WORD
        outer_high += outer >> _WORD
        inner_low += inner & _LOW_WORD
        inner_high += inner >> _WORD
    return outer_low, outer_high, inner_low, inner_high
