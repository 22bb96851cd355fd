"""A malicious relay: it remembers everything, lies at random, and may have members with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from fedtopics.protocol.keys import (
    context_of,
    derive,
    digest_of_fields,
    digest_of_list,
    framed,
    public_key,
    seal,
)
from fedtopics.protocol.masks import P, Words, add, stream, tag_of
from fedtopics.protocol.messages import (
    Answer,
    Ask,
    Body,
    List,
    Part,
    Stop,
    Total,
    Want,
    decode,
    encode,
)
from fedtopics.protocol.relay import Relay

if TYPE_CHECKING:
    from tests.protocol.world import World

STUDY = b"study"
KINDS = ["none", "list", "list", "list", "list", "total", "old list", "want", "stop"]
CHANGES = [1, 1 << 32, 1 << 60, 1 << 63, (1 << 64) - 1, P, (1 << 64) - P]


class Memory:
    """What a relay has seen, through all its restarts, and the group keys of its accomplices."""

    def __init__(self) -> None:
        self.parts: list[tuple[bytes, Part]] = []
        self.bodies: list[Body] = []
        self.totals: list[bytes] = []
        self.lists: list[list[bytes]] = []
        self.groups: dict[tuple[int, bytes], bytes] = {}  # by step and transcript


class Malicious(Relay):
    """A `Relay` that lies in some of its answers."""

    def __init__(self, world: World, file: bytes, keep: Callable[[bytes], None]) -> None:
        super().__init__(world.names, file, keep)
        self.world = world
        self.memory = world.memory
        self.r = world.r

    def say(self, name: str, content: bytes) -> None:
        message = decode(content, Part | Body | Stop)  # type: ignore[arg-type]
        if isinstance(message, Part):
            self.memory.parts.append((content, message))
        elif isinstance(message, Body):
            self.memory.bodies.append(message)
        super().say(name, content)
        if self._list and self._list not in self.memory.lists:
            self.memory.lists.append(self._list)
        if self.last is not None and self.last.total not in self.memory.totals[-1:]:
            self.memory.totals.append(self.last.total)

    def ask(self, name: str, ask: Ask) -> Answer | None:
        honest = super().ask(name, ask)
        r = self.r
        if ask.phase == "done" or r.random() > self.world.lies:
            return honest
        kind = r.choice(KINDS)
        if kind == "list":
            mixed = self._mixed(name, ask.step)
            return Answer(List(mixed)) if mixed else honest
        if kind == "total" and ask.list:
            return Answer(Total(ask.list))
        if kind == "old list" and self.memory.lists:
            return Answer(List(r.choice(self.memory.lists[-6:])))
        if kind == "want":
            return Answer(Want(r.choice(["part", "body"])))
        if kind == "stop" and r.random() < 0.02:
            stop = Stop(
                name=r.choice(self.names),
                process=ask.process,
                run=b"",
                step=ask.step,
                reason="forged",
                signature=bytes(32),
            )
            return Answer(stop)
        return None if kind == "none" else honest

    def changed(self, content: bytes) -> bytes:
        """Turn over one bit of an answer, now and then."""
        if self.r.random() > self.world.lies / 4:
            return content
        raw = bytearray(content)
        raw[self.r.randrange(len(raw))] ^= 1 << self.r.randrange(8)
        return bytes(raw)

    # Lists

    def _mixed(self, name: str, step: int) -> list[bytes] | None:
        """Make a list of parts that it remembers, and of parts that it or an accomplice makes."""
        parts = self.memory.parts
        r = self.r
        mixed = []
        own_parts = [part for _, part in parts if part.name == name and part.step == step]
        if not own_parts:
            return None
        for other in self.names:
            options = [raw for raw, part in parts if part.name == other and part.step == step]
            options = options or [raw for raw, part in parts if part.name == other]
            if other in self.world.accomplices and r.random() < 0.6:
                mixed.append(self._made(own_parts[-1], other))
            elif options and (other == name or r.random() > 0.05):
                mixed.append(r.choice(options[-3:]))
            elif other == name:
                return None
            else:  # no signature of an honest member fits it
                mixed.append(self._made(own_parts[-1], other, bytes(32)))
        self.memory.lists.append(mixed)
        return mixed

    def _made(self, like: Part, name: str, signature: bytes = b"") -> bytes:
        """Make a part with a key of the relay."""
        key = public_key(self.r.randbytes(32))
        context = context_of(STUDY, like, self.names)
        signature = signature or self._sign(name, "part", context, name, key)
        return encode(msgspec.structs.replace(like, name=name, key=key, signature=signature))

    def _sign(self, name: str, *fields: bytes | str | int) -> bytes:
        return self.world.sign(name, framed("fedtopics 3", STUDY, *fields))

    # Totals

    def fetch(self, list_: bytes) -> bytes:
        honest = super().fetch(list_)
        r = self.r
        memory = self.memory
        if r.random() > 2 * self.world.lies:
            return honest
        kind = r.choice(["changed", "changed", "forged", "forged", "old", "subset", "none"])
        if kind == "changed" and len(honest) == 32:
            words = np.frombuffer(honest, "<u8").copy()
            place = r.randrange(4)
            words[place : place + 1] += np.uint64(r.choice(CHANGES))
            return words.tobytes()
        if kind == "changed":
            return self.changed(honest) if honest else b""
        if kind == "old" and memory.totals:
            return r.choice(memory.totals[-4:])
        if kind == "subset":
            vectors = [body.content for body in memory.bodies if len(body.content) == 32]
            total: Words | None = None
            for content in r.sample(vectors, min(len(self.names), len(vectors))):
                total = add(total, content)
            return honest if total is None else total.tobytes()
        if kind == "forged":
            for parts in memory.lists[::-1]:
                if digest_of_list(parts) == list_:
                    return self._forged(parts) or honest
        return b"" if kind == "none" else honest

    def _forged(self, parts: list[bytes]) -> bytes | None:
        """Make up a total, with a right tag, with the group key of an accomplice."""
        part = decode(parts[0], Part)
        r = self.r
        group = self.memory.groups.get((part.step, part.transcript))
        if not group or part.step == 0:
            return None
        bound = digest_of_fields(context_of(STUDY, part, self.names), digest_of_list(parts))
        if part.kind == "sum":
            whole = np.array([r.randint(-(2**40), 2**40) for _ in range(3)])
            tag = tag_of(group, bound, whole) + int(stream(derive(group, "tag pad", bound), 1)[0])
            words = whole.astype("<u8") + stream(derive(group, "pad", bound), 3)
            return words.tobytes() + (tag % P).to_bytes(8, "little")
        replies = {b.name: b.content for b in self.memory.bodies if b.list == digest_of_list(parts)}
        for name in self.world.accomplices:
            if name not in replies or r.random() < 0.7:
                sealed = seal(derive(group, "call", bound, name), r.randbytes(24))
                replies[name] = encode((sealed, self._sign(name, "reply", bound, name, sealed)))
        return (
            encode([replies[name] for name in self.names])
            if len(replies) == len(self.names)
            else None
        )
