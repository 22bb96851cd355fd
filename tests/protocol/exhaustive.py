"""The smallest case in all ways: three members, the step of the key and one more, one kill.

All orders in which calls and answers arrive are tried, and in each of them a kill or a power cut of
one member, or a kill of the relay, at every place: between any two events, and between any two
writes of one event. What a killed process sent may arrive at any later time, or never.

Two things are checked: what every member accepts and says is right in each state, and from each
state the members can still reach the end.
"""

from __future__ import annotations

import copy
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from fedtopics.protocol import keys, masks
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Answer, Ask, Kind, Total, decode, encode
from fedtopics.protocol.relay import Relay
from tests.protocol.checks import ViolationError
from tests.protocol.disks import DiedError, Disk
from tests.protocol.three import NAMES, member_of

CASES: dict[str, list[tuple[str, Kind]]] = {
    "sum": [("group key", "call"), ("sum", "sum")],
    "call": [("group key", "call"), ("reply", "call")],
}
VECTORS = {name: np.array([i, -7 * i, 1 << 40]) for i, name in enumerate(NAMES, 1)}
NEVER = 1 << 30
Call = tuple[str, str, bytes]  # kind; to the relay, held or back; content


@dataclass
class Place:
    """A member's machine: its disk, and its process if that runs."""

    name: str
    disk: Disk
    member: Member | None = None
    process: int = 0  # how many there were
    step: int = 0  # of the program
    says: tuple[bytes, ...] = ()
    call: Call | None = None
    has_ended: bool = False
    sent: dict[tuple[int, str], bytes] = field(default_factory=dict)
    results: tuple[bytes, ...] = ()

    def copy(self) -> Place:
        new = copy.copy(self)
        new.disk = copy.copy(self.disk)
        new.sent = dict(self.sent)
        if self.member is not None:
            new.member = copy.copy(self.member)
            new.member._disk = new.disk
        return new

    def key(self) -> Any:
        m = self.member
        d = self.disk
        return (
            m and (m.phase, m.reason, encode(m.record), m.content, m.last.opened),
            d.record,
            d.content,
            d.totals,
            d.synced,
            d.checkpoint,
            self.process,
            self.step,
            self.says,
            self.call,
            self.has_ended,
            sorted(self.sent.items()),
            self.results,
        )


