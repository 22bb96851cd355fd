"""Faults that the simulated world must find: each is one change to the real code, or to a disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
import numpy as np

from fedtopics.contract.payload import CountsByWord
from fedtopics.protocol import keys, masks, record, vocabulary
from fedtopics.protocol.exchange import MemberSteps
from fedtopics.protocol.keys import context_of, derive, digest_of_fields
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Ask, List, Part, decode
from fedtopics.protocol.record import Record
from fedtopics.protocol.relay import Relay
from fedtopics.transport.folders import Exchange, FolderLink, Sealed
from tests.protocol.disks import Disk

if TYPE_CHECKING:
    from tests.protocol.carried import Scene
    from tests.protocol.world import World


class RecordFirst(Disk):
    """Writes the record before the totals are durable."""

    def save(self, record: Record, content: bytes | None = None) -> None:
        # type: ignore[method-assign]
        durable = self.sync
        self.sync = lambda: None
        super().save(record, content)
        self.sync = durable  # type: ignore[method-assign]
        self.sync()


class RecordBeforeContent(Disk):
    """Writes the record before the vector or the reply that belongs to it."""

    def save(self, record: Record, content: bytes | None = None) -> None:
        super().save(record)
        if content is not None:
            self.content = content


class RecordNotSynced(Disk):
    """Loses the newest record when the power fails."""

    def __init__(self, point: Callable[[], None]) -> None:
        super().__init__(point)
        self.before = b""

    def save(self, record: Record, content: bytes | None = None) -> None:
        self.before = self.record
        super().save(record, content)

    def power_cut(self, r: random.Random) -> None:
        self.record = self.before
        super().power_cut(r)


class TotalsNotSynced(Disk):
    """Never syncs the totals."""

    def sync(self) -> None:
        return None


class CutFirst(Disk):
    """Cuts off the totals before the checkpoint is there."""

    def write_checkpoint(self, step: int, state: bytes) -> None:
        self.cut()
        self.point()
        self.checkpoint = step, state
        self.point()


class ListNotSaved(Disk):
    """Has no list: it was never written."""

    def save(self, record: Record, content: bytes | None = None) -> None:
        super().save(msgspec.structs.replace(record, parts=[]), content)


DISKS = {
    "record first": RecordFirst,
    "record before content": RecordBeforeContent,
    "record not synced": RecordNotSynced,
    "totals not synced": TotalsNotSynced,
    "totals cut before the checkpoint": CutFirst,
    "the list not saved": ListNotSaved,
}


# Each is called instead of a function of the real code, with the world and that function.


def _unbound(world: World, real: Any, self: Member) -> tuple[list[Part], bytes]:
    parts = [decode(part, Part) for part in self.record.parts]
    return parts, context_of(self.study, parts[0], self.names)


def _second_list(world: World, real: Any, self: Member, message: List) -> Any:
    if self.record.parts and self.record.parts != message.parts:
        self.record = msgspec.structs.replace(self.record, parts=[])
    return real(self, message)


def _no_transcript(world: World, real: Any, self: Member, part: Part, mine: Part) -> None:
    self._check_signature(part)


def _nothing(world: World, real: Any, *given: Any) -> None:
    return None


def _part_again(world: World, real: Any, self: Member, *step: Any) -> Any:
    self.record = msgspec.structs.replace(self.record, part=b"", parts=[])
    return real(self, *step)


def _computed_again(world: World, real: Any, self: Member, *step: Any) -> Any:
    if self.record.part and self.record.step:
        self.content = world.computed
    return real(self, *step)


def _early_reply(world: World, real: Any, self: Member, *step: Any) -> Any:
    said = real(self, *step)
    _, kind, _, content = step
    if kind == "call" and self.record.step and self.phase == "part":
        keys.seal(derive(self.record.group, "early", self.record.part), content)
    return said


def _bare_tag(world: World, real: Any, group: bytes, *given: Any) -> Any:
    *_, bound, whole = given
    return real(group, *given)[:-8] + masks.tag_of(group, bound, whole).to_bytes(8, "little")


def _no_tag(world: World, real: Any, group: bytes, bound: bytes, content: bytes) -> Any:
    words = np.frombuffer(content, "<u8")
    return (words[:-1] - masks.stream(derive(group, "pad", bound), len(words) - 1)).astype(np.int64)


def _plain_transcript(world: World, real: Any, group: bytes, *fields: Any) -> bytes:
    return digest_of_fields(*fields)


def _not_hedged(world: World, real: Any, fresh: bytes, context: bytes, content: bytes) -> Any:
    return real(fresh, b"", b"")


def _sticky_stop(world: World, real: Any, self: Relay, name: str, ask: Ask) -> Any:
    self._stopped.add(ask.process)
    return real(self, name, ask)


def _dropped_ask(world: World, real: Any, self: Relay, name: str, ask: Ask) -> Any:
    """Take an ask with the same content as a copy that was sent twice."""
    if world.asks.get(name) == ask and self.asks.get(name) is not ask:
        self.asks[name] = ask
        return None
    world.asks[name] = ask
    return real(self, name, ask)


def _total_forgotten(world: World, real: Any, self: Relay, part: Part, content: bytes) -> None:
    real(self, part, content)
    if self.last is not None and self.step > self.last.step:
        self.last = None


def _all_words(world: World, real: Any, own: CountsByWord, *table: Any) -> list[str]:
    return own.names


# Of messages in files: see `carried`.


def _said_first(scene: Scene, real: Any, self: MemberSteps, *given: Any) -> None:
    self._say([self.member.record.part])
    real(self, *given)


def _early_key(scene: Scene, real: Any, fresh: bytes, context: bytes, content: bytes) -> Any:
    """Return a key that is in a member's folder before the vector: the folder decides it."""
    return real(scene.actor.encode(), context, b"")


