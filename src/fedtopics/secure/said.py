"""What is said in a masked sum besides the masked replies, and how it is looked at.

Everything is signed, for one purpose at one moment of one run: whoever adds passes it on, and can
change none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedtopics.engines.handshake import is_key
from fedtopics.errors import FederationError
from fedtopics.methods.core.replies import Own
from fedtopics.secure import check
from fedtopics.secure.field import PRIME, Residues, add, check_residues
from fedtopics.secure.keys import DOMAIN, LENGTH, framed

PREPARED, COMMITTED, ADDED, CHECKED, AGREED, OPENED, RECOVERED = STAGES = (
    "secure.prepare", "secure.commit", "secure.add", "secure.check", "secure.agree", "secure.open",
    "secure.recover",
)  # fmt: skip
KEY, SAME, SIZED, NAMES, LISTED, CHOSEN = WORD_STAGES = (
    "secure.key", "secure.same", "secure.sized", "secure.names", "secure.listed", "secure.chosen",
)  # fmt: skip
LEAVES = {
    PREPARED: "Of the masks of a sum: a public key, and shares of what opens them, sealed for each "
    "other client; of the reply, over how many documents it is, and whether its numbers are in the "
    "smaller range.",
    COMMITTED: "The digest of the masked reply that follows, over how many documents it is, and "
    "whether its numbers are in the smaller range; of the last one what secure.check has.",
    ADDED: "The masked reply, which tells nothing by itself.",
    CHECKED: "Two inner products of the masked reply with what follows from the total, by which "
    "all check that it is the sum.",
    AGREED: "The same products, and by its signature that the client knows who is in the sum.",
    OPENED: "What the client's own mask follows from; of who was lost, a share of what opens the "
    "masks that it had in common with others.",
    RECOVERED: "Shares of the own masks of who is in the sum and was lost since.",
    KEY: "A part of the key for words, sealed for each other client.",
    SAME: "What tells that all clients have the same key, and tells nothing of it.",
    SIZED: "Whether the client has more documents or words than all are said to have.",
    NAMES: "Words that may be among the agreed ones, encrypted for the other clients.",
    LISTED: "How many words the clients named to each other, and a keyed digest of these.",
    CHOSEN: "The agreed words, in the clear: the model has them.",
}
FEWEST = 3  # clients in a sum: of two, each knows the other's reply
PRODUCT = 16  # bytes: of two inner products
COUNT = 8  # bytes of a number of documents
FITS, EXCEEDS = b"\1", b"\0"  # whether a reply's numbers are in the smaller range


class Fits(Protocol):
    """Whether who has a name has signed something."""

    def __call__(self, name: str, content: bytes, signature: bytes, /) -> bool:
        """Say so."""


def context_of(moment: bytes, function: str, members: Sequence[str]) -> bytes:
    """Return what the masks of a sum are for: who was told something else has other masks."""
    parts = [function.encode(), *(name.encode() for name in members)]
    return hashlib.sha256(framed(DOMAIN, b"context", moment, *parts)).digest()


def statement(stage: str, context: bytes, parts: Mapping[str, bytes]) -> bytes:
    """Return what is signed."""
    named = (part for name in sorted(parts) for part in (name.encode(), parts[name]))
    return framed(DOMAIN, b"said", stage.encode(), context, *named)


def parts_of(value: Any) -> dict[str, Any]:
    """Return the parts of an answer; long ones travel as arrays, beside a message's structure."""
    parts = dict(value) if isinstance(value, Mapping) else {}
    long = {n: each for n, each in parts.items() if isinstance(each, np.ndarray)}
    return parts | {n: each.tobytes() for n, each in long.items() if each.dtype == np.uint8}


def product_of(seed: bytes, values: Residues) -> bytes:
    """Return what a client says of its masked reply."""
    return _written(check.products(seed, values)[0])


def _written(products: tuple[int, int]) -> bytes:
    return b"".join(each.to_bytes(8, "little") for each in products)


def numbers_of(product: bytes) -> tuple[int, int]:
    """Return the two numbers that a client has said."""
    return int.from_bytes(product[:8], "little"), int.from_bytes(product[8:], "little")


def all_fit(answers: Mapping[str, Mapping[str, bytes]]) -> bool:
    """Whether the numbers of all clients are in the smaller range."""
    return all(answer["fits"] == FITS for answer in answers.values())


def count(reply: Mapping[str, Any]) -> bytes:
    """Return what a client says of its reply before that leaves: over how many documents it is."""
    return int(reply.get("documents", 0)).to_bytes(COUNT, "little")


def documents_of(answers: Mapping[str, Mapping[str, bytes]], names: Sequence[str]) -> int:
    """Return over how many documents a sum of these clients' replies is, as each has said."""
    return sum(int.from_bytes(answers[name]["documents"], "little") for name in names)