@dataclass
class State:
    """Everything at one time."""

    steps: list[tuple[str, Kind]]
    places: dict[str, Place]
    relay: Relay | None
    file: bytes = b""
    orphans: tuple[tuple[str, bytes], ...] = ()  # what killed processes sent
    kills: int = 1  # left
    budget: int = NEVER  # points until something dies

    def copy(self) -> State:
        new = copy.copy(self)
        new.places = {name: place.copy() for name, place in self.places.items()}
        if self.relay is not None:
            relay = new.relay = copy.copy(self.relay)
            relay._keep = new.keep
            relay._parts = dict(relay._parts)
            relay._bodies = dict(relay._bodies)
            relay.asks, relay.done = dict(relay.asks), set(relay.done)
            relay._late, relay._before = set(relay._late), dict(relay._before)
            relay._sum = None if relay._sum is None else relay._sum.copy()
        for place in new.places.values():
            place.disk.point = new.point
        return new

    def key(self) -> bytes:
        r = self.relay
        relay = (
            None
            if r is None
            else (
                sorted(r._parts.items()),
                r._list,
                sorted(r._bodies.items()),
                None if r._sum is None else r._sum.tobytes(),
                sorted(r.asks.items()),
                r.halted,
                sorted(r.done),
            )
        )
        places = [place.key() for place in self.places.values()]
        return digest_of_fields(repr((places, relay, self.file, self.orphans, self.kills)))[:16]

    def point(self) -> None:
        self.budget -= 1
        if self.budget < 0:
            raise DiedError

    def keep(self, content: bytes) -> None:
        self.point()
        self.file = content
        self.point()

    @property
    def is_done(self) -> bool:
        return all(place.has_ended for place in self.places.values())

    # What can happen

    def events(self) -> Iterator[tuple[str, Any]]:
        for name, place in self.places.items():
            if place.has_ended:
                continue
            if place.member is None:
                yield "boot", name
            elif place.call is None:
                yield "compute", name
            elif place.call[1] == "back":
                yield "reply", name
            elif place.call[1] == "to" and self.relay is not None:
                yield "arrive", name
        if self.relay is None:
            yield "start", ""
        else:
            for orphan in self.orphans:
                yield "orphan", orphan

    def victim(self, event: str, what: Any) -> str:
        return "" if event in ("arrive", "orphan", "start") else what

    def happen(self, event: str, what: Any) -> None:
        """Let something happen. DiedError if a process died meanwhile."""
        if event == "start":
            self.relay = Relay(NAMES, self.file, self.keep)
        elif event == "orphan":
            left = list(self.orphans)
            left.remove(what)
            self.orphans = tuple(left)
            assert self.relay is not None
            self.relay.say(*what)
            self.serve()
        else:
            getattr(self, event)(self.places[what])

    def kill(self, name: str, power: bool) -> None:
        """Kill a member's process, or the relay."""
        self.kills = self.kills - 1
        self.budget = NEVER
        if not name:
            self.relay = None
            for place in self.places.values():
                if place.call is not None and place.call[1] == "held":
                    place.call = place.call[0], "to", place.call[2]
            return
        place = self.places[name]
        if place.call is not None and place.call[:2] == ("say", "to"):
            self.orphans = (*self.orphans, (name, place.call[2]))
        if power:
            place.disk.totals = place.disk.synced
        place.member = None
        place.call = None
        place.says = ()

    # Members

    def boot(self, place: Place) -> None:
        record, _, entries = place.disk.load()
        opened_by_step = {entry.step: entry.opened for entry in entries}
        at, _ = place.disk.checkpoint
        name = place.name
        number = place.process
        place.process += 1
        for step in range(max(at, 1), record.step):
            self.check(place, step, opened_by_step.get(step, []))
        place.step = max(at, record.step)
        place.member = member_of(
            name, place.disk, lambda size: digest_of_fields(name, number)[:size]
        )

    def compute(self, place: Place) -> None:
        member = place.member
        assert member is not None
        if place.step == len(self.steps):
            member.finish()
            place.call = "ask", "to", member.question()
            return
        function, kind = self.steps[place.step]
        given = member.content if member.record.part else VECTORS[place.name].tobytes()
        self.act(place, member.give(function, kind, b"3 words", given))

    def act(self, place: Place, said: list[bytes]) -> None:
        """Take what a member says; go on with the next call."""
        member = place.member
        assert member is not None
        if member.phase == "stopped":
            raise ViolationError(f"stopped: {member.reason}")
        for content in said:
            kind = "part" if b"Part" in content[:8] else "body"
            place_of = member.record.step, kind
            if place.sent.setdefault(place_of, digest_of_fields(content)) != digest_of_fields(
                content
            ):
                raise ViolationError(f"two different messages: {kind} of {place.name}")
        place.says += tuple(said)
        place.call = None
        if member.phase == "compute":
            self.check(place, place.step, member.last.opened)
            place.step += 1
            member.save()
            place.disk.write_checkpoint(place.step, bytes(24))
        elif place.says:
            place.call = "say", "to", place.says[0]
        else:
            place.call = "ask", "to", member.question()

    def check(self, place: Place, step: int, opened: list[bytes]) -> None:
        """Compare what a step came to with what it has to come to."""
        true = [vector.tobytes() for vector in VECTORS.values()]
        if self.steps[step][1] == "sum":
            true = [np.sum(list(VECTORS.values()), axis=0).tobytes()]
        if opened != (true if step else []):
            raise ViolationError(f"{place.name} accepted a false total of step {step}")

    def reply(self, place: Place) -> None:
        assert place.call is not None
        assert place.member is not None
        kind, _, content = place.call
        member = place.member
        said = list[bytes]()
        if kind == "say":
            place.says = place.says[1:]
        elif kind == "fetch":
            said = member.open(content)
        elif member.phase == "done":
            place.has_ended = True
            place.member = None
            place.call = None
            return
        else:
            message = decode(content, Answer).message
            if isinstance(message, Total):
                place.call = "fetch", "to", member.record.list_digest
                return
            said = member.answer(message)
        self.act(place, said)

    # The relay

    def arrive(self, place: Place) -> None:
        assert place.call is not None
        assert self.relay is not None
        kind, _, content = place.call
        if kind == "say":
            self.relay.say(place.name, content)
            content = b""
        elif kind == "fetch":
            content = self.relay.fetch(content)
        place.call = kind, "held" if kind == "ask" else "back", content
        self.serve()

    def serve(self) -> None:
        """Answer the asks that can be answered."""
        assert self.relay is not None
        for name, place in self.places.items():
            if place.call is not None and place.call[1] == "held":
                answer = self.relay.ask(name, decode(place.call[2], Ask))
                if answer is not None:
                    place.call = "ask", "back", encode(answer)


