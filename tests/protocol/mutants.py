"""Faults that the simulated world must find: each is one change to the real code, or to a disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import msgspec
import numpy as np

from fedtopics.protocol import keys, masks, record
from fedtopics.protocol.keys import context_of, derive, digest
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Answer, Ask, List, Part, decode
from fedtopics.protocol.record import Record
from fedtopics.protocol.relay import Relay
from tests.protocol.disks import Disk

if TYPE_CHECKING:
    from tests.protocol.world import World


class RecordFirst(Disk):
    """Writes the record before the totals are durable."""

    def save(self, record: Record, content: bytes | None = None) -> None:
        durable, self.sync = self.sync, lambda: None  # type: ignore[method-assign]
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
        self.before, before = self.record, self.record
        super().save(record, content)
        self.before = before

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
    "record first": RecordFirst, "record before content": RecordBeforeContent,
    "record not synced": RecordNotSynced, "totals not synced": TotalsNotSynced,
    "totals cut before the checkpoint": CutFirst, "the list not saved": ListNotSaved,
}  # fmt: skip


def _unbound(world: World, stack: ExitStack) -> None:
    def bound(self: Member) -> tuple[list[Part], bytes]:
        parts = [decode(part, Part) for part in self.record.parts]
        return parts, context_of(self.study, parts[0], self.names)

    stack.enter_context(patch.object(Member, "_bound", bound))


def _second_list(world: World, stack: ExitStack) -> None:
    real = Member._take_list

    def take(self: Member, message: List) -> list[bytes]:
        if self.record.parts and self.record.parts != message.parts:
            self.record = msgspec.structs.replace(self.record, parts=[])
        return real(self, message)

    stack.enter_context(patch.object(Member, "_take_list", take))


def _no_transcript(world: World, stack: ExitStack) -> None:
    def check(self: Member, part: Part, mine: Part) -> None:
        self._check_signature(part)

    stack.enter_context(patch.object(Member, "_check", check))


def _no_signature(world: World, stack: ExitStack) -> None:
    stack.enter_context(patch.object(Member, "_check_signature", lambda self, part: None))


def _part_again(world: World, stack: ExitStack) -> None:
    real = Member.give

    def give(self: Member, *step: Any) -> list[bytes]:
        self.record = msgspec.structs.replace(self.record, part=b"", parts=[])
        return real(self, *step)

    stack.enter_context(patch.object(Member, "give", give))


def _computed_again(world: World, stack: ExitStack) -> None:
    real = Member.give

    def give(self: Member, *step: Any) -> list[bytes]:
        if self.record.part and self.record.step:
            self.content = world.computed
        return real(self, *step)

    stack.enter_context(patch.object(Member, "give", give))


def _early_reply(world: World, stack: ExitStack) -> None:
    real = Member.give

    def give(self: Member, function: str, kind: Any, layout: bytes, content: bytes) -> list[bytes]:
        said = real(self, function, kind, layout, content)
        if kind == "call" and self.record.step and self.phase == "part":
            keys.seal(derive(self.record.group, "early", self.record.part), content)
        return said

    stack.enter_context(patch.object(Member, "give", give))


def _bare_tag(world: World, stack: ExitStack) -> None:
    real = masks.mask

    def mask(group: bytes, private: bytes, name: str, others: Any, bound: bytes, whole: Any):
        words = real(group, private, name, others, bound, whole)
        return words[:-8] + masks.tag_of(group, bound, whole).to_bytes(8, "little")

    stack.enter_context(patch.object(masks, "mask", mask))


def _no_tag(world: World, stack: ExitStack) -> None:
    def unmask(group: bytes, bound: bytes, content: bytes) -> Any:
        words = np.frombuffer(content, "<u8")
        pad = masks.stream(derive(group, "pad", bound), len(words) - 1)
        return (words[:-1] - pad).astype(np.int64)

    stack.enter_context(patch.object(masks, "unmask", unmask))


def _plain_transcript(world: World, stack: ExitStack) -> None:
    def following(group: bytes, *fields: Any) -> bytes:
        return digest(*fields)

    stack.enter_context(patch.object(record, "next_transcript", following))


def _key_not_hedged(world: World, stack: ExitStack) -> None:
    real = keys.one_time
    stack.enter_context(
        patch.object(keys, "one_time", lambda fresh, context, content: real(fresh, b"", b""))
    )


def _sticky_stop(world: World, stack: ExitStack) -> None:
    real = Relay.ask

    def ask(self: Relay, name: str, ask: Ask) -> Answer | None:
        self._stopped.add(ask.process)
        return real(self, name, ask)

    stack.enter_context(patch.object(Relay, "ask", ask))


def _dropped_ask(world: World, stack: ExitStack) -> None:
    real, seen = Relay.ask, dict[str, Ask]()

    def ask(self: Relay, name: str, ask: Ask) -> Answer | None:
        """Take an ask with the same content as a copy that was sent twice."""
        if seen.get(name) == ask and self.asks.get(name) is not ask:
            self.asks[name] = ask
            return None
        seen[name] = ask
        return real(self, name, ask)

    stack.enter_context(patch.object(Relay, "ask", ask))


def _total_forgotten(world: World, stack: ExitStack) -> None:
    real = Relay._take_part

    def take(self: Relay, part: Part, content: bytes) -> None:
        real(self, part, content)
        if self.last is not None and self.step > self.last.step:
            self.last = None

    stack.enter_context(patch.object(Relay, "_take_part", take))


def _relay_not_synced(world: World, stack: ExitStack) -> None:
    world.host.keeps_durably = False


def _checkpoint_early(world: World, stack: ExitStack) -> None:
    stack.enter_context(patch.object(Member, "save", lambda self: None))


MUTANTS: dict[str, Callable[[World, ExitStack], None]] = {
    "streams not bound to the list": _unbound, "a second list": _second_list,
    "transcripts not compared": _no_transcript, "signatures not checked": _no_signature,
    "another part after a restart": _part_again, "computed again after a restart": _computed_again,
    "a reply with the part": _early_reply, "a bare tag": _bare_tag, "no tag": _no_tag,
    "a transcript without the key": _plain_transcript, "a key that is not hedged": _key_not_hedged,
    "a stop for later processes": _sticky_stop, "a dropped ask": _dropped_ask,
    "a total forgotten": _total_forgotten, "the relay's file not synced": _relay_not_synced,
    "a checkpoint before the record": _checkpoint_early,
}  # fmt: skip