@dataclass(frozen=True, eq=False)
class Total:
    """A masked total, and what was said of its parts before."""

    context: bytes
    values: Residues
    digests: Mapping[str, bytes]  # of the masked replies
    kept: Mapping[str, Residues] = field(repr=False)  # at who adds: the masked replies

    @cached_property
    def seed(self) -> bytes:
        """What nobody could know before the total: the product's other factor follows from it."""
        return check.challenge(self.context, self.values, self.digests)

    @cached_property
    def _products(self) -> dict[str, tuple[int, int]]:
        """That of the total, by "", and at who adds what each client has to say."""
        found = check.products(self.seed, self.values, *self.kept.values())
        return dict(zip(["", *self.kept], found, strict=True))

    def is_product(self, name: str, product: bytes) -> bool:
        """Whether a client may say so, as far as is known here."""
        known = self._products.get(name)
        return known is None or product == _written(known)

    def is_sum(self, products: Mapping[str, bytes]) -> bool:
        """Whether it is the sum of what was said, by each client's product."""
        said = [numbers_of(product) for product in products.values()]
        found = tuple(sum(numbers) % PRIME for numbers in zip(*said, strict=True))
        return products.keys() == self.digests.keys() and found == self._products[""]


@dataclass(eq=False)
class Answer(Own):
    """A client's signed answer, of parts that have so many bytes each, or one of some numbers.

    Its product is held against the masked reply by who has that: who adds. It looks at an answer
    when it comes and, as all do, when it is decided: what was found right is the second time.
    """

    fits: Fits
    stage: str
    context: bytes
    sizes: Mapping[str, int | Collection[int]]
    of: Total | None = None
    least: int = 0
    _right: set[tuple[str, bytes, bytes]] = field(default_factory=set, repr=False)

    def fault(self, value: Any, of: Sequence[str]) -> str:
        """Return what is wrong with an answer, or ''."""
        parts = parts_of(value)
        signature = parts.pop("signature", None)
        fits = (isinstance(parts[n], bytes) and self._is_size(n, len(parts[n])) for n in parts)
        if parts.keys() != self.sizes.keys() or not all(fits) or not isinstance(signature, bytes):
            return f"it is no answer to {self.stage}"
        if "key" in parts and not is_key(parts["key"]):
            return "its key is no key of X25519"
        said = statement(self.stage, self.context, parts)
        if len(of) == 1 and (of[0], said, signature) in self._right:
            return ""
        if len(of) != 1 or not self.fits(of[0], said, signature):
            return "its signature does not fit"
        if self.of and not self.of.is_product(of[0], parts["product"]):
            return "its product is not that of what it sent"
        self._right.add((of[0], said, signature))
        return ""

    def _is_size(self, name: str, size: int) -> bool:
        allowed = self.sizes[name]
        return size == allowed if isinstance(allowed, int) else size in allowed


@dataclass(eq=False)
class Masked(Own):
    """A masked reply; their sum modulo the prime.

    It is what its client has said before (`digests`), or, where there is nothing to be known of the
    others' replies yet, comes with the client's signature.
    """

    fits: Fits
    context: bytes
    size: int
    digests: Mapping[str, bytes] | None = None
    least: int = 0
    kept: dict[str, Residues] = field(default_factory=dict, repr=False)
    _signed: dict[str, dict[str, bytes]] = field(default_factory=dict, repr=False)
    _sum: Residues | None = field(default=None, repr=False)

    def fault(self, value: Any, of: Sequence[str]) -> str:
        """Return what is wrong with a reply, or with a total, or ''."""
        fields = {"values"} if self.digests is not None else {"values", "said"}
        if not isinstance(value, Mapping) or value.keys() != fields:
            return "it is no masked reply"
        try:
            values = check_residues(value["values"], self.size)
        except FederationError:
            return "it holds other masked numbers than were asked for"
        if len(of) > 1:
            return self._fault_of_total(value, of)
        digest = check.digest(values, self.context)
        if self.digests is not None:
            return "" if self.digests[of[0]] == digest else "it is not what the client committed to"
        return self._unsigned(of[0], value["said"], digest)

    def _fault_of_total(self, value: Mapping[str, Any], of: Sequence[str]) -> str:
        if self.digests is not None:
            return ""
        said = value["said"]
        if not isinstance(said, Mapping) or said.keys() != set(of):
            return "it is not the sum of who is said to be in it"
        faults = (self._unsigned(name, said[name]) for name in of)
        return next((fault for fault in faults if fault), "")

    def _unsigned(self, name: str, said: Any, digest: bytes | None = None) -> str:
        """Say that a client has not signed a digest, of its reply where that is there, if so."""
        answer = Answer(self.fits, ADDED, self.context, {"digest": LENGTH})
        fault = answer.fault(said, [name])
        if not fault and digest is not None and said["digest"] != digest:
            return "it is not what the client has signed"
        return fault

    def add(self, name: str, value: Any) -> None:
        """Take a client's masked reply."""
        values = self.kept[name] = value["values"]
        if self.digests is None:
            self._signed[name] = value["said"]
        if self._sum is None:
            self._sum = values.copy()
        else:
            add(self._sum, values)

    def total(self) -> dict[str, Any]:
        """Return the sum, and what was signed of its parts."""
        return {"values": self._sum} | ({} if self.digests is not None else {"said": self._signed})
