"""States of the program: that all have the same one, and one for who was away too long.

Totals are what all agree on; each participant's state follows from them. Every so many rounds the
participants sign the digest of theirs. Where processors differ in the last bits, most decide. A
state that most have signed stands in for decisions that nobody keeps any more.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np

from fedtopics.engines.messages import Reply
from fedtopics.engines.node import Node
from fedtopics.engines.values import as_type, size_of
from fedtopics.errors import FederationError
from fedtopics.methods.core.events import StatusChange
from fedtopics.methods.core.interfaces import Checkpoint

EVERY = 50  # rounds between two comparisons
PATIENCE = 10.0  # seconds that the adder waits for the states of those who are there
TOLERANCE = 1e-4  # of an array's largest number, by which the same state may differ


class Said(TypedDict):
    """What a participant says of its state; the state itself if that was granted."""

    digest: bytes
    signature: bytes
    state: NotRequired[dict[str, Any]]


class Written(TypedDict):
    """A state as plain data."""

    round: int
    arrays: dict[str, np.ndarray]
    numbers: dict[str, float]


def digest_of(state: Checkpoint, kept: bytes, turn: int) -> bytes:
    """Digest a state and what was kept of the agreement; names, types and shapes included.

    The `turn` as well: given for that of a later one, an old state would have clients answer again
    what they have answered.
    """
    content = hashlib.sha256(kept)
    numbers = dict(sorted(state.numbers.items()))
    content.update(json.dumps([state.round, turn, numbers]).encode())
    for name, array in sorted(state.arrays.items()):
        content.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        content.update(np.ascontiguousarray(array).tobytes())
    return content.digest()


def majority(node: Node) -> int:
    """Return how many participants are most of them."""
    return len(node.members) // 2 + 1


@dataclass
class Comparison:
    """The states of all who are there, as the adder collects them.

    `own` is the adder's: its state, and its digest. A server signs nothing.
    """

    node: Node
    index: int
    own: tuple[Checkpoint, bytes]
    signature: bytes
    digests: dict[str, bytes] = field(default_factory=dict)
    signatures: dict[str, bytes] = field(default_factory=dict)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def decide(self) -> dict[str, Any]:
        """Return the digest that most have, who signed it, and the state if some have another."""
        own = self.node.own
        if own in self.node.members:
            self.digests[own], self.signatures[own] = self.own[1], self.signature
        self._collect(lambda: self._linked() <= self.digests.keys())
        ranking = Counter(self.digests.values()).most_common()
        chosen = ranking[0][0] if ranking else self.own[1]
        signed = {n: s for n, s in self.signatures.items() if self.digests[n] == chosen}
        decided = {
            "index": self.index, "digest": chosen, "signatures": signed, "state": {},
            "certificates": self.node.introduction.certificates(signed),
        }  # fmt: skip
        if len(ranking) > 1 or chosen != self.own[1]:
            decided["state"] = self._state(chosen)
        return decided

    def _state(self, chosen: bytes) -> dict[str, Any]:
        """Return the state of a digest, one's own or that of who has it."""
        if chosen == self.own[1]:
            return written(self.own[0])
        holder = min(name for name, digest in self.digests.items() if digest == chosen)
        self.node.grant(holder, self.index, size_of(written(self.own[0])))
        self._collect(lambda: holder in self.states)
        return self.states.get(holder, {})

    def _linked(self) -> set[str]:
        members = self.node.members.values()
        return {m.name for m in members if m.link and not m.excluded} - {self.node.own}

    def _collect(self, enough: Any) -> None:
        ends = time.monotonic() + PATIENCE
        while not enough() and (left := ends - time.monotonic()) > 0:
            name, what = self.node.heard(min(left, 1.0))
            if isinstance(what, StatusChange):  # or nobody would hear of who is lost just now
                self.node.notify(what)
            if not isinstance(what, Reply) or what.index != self.index:
                continue
            try:
                said = as_type(what.reply, Said)
            except FederationError:
                continue
            digest, signature = said["digest"], said["signature"]
            if self.node.introduction.has_signed_state(name, digest, signature):
                self.digests[name], self.signatures[name] = digest, signature
            if "state" in said:
                self.states[name] = said["state"]


def written(state: Checkpoint) -> dict[str, Any]:
    """Write a state as plain data."""
    arrays = {name: np.asarray(array) for name, array in state.arrays.items()}
    return {"round": state.round, "arrays": arrays, "numbers": dict(state.numbers)}


def read(plain: Any) -> Checkpoint:
    """Undo `written`; a `FederationError` if it is none."""
    said: Written = as_type(plain, Written)
    arrays = {name: np.array(array) for name, array in said["arrays"].items()}
    return Checkpoint(said["round"], arrays, said["numbers"])


def is_near(mine: Checkpoint, theirs: Checkpoint) -> bool:
    """Whether two states differ by no more than processors do."""
    if mine.round != theirs.round or mine.arrays.keys() != theirs.arrays.keys():
        return False
    for name, array in mine.arrays.items():
        own, other = np.asarray(array), np.asarray(theirs.arrays[name])
        if own.shape != other.shape or own.dtype != other.dtype:
            return False
        if own.size and own.dtype.kind == "f":
            most = float(np.abs(own).max())
            if not np.abs(own - other).max() <= TOLERANCE * most:
                return False
        elif not np.array_equal(own, other):
            return False
    return True
