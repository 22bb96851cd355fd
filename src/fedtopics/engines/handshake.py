"""What participants must have in common before anything leaves one of them, and who is who."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedtopics.engines.messages import Accept, Offer, Welcome
from fedtopics.errors import FedTopicsError, IdentityError
from fedtopics.harmless import sentence

WIRE_VERSION = 7  # of values.py and messages.py
KEY = 32  # bytes of a public key; its signature follows
NO_KEYS: Mapping[str, bytes] = {}
Versions = tuple[str, Mapping[str, int]]
"""Of fedtopics, and of the methods it has."""


def is_key(public: bytes) -> bool:
    """Whether a pair has secrets with a key of X25519: who uses another one stops."""
    try:
        other = X25519PublicKey.from_public_bytes(public)
        X25519PrivateKey.from_private_bytes(bytes(KEY)).exchange(other)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Proposal:
    """What participants are asked to take part in."""

    product: str
    method: str
    method_version: int
    study: Mapping[str, Any]
    fingerprint: str
    start: str = ""  # fingerprint of the model that the training starts from

    @classmethod
    def of(cls, offer: Offer) -> Proposal:
        """Read an offer, whose texts are the other side's."""
        texts = offer.product, offer.method, offer.fingerprint, offer.start
        product, method, fingerprint, start = map(sentence, texts)
        return cls(product, method, offer.method_version, offer.study, fingerprint, start)

    def objection(self, versions: Versions, wire: int) -> str:
        """Say why this side cannot take part, with both versions and the remedy.

        Of the version of fedtopics the last number may differ.
        """
        product, methods = versions
        mine = methods.get(self.method, 0)
        method, minor = f"the method {self.method!r}", self.product.split(".")[:2]
        compared = (
            ("fedtopics", product, self.product, product.split(".")[:2] == minor),
            ("the wire format", WIRE_VERSION, wire, wire == WIRE_VERSION),
            (method, mine, self.method_version, mine == self.method_version),
        )
        for what, client, server, same in compared:
            if not same:
                return (
                    f"The client has version {client or 'none'} of {what}, the server {server}; "
                    f"install fedtopics {self.product} on both sides."
                )
        return ""


class Signatures(Protocol):
    """Signs by the key of the own certificate, checks those of others of the same authority."""

    certificate: bytes  # PEM; nothing where there are no certificates

    def sign(self, content: bytes) -> bytes:
        """Sign."""

    def learn(self, name: str, certificate: bytes) -> None:
        """Take a participant's certificate; an `IdentityError` if it is not the participant's."""

    def fits(self, name: str, content: bytes, signature: bytes) -> bool:
        """Whether a participant whose certificate is known has signed this."""

    def ended(self, name: str) -> str:
        """Say that a participant's certificate is not valid now, if so."""

    def known(self, name: str) -> bytes:
        """Return a participant's certificate, or nothing."""


class Unsigned:
    """Where there are no certificates: on one machine, or where the engine vouches for names."""

    certificate = b""

    def sign(self, content: bytes) -> bytes:
        """Return nothing."""
        return b""

    def learn(self, name: str, certificate: bytes) -> None:
        """Do nothing."""

    def fits(self, name: str, content: bytes, signature: bytes) -> bool:
        """Believe everybody."""
        return True

    def ended(self, name: str) -> str:
        """Say nothing."""
        return ""

    def known(self, name: str) -> bytes:
        """Return nothing."""
        return b""


