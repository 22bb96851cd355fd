"""Three members, and a relay that does whatever a test wants."""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable

import numpy as np

from fedtopics.protocol import masks
from fedtopics.protocol.keys import framed
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Body, Kind, List, Stop, decode, encode
from tests.protocol.disks import Disk

NAMES = ["ann", "bob", "cat"]
STUDY = b"study"
NOTHING = dict.fromkeys(NAMES, b"")
NUMBERS = {name: np.arange(3) + i for i, name in enumerate(NAMES)}
VECTORS = {name: whole.tobytes() for name, whole in NUMBERS.items()}
Total = Callable[["Run", str, dict[str, bytes]], bytes]  # what the relay gives to a member


def sign(name: str, content: bytes) -> bytes:
    return hmac.digest(name.encode(), content, "sha256")


def signed(name: str, *fields: bytes | str | int) -> bytes:
    return sign(name, framed("fedtopics 3", STUDY, *fields))


def member_of(
    name: str, disk: Disk | None = None, random: Callable[[int], bytes] = os.urandom
) -> Member:
    """A member that begins, or goes on with what its disk has."""
    disk = disk or Disk()
    record, content, _ = disk.load()
    return Member(
        name=name,
        study=STUDY,
        names=NAMES,
        sign=lambda c: sign(name, c),
        verify=lambda n, s, c: s == sign(n, c),
        random=random,
        disk=disk,
        record=record,
        content=content,
    )


def honest(run: Run, name: str, bodies: dict[str, bytes]) -> bytes:
    if run.kind == "call":
        return encode([bodies[n] for n in NAMES])
    total = None
    for content in bodies.values():
        total = masks.add(total, content)
    assert total is not None
    return total.tobytes()


class Run:
    """Three members, and a relay that does what a test wants."""

    def __init__(self) -> None:
        self.members = {name: member_of(name) for name in NAMES}
        self.kind: Kind = "call"
        self.parts: dict[str, bytes] = {}
        self.bodies: dict[str, bytes] = {}
        self.total = b""
        self.step("group key", "call", NOTHING)

    def give(self, function: str, kind: Kind, contents: dict[str, bytes]) -> None:
        self.kind = kind
        for name, member in self.members.items():
            (self.parts[name],) = member.give(function, kind, b"3", contents[name])

    def show_list(self, **changed: bytes) -> None:
        """Give the list to all, with other parts; keep the bodies of those who go on."""
        self.bodies = {}
        parts = [{**self.parts, **changed}[name] for name in NAMES]
        for name, member in self.members.items():
            (said,) = member.answer(List(parts))
            message: Body | Stop = decode(said, Body | Stop)  # type: ignore[arg-type]
            if isinstance(message, Body):
                self.bodies[name] = message.content

    def step(
        self, function: str, kind: Kind, contents: dict[str, bytes], total: Total = honest
    ) -> dict[str, list[bytes]]:
        self.give(function, kind, contents)
        self.show_list()
        if len(self.bodies) < len(NAMES):
            return {}
        for name, member in self.members.items():
            self.total = total(self, name, dict(self.bodies))
            member.open(self.total)
        return {n: m.last.opened for n, m in self.members.items() if m.phase == "compute"}

    def reasons(self) -> set[str]:
        return {member.reason for member in self.members.values()}