def following(state: State) -> Iterator[State]:
    """Yield all states that can come next."""
    for event, what in state.events():
        points = 0
        while True:  # the first time to the end, then with a death at each point
            new = state.copy()
            new.budget = NEVER if not points else points - 1
            try:
                new.happen(event, what)
            except DiedError:
                victim = new.victim(event, what)
                for power in (False, True) if victim else (False,):
                    dead = new.copy()
                    dead.kill(victim, power)
                    yield dead
            else:
                if points:
                    break  # fewer points than this
                new.budget = NEVER
                yield new
            if not state.kills:
                break
            points += 1
    if state.kills:
        alive = [name for name, place in state.places.items() if place.member is not None]
        for name in [*alive, *([""] if state.relay is not None else [])]:
            for power in (False, True) if name else (False,):
                new = state.copy()
                new.kill(name, power)
                yield new


def explore(steps: list[tuple[str, Kind]], kills: int = 1) -> Counter[str]:
    """Reach all states. ViolationError if one is wrong, or cannot lead to the end."""
    first = State(steps, {name: Place(name, Disk()) for name in NAMES}, None, kills=kills)
    first = first.copy()
    numbers = {first.key(): 0}
    parents = defaultdict[int, list[int]](list)
    done = list[int]()
    stack = [(0, first)]
    count = Counter[str]()
    while stack:
        number, state = stack.pop()
        if state.is_done:
            done.append(number)
            continue
        for new in following(state):
            count["transitions"] += 1
            key = new.key()
            if key not in numbers:
                numbers[key] = len(numbers)
                stack.append((numbers[key], new))
                if len(numbers) % 20_000 == 0:
                    print(f"{len(numbers):,} states, {len(stack):,} to go on from", flush=True)
            parents[numbers[key]].append(number)
    reached = set(done)
    ways = list(done)
    while ways:
        for parent in parents[ways.pop()]:
            if parent not in reached:
                reached.add(parent)
                ways.append(parent)
    if len(reached) < len(numbers):
        raise ViolationError(f"{len(numbers) - len(reached):,} states lead to no end")
    count["states"] = len(numbers)
    count["ends"] = len(done)
    return count


@contextmanager
def cached() -> Iterator[None]:
    """Compute keys, masks and totals once."""
    real_mask = masks.mask

    @cache
    def again(
        group: bytes, private: bytes, name: str, others: Any, bound: bytes, whole: bytes
    ) -> bytes:
        return real_mask(group, private, name, dict(others), bound, np.frombuffer(whole, np.int64))

    def mask(
        group: bytes, private: bytes, name: str, others: Any, bound: bytes, whole: Any
    ) -> bytes:
        return again(group, private, name, tuple(others.items()), bound, whole.tobytes())

    with (
        patch.object(masks, "mask", mask),
        patch.object(masks, "unmask", cache(masks.unmask)),
        patch.object(keys, "public_key", cache(keys.public_key)),
        patch.object(keys, "shared", cache(keys.shared)),
    ):
        yield


def main() -> int:
    """Explore both cases; the exit status is 1 after a violation."""
    for name, steps in CASES.items():
        begin = time.monotonic()
        with cached():
            try:
                count = explore(steps)
            except ViolationError as error:
                print(f"{name}: {error}")
                return 1
        print(f"{name}: {dict(count)} in {time.monotonic() - begin:.0f} s", flush=True)
    return 0