class Introduction:
    """How a participant introduces itself in a run of a study, and knows the others."""

    def __init__(
        self, own: str, proposal: Proposal, run: bytes, signatures: Signatures, least: int = 1,
        key: bytes = b"",
    ) -> None:  # fmt: skip
        self.run = run
        self.least = least  # clients of a sum that this participant's policy asks for
        self._own = own
        self._proposal = proposal
        self._signatures = signatures
        self._process = os.urandom(8)
        self._keys = {own: self._with_signature(key)} if key else {}  # of masks, by name

    def offer(self) -> Offer:
        """Write an offer, with the clock of this machine."""
        proposal, now = self._proposal, time.time()
        return Offer(
            proposal.product, WIRE_VERSION, proposal.method, proposal.method_version,
            dict(proposal.study), proposal.fingerprint, proposal.start, self.run, now,
            os.urandom(16),
        )  # fmt: skip

    def differs(self, offer: Offer, who: str) -> str:
        """Say how an offer is not of this participant's study, if so."""
        mine, theirs = self._proposal.fingerprint, offer.fingerprint
        if mine == theirs and self._proposal.start == offer.start:
            return ""
        if mine == theirs:
            own, other = (
                f"the model {s}" if s else "none" for s in (self._proposal.start, offer.start)
            )
            return (
                f"The study begins with {own} here, and with {other} at {who}; name the same one "
                "with --start everywhere."
            )
        return (
            f"This client joined the study {mine}, {who} now runs {theirs}; restart the "
            "client to take part in that."
        )

    def accept(self, offer: Offer) -> Accept:
        """Answer an offer."""
        signature = self._signatures.sign(self._introduced(self._own, offer.challenge))
        fingerprint, certificate = self._proposal.fingerprint, self._signatures.certificate
        return Accept(
            self._own, fingerprint, self._process, self.least, certificate, signature,
            self._keys.get(self._own, b""),
        )  # fmt: skip

    def unsigned(self, welcome: Welcome) -> str:
        """Say that who adds has no certificate, though this participant has one, if so."""
        if welcome.certificate or not self._signatures.certificate:
            return ""
        return (
            "The server shows no certificate, and this client has an identity; where one "
            "participant has one, the server and all others need one as well. Ask its operator."
        )

    def objection(self, accept: Accept, challenge: bytes, vouched: str) -> str:
        """Say why who accepts cannot take part, if so; `vouched` is its name by the transport."""
        name = accept.name
        if vouched and vouched != name:
            return f"The client calls itself {name!r}, and its certificate is of {vouched!r}."
        if accept.fingerprint != self._proposal.fingerprint:
            return (
                f"The client joins the study {accept.fingerprint or 'without a name'}, this server "
                f"runs {self._proposal.fingerprint}; restart the client."
            )
        try:
            self._signatures.learn(name, accept.certificate)
        except FedTopicsError as error:
            return str(error)
        if not self._signatures.fits(name, self._introduced(name, challenge), accept.signature):
            return f"The client {name!r} has not signed with the key of its certificate."
        if objection := self._objection_to_key(name, accept.key):
            return objection
        return self._signatures.ended(name)

    def sign_digest(self, index: int, digest: bytes) -> bytes:
        """Sign what was decided before a decision."""
        return self._signatures.sign(self._agreed(index, digest))

    def is_signed(self, name: str, index: int, digest: bytes, signature: bytes) -> bool:
        """Whether a participant has signed the same."""
        return self._signatures.fits(name, self._agreed(index, digest), signature)

    def sign_state(self, digest: bytes) -> bytes:
        """Sign the digest of a state of the program."""
        return self._signatures.sign(self._said(b"state", digest))

    def has_signed_state(self, name: str, digest: bytes, signature: bytes) -> bool:
        """Whether a participant has signed that it has this state; of oneself it is so."""
        said = self._said(b"state", digest)
        return name == self._own or self._signatures.fits(name, said, signature)

    def certificates(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the certificates of participants."""
        signed = self._signatures
        return {n: signed.certificate if n == self._own else signed.known(n) for n in names}

    def learn(self, certificates: Mapping[str, bytes], keys: Mapping[str, bytes] = NO_KEYS) -> None:
        """Take others' certificates and the keys of their masks.

        An `IdentityError` if a certificate is not of the own authority, or a key not signed.
        """
        for name, certificate in certificates.items():
            if name != self._own:
                self._signatures.learn(name, certificate)
        for name, key in keys.items():
            if objection := self._objection_to_key(name, key):
                raise IdentityError(objection)

    def keys(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the signed keys of participants' masks."""
        return {name: self._keys.get(name, b"") for name in names}

    def fits(self, name: str, content: bytes, signature: bytes) -> bool:
        """Whether a participant has signed something; what for, the content has to say."""
        return self._signatures.fits(name, content, signature)

    def key_of(self, name: str) -> bytes:
        """Return the public key of a participant's masks; nothing without one."""
        return self._keys.get(name, b"")[:KEY]

    def _objection_to_key(self, name: str, key: bytes) -> str:
        """Say what is wrong with a key; take it if nothing is: another one is not taken then."""
        known = self._keys.get(name, b"")
        if known[:KEY] == key[:KEY]:
            return ""
        said = self._said(b"key of masks", name.encode(), key[:KEY])
        if known or len(key) < KEY or not self._signatures.fits(name, said, key[KEY:]):
            return f"The client {name!r} shows another key for its masks than it has signed."
        if not is_key(key[:KEY]):
            return f"The client {name!r} shows a key for its masks that is no key of X25519."
        self._keys[name] = key
        return ""

    def _with_signature(self, key: bytes) -> bytes:
        return key + self._signatures.sign(self._said(b"key of masks", self._own.encode(), key))

    def _introduced(self, name: str, challenge: bytes) -> bytes:
        return self._said(b"introduction", name.encode(), challenge)

    def _agreed(self, index: int, digest: bytes) -> bytes:
        return self._said(b"agreement", str(index).encode(), digest)

    def _said(self, *parts: bytes) -> bytes:
        """Say what a signature is for, so that it is good for nothing else."""
        context = b"fedtopics", self._proposal.fingerprint.encode(), self.run, *parts
        return b"".join(len(part).to_bytes(4, "big") + part for part in context)
