"""The vectors of docs/secure-aggregation.md, by the package and by a second implementation.

The second one follows the page alone: HKDF by hand, AES a block at a time, Python's integers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b32encode
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedtopics.methods.core.aggregation import Named
from fedtopics.methods.core.replies import Field
from fedtopics.secure import check, counting, field, fixed, keys, masks, shares
from fedtopics.secure.words import Words
from fedtopics.text.vocabulary import VocabularyLimits
from tests.helpers.pages import DOCS, blocks

(VECTORS,) = (json.loads(b.text) for b in blocks(DOCS / "secure-aggregation.md", "json"))
DOMAIN = b"fedtopics secure 1"
P = 2**61 - 1


def hexed(values: dict[str, str]) -> dict[str, bytes]:
    return {name: bytes.fromhex(value) for name, value in values.items()}


def vector(text: str) -> field.Residues:
    return np.frombuffer(bytes.fromhex(text), "<u8").astype(np.uint64)


def case(name: str) -> dict[str, Any]:
    """A vector's fields; those that are hexadecimal as bytes."""

    def read(value: Any) -> Any:
        try:
            return bytes.fromhex(value)
        except (TypeError, ValueError):
            return value

    return {key: read(value) for key, value in VECTORS[name].items()}


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def hkdf(secret: bytes, info: bytes) -> bytes:
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def stream(seed: bytes, size: int) -> list[int]:
    block = Cipher(algorithms.AES256(seed), modes.ECB()).encryptor().update  # noqa: S305 - of CTR
    numbers = b"".join(block(count.to_bytes(16, "big")) for count in range(size // 2 + 1))
    return [int.from_bytes(numbers[8 * j : 8 * j + 8], "little") % P for j in range(size)]


def residues(content: bytes) -> list[int]:
    return [int.from_bytes(content[j : j + 8], "little") for j in range(0, len(content), 8)]


def wire(values: list[int]) -> bytes:
    return b"".join((value % P).to_bytes(8, "little") for value in values)


def times(a: int, b: int) -> int:
    """Multiply polynomials over GF(2) modulo x^128 + x^7 + x^2 + x + 1."""
    found = 0
    for bit in range(128):
        if b >> bit & 1:
            found ^= a << bit
    for bit in reversed(range(128, 256)):
        if found >> bit & 1:
            found ^= (1 << 128 | 0x87) << (bit - 128)
    return found


def at_zero(points: dict[int, int]) -> int:
    found = 0
    for x, y in points.items():
        for other in points.keys() - {x}:
            inverse = 1
            for _ in range(127):  # (2^128 - 2)-th power: 1 + 2 + ... + 2^126, doubled
                inverse = times(times(inverse, inverse), other ^ x)
            y = times(times(y, other), times(inverse, inverse))
        found ^= y
    return found


def test_stream() -> None:
    v = case("stream")
    size = len(v["residues"]) // 8
    assert wire(stream(v["seed"], size)) == v["residues"]
    assert wire([-word for word in stream(v["seed"], size)]) == v["subtracted from zeros"]
    for sign, name in ((1, "residues"), (-1, "subtracted from zeros")):
        total = np.zeros(size, np.uint64)
        field.add_stream(total, v["seed"], sign)
        assert total.tobytes() == v[name]


def test_the_keystream_is_that_of_nist() -> None:
    """AES-256 of zeros with a key of zeros: AESAVS, appendix B.2 and others."""
    words = np.frombuffer(bytes.fromhex("dc95c078a2408989ad48a21492842087"), "<u8")
    total = np.zeros(2, np.uint64)
    field.add_stream(total, bytes(32), 1)
    assert total.tolist() == [int(word) % P for word in words]


def test_derive() -> None:
    v = case("derive")
    context = [bytes.fromhex(part) for part in v["context"]]
    info = framed(DOMAIN, v["purpose"].encode(), *context)
    assert hkdf(v["secret"], info) == v["result"]
    assert keys.derive(v["secret"], v["purpose"], *context) == v["result"]


def test_pair() -> None:
    v = case("pair")
    own = keys.KeyPair(v["secret"])
    assert own.public == v["public"]
    assert own.secret_with(v["other"], v["context"]) == v["result"]
    key = X25519PrivateKey.from_private_bytes(v["secret"])
    common = key.exchange(X25519PublicKey.from_public_bytes(v["other"]))
    assert common.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    info = framed(DOMAIN, b"pair", v["context"], *sorted([v["public"], v["other"]]))
    assert hkdf(common, info) == v["result"]


def test_roster() -> None:
    v = case("roster")
    roster = hexed(v["keys"])
    assert keys.roster_digest(roster) == v["digest"]
    parts = [part for name in sorted(roster) for part in (name.encode(), roster[name])]
    letters = b32encode(hashlib.sha256(framed(DOMAIN, b"roster", *parts)).digest()).decode()
    assert letters[:40] == v["digest"].replace(" ", "")


def test_mask() -> None:
    v = case("mask")
    seeds = hexed(v["seeds"])
    values = vector(VECTORS["mask"]["values"])
    masks.mask(values, v["own"], seeds)
    assert values.tobytes() == v["masked"]
    by_hand = residues(v["values"])
    for name, sign in (("north", -1), ("west", 1)):
        changes = stream(seeds[name], len(by_hand))
        by_hand = [a + sign * b for a, b in zip(by_hand, changes, strict=True)]
    assert wire(by_hand) == v["masked"]


def test_shares() -> None:
    v = case("shares")
    given = hexed(v["shares"])
    assert shares.combine(given, v["names"], v["threshold"]) == v["secret"]
    places = {name: place for place, name in enumerate(sorted(v["names"]), 1)}
    points = {places[name]: int.from_bytes(share[:16], "big") for name, share in given.items()}
    assert at_zero(points).to_bytes(16, "big") == v["secret"]
    commitment = hashlib.sha256(framed(DOMAIN, b"share", v["secret"])).digest()
    assert {share[16:] for share in given.values()} == {commitment}


def test_seal() -> None:
    v = case("seal")
    assert shares.unseal(v["sealed"], v["key"], v["context"]) == v["content"]


def test_digest() -> None:
    v = case("digest")
    assert check.digest(vector(VECTORS["digest"]["values"]), v["context"]) == v["digest"]
    content = framed(DOMAIN, b"reply", v["context"], v["values"])
    assert hashlib.sha256(content).digest() == v["digest"]


def test_pieces() -> None:
    v = VECTORS["pieces"]
    n, numbers = v["members"], v["numbers"]
    names = [f"member {number}" for number in range(n)]
    template = {"x": Field((len(numbers),))}
    layout = fixed.Layout.of(template, names, ranges={f"x {len(numbers)}": v["range"]})
    found, factor = layout.encode({"x": np.array(numbers)})
    assert factor == 1
    assert found.tolist() == vector(v["residues"]).tolist()
    carry, m, b = (n - 1).bit_length(), 1, 0
    while b < 36 + carry:
        m += 1
        b = (60 * m - carry * (m - 1)) // (m + 1)
    most = (2**b - 1) // (2 * n)
    f = next(f for f in range(99, -99, -1) if 2.0**f * v["range"] <= most)
    whole = [round(number * 2**f) + most for number in numbers]
    residues, rest = whole[: -(-len(whole) * m // (m + 1))], whole[-(-len(whole) * m // (m + 1)) :]
    piece = 60 - b - carry
    for j, number in enumerate(rest):
        for part in range(m):
            cut = number >> part * piece
            residues[j * m + part] += (cut % 2**piece if part < m - 1 else cut) << b
    assert residues == found.tolist()


def test_challenge() -> None:
    v = case("challenge")
    digests = hexed(v["digests"])
    total = vector(VECTORS["challenge"]["total"])
    assert check.challenge(v["context"], total, digests) == v["seed"]
    parts = [part for name in sorted(digests) for part in (name.encode(), digests[name])]
    content = framed(DOMAIN, b"challenge", v["context"], v["total"], *parts)
    assert hashlib.sha256(content).digest() == v["seed"]


def test_product() -> None:
    v = case("product")
    values = vector(VECTORS["product"]["values"])
    expected = int.from_bytes(v["product"], "little")
    assert check.products(v["seed"], values)[0][0] == expected
    challenge = stream(v["seed"], len(values))
    assert sum(a * int(b) for a, b in zip(challenge, values, strict=True)) % P == expected


def test_words() -> None:
    v = case("words")
    pairs = {name: keys.KeyPair(secret) for name, secret in hexed(v["secrets"]).items()}
    parts, context = hexed(v["parts"]), v["context"]
    public = {name: pair.public for name, pair in pairs.items()}
    known = Words(VocabularyLimits(), context, list(parts), public, sizes={"words": 1})
    halves = {name: counting.Counting(name, b"", pair) for name, pair in pairs.items()}
    known.parts = {
        sender: b"".join(
            counting._sealed(part, halves[sender]._common(known, name, sender, name), context)
            for name in parts
        )
        for sender, part in parts.items()
    }
    assert known.parts["north"][60:] == v["sealed by north for south"]
    reader = halves["south"]
    reader.documents = {"words": Named([v["word"]], np.zeros((1, 4), np.int64))}
    assert reader._key(known) == v["key"]
    assert reader.answer("secure.same", known, context) == {"same": v["same"]}
    assert reader._places(known).tolist() == [v["bucket"]]
    by_hand = hkdf(framed(*parts.values()), framed(DOMAIN, b"key of words", context))
    assert by_hand == v["key"]
    assert hkdf(by_hand, framed(DOMAIN, b"same", context)) == v["same"]
    hashed = hmac.digest(hkdf(by_hand, framed(DOMAIN, b"buckets")), v["word"].encode(), "sha256")
    assert int.from_bytes(hashed[:8], "little") % v["buckets"] == v["bucket"]
    purpose = framed(b"part of a key", context, b"north", b"south")
    secrets = {n: X25519PrivateKey.from_private_bytes(s) for n, s in hexed(v["secrets"]).items()}
    common = secrets["south"].exchange(secrets["north"].public_key())
    both = sorted(each.public_key().public_bytes_raw() for each in secrets.values())
    key = hkdf(common, framed(DOMAIN, b"pair", purpose, *both))
    nonce = hkdf(key, framed(DOMAIN, b"nonce", parts["north"]))[:12]
    sealed = v["sealed by north for south"]
    assert sealed[:12] == nonce
    assert AESGCM(key).decrypt(nonce, sealed[12:], context) == parts["north"]


@pytest.mark.parametrize("name", VECTORS)
def test_each_vector_has_a_test(name: str) -> None:
    assert f"test_{name}" in globals()