def _forgetful_link(scene: Scene, real: Any, self: FolderLink, *given: Any) -> None:
    real(self, *given)
    self._messages = []


def _no_total(scene: Scene, real: Any, self: Exchange, sealed: Sealed, *given: Any) -> None:
    real(self, msgspec.structs.replace(sealed, total=b""), *given)


def _oldest(scene: Scene, real: Any, self: Exchange, path: Path) -> Sealed:
    return msgspec.structs.replace(sealed := real(self, path), number=-sealed.number)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "streams not bound to the list": (Member, "_bound", _unbound),
    "a second list": (Member, "_take_list", _second_list),
    "transcripts not compared": (Member, "_check", _no_transcript),
    "signatures not checked": (Member, "_check_signature", _nothing),
    "another part after a restart": (Member, "give", _part_again),
    "computed again after a restart": (Member, "give", _computed_again),
    "a reply with the part": (Member, "give", _early_reply),
    "a bare tag": (masks, "mask", _bare_tag),
    "no tag": (masks, "unmask", _no_tag),
    "a transcript without the key": (record, "next_transcript", _plain_transcript),
    "a key that is not hedged": (keys, "one_time", _not_hedged),
    "a stop for later processes": (Relay, "ask", _sticky_stop),
    "a dropped ask": (Relay, "ask", _dropped_ask),
    "a total forgotten": (Relay, "_take_part", _total_forgotten),
    "a checkpoint before the record": (Member, "save", _nothing),
    "words of one member listed": (vocabulary, "words_to_list", _all_words),
    "marks not compared": (vocabulary, "check_table", _nothing),
    "a part before its approval": (MemberSteps, "_wait_at", _said_first),
    "a key not bound to its vector": (keys, "one_time", _not_hedged),
    "a key drawn before its vector": (keys, "one_time", _early_key),
    "a link that forgets": (FolderLink, "__init__", _forgetful_link),
    "a file without the total": (Exchange, "write", _no_total),
    "older files": (Exchange, "_read", _oldest),
}


def mutated(world: World | Scene) -> Any:
    """Put a world's mutant in the place of the real function, as a context."""
    owner, name, fault = MUTANTS[world.mutant]
    real = getattr(owner, name)
    return patch.object(owner, name, lambda *given: fault(world, real, *given))
