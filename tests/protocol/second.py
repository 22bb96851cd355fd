"""A second implementation of a member, from docs/reference/protocol.md, without fedtopics.

python -m tests.protocol.second > docs/vectors/three-members.json
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

P = 2**61 - 1
ECDSA = ec.ECDSA(SHA256(), deterministic_signing=True)
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode
Field = bytes | str | int


def joined(*fields: Field) -> bytes:
    """F of the specification."""
    plain = [field if isinstance(field, bytes) else str(field).encode() for field in fields]
    return b"".join(len(field).to_bytes(8, "big") + field for field in plain)


def digest(*fields: Field) -> bytes:
    """D of the specification."""
    return hashlib.sha256(joined("fedtopics 3", *fields)).digest()


def key(secret: bytes, *fields: Field) -> bytes:
    """K of the specification."""
    return HKDF(SHA256(), 32, None, joined("fedtopics 3", *fields)).derive(secret)


def words(key: bytes, count: int) -> list[int]:
    """The first words of a key's stream."""
    content = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(8 * count))
    return [int.from_bytes(content[8 * i : 8 * i + 8], "little") for i in range(count)]


def sealed(key: bytes, content: bytes) -> bytes:
    size = max(64, 1 << (len(content) + 3).bit_length())
    padded = len(content).to_bytes(4, "big") + content
    return AESGCM(key).encrypt(bytes(12), padded.ljust(size, b"\0"), None)


def unsealed(key: bytes, content: bytes) -> bytes:
    padded = AESGCM(key).decrypt(bytes(12), content, None)
    return padded[4 : 4 + int.from_bytes(padded[:4], "big")]


def exchanged(private: bytes, public: bytes) -> bytes:
    other = X25519PublicKey.from_public_bytes(public)
    return X25519PrivateKey.from_private_bytes(private).exchange(other)


class Second:
    """A member without a disk."""

    def __init__(
        self,
        name: str,
        study: bytes,
        private: ec.EllipticCurvePrivateKey,
        certificates: Mapping[str, ec.EllipticCurvePublicKey],
        random: Callable[[int], bytes],
    ) -> None:
        self.name = name
        self.study = study
        self.names = sorted(certificates)
        self.private = private
        self.certificates = certificates
        self.random = random
        self.run = b""
        self.number = 0
        self.transcript = b""
        self.group = b""

    def _sign(self, *fields: Field) -> bytes:
        return self.private.sign(joined("fedtopics 3", self.study, *fields), ECDSA)

    def _check(self, name: str, signature: bytes, *fields: Field) -> None:
        self.certificates[name].verify(signature, joined("fedtopics 3", self.study, *fields), ECDSA)

    def part(self, function: str, kind: str, layout: bytes, content: bytes) -> bytes:
        """Begin a step: point 1."""
        if self.number == 0:
            content = self.random(32) if self.name == self.names[0] else b""
        self.function = function
        self.kind = kind
        self.content = content
        place = self.run, self.number, self.transcript
        self.agreed = [*place, function, kind, digest(layout)]
        self.context = digest("context", self.study, *self.agreed, *self.names)
        self.once = key(self.random(32), "one-time key", self.context, digest(content))
        public = X25519PrivateKey.from_private_bytes(self.once).public_key().public_bytes_raw()
        signature = self._sign("part", self.context, self.name, public)
        self.own = pack(["Part", *self.agreed, self.name, public, signature])
        return self.own

    def body(self, parts: Sequence[bytes]) -> bytes:
        """Check the list, and answer with the body: points 2 and 3."""
        read = [unpack(part) for part in parts]
        if self.own not in parts or [fields[7] for fields in read] != self.names:
            raise ValueError("the list")
        for fields in read:
            if fields[1:7] != self.agreed:
                raise ValueError("a part")
            self._check(fields[7], fields[9], "part", self.context, fields[7], fields[8])
        self.public = {fields[7]: fields[8] for fields in read}
        self.list = digest(*(pack([*fields[:9], b""]) for fields in read))
        self.bound = digest(self.context, self.list)
        content = self._masked() if self.kind == "sum" else self._reply()
        return pack(["Body", self.list, self.name, content])

    def _tag(self, vector: Sequence[int]) -> int:
        secret = words(key(self.group, "tag", self.bound), len(vector))
        return sum(x * ((s >> 3) % P) for x, s in zip(vector, secret, strict=True)) % P

    def _pad(self, count: int) -> tuple[list[int], int]:
        tag = words(key(self.group, "tag pad", self.bound), 1)[0] % P
        return words(key(self.group, "pad", self.bound), count), tag

    def _masked(self) -> bytes:
        vector = np.frombuffer(self.content, "<i8").tolist()
        masked = list(vector)
        tag = self._tag(vector)
        for other in self.names:
            if other == self.name:
                continue
            low, high = sorted([self.name, other])
            secret = exchanged(self.once, self.public[other])
            *mask, last = words(key(secret, "pair", self.bound, low, high), len(vector) + 1)
            sign = 1 if self.name == low else -1
            masked = [x + sign * m for x, m in zip(masked, mask, strict=True)]
            tag += sign * last
        if self.name == self.names[0]:
            pad, last = self._pad(len(vector))
            masked = [x + p for x, p in zip(masked, pad, strict=True)]
            tag = tag + last
        numbers = [*(x % 2**64 for x in masked), tag % P]
        return b"".join(x.to_bytes(8, "little") for x in numbers)

    def _reply(self) -> bytes:
        content = b""
        if self.number > 0:
            content = sealed(key(self.group, "call", self.bound, self.name), self.content)
        elif self.name == self.names[0]:
            secrets = {n: exchanged(self.once, self.public[n]) for n in self.names[1:]}
            boxes = [
                sealed(key(s, "group", self.bound, n), self.content) for n, s in secrets.items()
            ]
            content = pack(boxes)
        return pack([content, self._sign("reply", self.bound, self.name, content)])

    def open(self, total: bytes) -> list[bytes]:
        """Open the total, check it, and move on: point 5."""
        group = self.group
        if self.kind == "sum":
            opened = [self._opened(total)]
        else:
            replies = dict(zip(self.names, map(unpack, unpack(total)), strict=True))
            for name, (content, signature) in replies.items():
                self._check(name, signature, "reply", self.bound, name, content)
            opened = []
            if self.number > 0:
                opened = [
                    unsealed(key(group, "call", self.bound, n), r[0]) for n, r in replies.items()
                ]
            elif self.name == self.names[0]:
                group = self.content
            else:
                box = unpack(replies[self.names[0]][0])[self.names.index(self.name) - 1]
                secret = exchanged(self.once, self.public[self.names[0]])
                group = unsealed(key(secret, "group", self.bound, self.name), box)
        content = joined(self.transcript, self.function, self.list, digest(*opened))
        self.transcript = hmac.digest(key(group, "transcript"), content, "sha256")
        self.group = key(group, "next", self.transcript)
        self.run = self.run or self.list
        self.number = self.number + 1
        return opened

    def _opened(self, total: bytes) -> bytes:
        *masked, tag = np.frombuffer(total, "<u8").tolist()
        pad, last = self._pad(len(masked))
        vector = [(x - p + 2**63) % 2**64 - 2**63 for x, p in zip(masked, pad, strict=True)]
        if (self._tag(vector) + last) % P != tag or max(map(abs, vector)) >= 2**60:
            raise ValueError("the total is false")
        return np.array(vector, "<i8").tobytes()


