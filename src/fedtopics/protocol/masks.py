"""Masks of vectors, and the tag by which members recognise a false total, as pure functions.

A masked vector consists of words modulo 2**64 that look random. Each pair of members adds and
subtracts one stream, so the streams cancel in the total. The first member adds a pad that only
members can remove: the relay does not learn the total. One more word, modulo P = 2**61 - 1, is the
tag: the inner product of the vector and random numbers that only members know. Tags add up as
vectors do. A false total matches its tag with probability 2**-60.

References
----------
Bonawitz and others, Practical Secure Aggregation for Privacy-Preserving Machine Learning, CCS 2017.
Carter and Wegman, Universal Classes of Hash Functions, 1979.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from fedtopics.errors import FederationError
from fedtopics.protocol.keys import derive, shared

P = (1 << 61) - 1
TOTAL_BOUND = 1 << 60  # of every number of a total
BLOCK = 1 << 13  # numbers: few enough for the cache, and for exact sums of products in float64
Words = NDArray[np.uint64]
Whole = NDArray[np.int64]


def stream(key: bytes, size: int, start: int = 0) -> Words:
    """Return words of a key's stream from an even position."""
    encryptor = Cipher(AES256(key), CTR((start // 2).to_bytes(16, "big"))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * size)), "<u8")


def is_inside(whole: Whole, n: int = 1) -> bool:
    """Whether the total of n vectors like this one stays below the limit."""
    limit = TOTAL_BOUND // n  # compared on both sides: the absolute value of -2**63 is negative
    return bool(-limit < whole.min(initial=0) and whole.max(initial=0) < limit)


def tag_of(group: bytes, bound: bytes, whole: Whole) -> int:
    """Return the inner product of a vector and secret random numbers modulo P."""
    key = derive(group, "tag", bound)
    products = np.zeros((4, 4), np.int64)
    for start in range(0, len(whole), BLOCK):
        numbers = whole[start : start + BLOCK]
        factors = stream(key, len(numbers), start) >> np.uint64(3)  # P counts as 0
        # Four numbers of 16 bits for each of 64; the highest has the sign.
        left, right = (
            words.view("<u2").reshape(-1, 4).astype(np.float64) for words in (numbers, factors)
        )
        left[:, 3] = numbers.view("<i2")[3::4]
        products += (left.T @ right).astype(np.int64)
    return sum(int(products[i, j]) << (16 * (i + j)) for i in range(4) for j in range(4)) % P


def _tag_pad(group: bytes, bound: bytes) -> int:
    return int(stream(derive(group, "tag pad", bound), 1)[0]) % P


def _pairs(
    private: bytes, name: str, keys: Mapping[str, bytes], bound: bytes, size: int
) -> Iterator[tuple[int, Words]]:
    """Yield the sign and the stream that this member shares with each other one."""
    for other in sorted(keys.keys() - {name}):
        low, high = sorted([other, name])
        key = derive(shared(private, keys[other]), "pair", bound, low, high)
        yield 1 if name == low else -1, stream(key, size)


def mask(
    group: bytes, private: bytes, name: str, keys: Mapping[str, bytes], bound: bytes, whole: Whole
) -> bytes:
    """Return a masked vector and its masked tag, one word longer than the vector."""
    body = np.empty(len(whole) + 1, "<u8")
    tag = tag_of(group, bound, whole)
    words = body[:-1]
    words[:] = whole.view("<u8")
    for sign, pair in _pairs(private, name, keys, bound, len(whole) + 1):
        change = np.add if sign > 0 else np.subtract
        change(words, pair[:-1], out=words)
        tag += sign * int(pair[-1])
    if name == min(keys):
        words += stream(derive(group, "pad", bound), len(whole))
        tag += _tag_pad(group, bound)
    body[-1] = tag % P
    return body.tobytes()


def add(total: Words | None, content: bytes) -> Words:
    """Add a masked vector to the running total; the relay does this without any key."""
    if len(content) % 8 or (total is not None and len(content) != total.nbytes):
        raise FederationError("a vector differs in length from the others")
    words = np.frombuffer(content, "<u8")
    if total is None:
        return words.copy()
    tag = (int(total[-1]) + int(words[-1])) % P
    total += words
    total[-1] = tag
    return total


def unmask(group: bytes, bound: bytes, content: bytes) -> Whole:
    """Return the total of all members' vectors; FederationError if it is false."""
    words = np.frombuffer(content, "<u8")
    whole = (words[:-1] - stream(derive(group, "pad", bound), len(words) - 1)).astype(np.int64)
    inside = is_inside(whole)
    expected = tag_of(group, bound, whole if inside else np.zeros_like(whole))
    if (expected + _tag_pad(group, bound)) % P != int(words[-1]) or not inside:
        raise FederationError("the total is false")
    return whole