STUDY = hashlib.sha256(b"a study").digest()
PRIVATE = {
    n: ec.derive_private_key(i, ec.SECP256R1()) for i, n in enumerate(("ann", "bob", "cat"), 7)
}
PUBLIC = {name: private.public_key() for name, private in PRIVATE.items()}
NUMBERS = {"ann": [1, -2, 3], "bob": [10, 20, -(2**50)], "cat": [0, 0, 5]}
STEPS = [
    ("group key", "call", dict.fromkeys(NUMBERS, b"")),
    ("documents", "call", {name: name.encode() * 30 for name in NUMBERS}),
    ("counts", "sum", {n: np.array(v, "<i8").tobytes() for n, v in NUMBERS.items()}),
    ("counts", "sum", {name: bytes(24) for name in NUMBERS}),
]


def randomness(name: str) -> Callable[[int], bytes]:
    """The bytes that a member of the vectors draws: the stream of a key."""
    encryptor = Cipher(AES256(hashlib.sha256(name.encode()).digest()), CTR(bytes(16))).encryptor()
    return lambda count: encryptor.update(bytes(count))


def vectors() -> dict[str, Any]:
    """Play the steps; return every byte as hexadecimal digits."""
    members = {n: Second(n, STUDY, p, PUBLIC, randomness(n)) for n, p in PRIVATE.items()}
    steps = []
    for function, kind, contents in STEPS:
        parts = [m.part(function, kind, b"layout", contents[n]) for n, m in members.items()]
        bodies = [member.body(parts) for member in members.values()]
        received = [unpack(body)[3] for body in bodies]
        total = added(received) if kind == "sum" else pack(received)
        opened = [member.open(total) for member in members.values()]
        assert opened.count(opened[0]) == len(opened)
        steps.append(
            {
                "function": function,
                "kind": kind,
                "contents": [c.hex() for c in contents.values()],
                "parts": [content.hex() for content in parts],
                "bodies": [content.hex() for content in bodies],
                "total": total.hex(),
                "opened": [content.hex() for content in opened[0]],
                "transcript": members["ann"].transcript.hex(),
            }
        )
    return {
        "study": STUDY.hex(),
        "layout": b"layout".hex(),
        "members": list(members),
        "private keys": [p.private_numbers().private_value for p in PRIVATE.values()],
        "steps": steps,
    }


def added(bodies: Sequence[bytes]) -> bytes:
    """What the relay makes of bodies."""
    rows = [np.frombuffer(body, "<u8").tolist() for body in bodies]
    *vector, tag = (sum(column) for column in zip(*rows, strict=True))
    return b"".join(x.to_bytes(8, "little") for x in [*(x % 2**64 for x in vector), tag % P])


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
