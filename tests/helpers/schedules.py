"""A network of replicas in simulated time, all of whose faults are drawn from a seed.

Connections are streams, one a pair of participants of whom at least one has an address: what is
sent arrives in order, after a delay, or not at all once the connection broke. A rough schedule
loses, repeats and swaps single messages besides. Participants crash (before, between or after the
messages that they were about to send) and come back with their log, or, in some schedules, with
less than they had said they have; they are stopped for a while; their clocks are off and run at
different rates; networks part and heal.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fedtopics.engines.feeds import Settings
from fedtopics.engines.log import Entry, Log
from fedtopics.engines.log_messages import Message, State
from fedtopics.engines.replica import Replica

SETTINGS = Settings(beat=1.0, patience=3.0, grace=0.5, stagger=0.7, window=4, window_bytes=64)
FAULTS_END = 14.0  # seconds
PATIENCE = 60.0  # seconds after which the network, healed, has to have committed
ORIGIN = b"study and run"


class ViolationError(AssertionError):
    """What must never happen happened."""


class ForgetfulLog(Log):
    """A log that knows what it was after each of its changes."""

    def __init__(self, origin: bytes) -> None:
        super().__init__(origin)
        self.past: list[tuple[int, int, int, list[Entry]]] = [(0, 0, 0, [])]

    def note(self) -> None:
        self.past.append((self.view, self.normal, self.committed, list(self._entries)))

    def append(self, entries: Sequence[Entry]) -> None:
        super().append(entries)
        self.note()

    def truncate(self, after: int) -> None:
        super().truncate(after)
        self.note()

    def keep(self, view: int, normal: int, doubtful: bool) -> None:
        super().keep(view, normal, doubtful)
        self.note()

    def earlier(self, random: Random) -> ForgetfulLog:
        """Return the log as it was at a time drawn; empty if it has forgotten entries."""
        view, normal, committed, entries = self.past[0]
        if self.base == 0 and random.random() < 0.7:
            view, normal, committed, entries = random.choice(self.past[-8:])
        log = ForgetfulLog(ORIGIN)
        log.append(entries)
        log.committed = committed
        log.keep(view, normal, doubtful=True)
        return log


class Node:
    """A participant: its log outlives its replica."""

    __slots__ = (
        "doomed",
        "forgetful",
        "incarnation",
        "led",
        "log",
        "name",
        "offset",
        "rate",
        "replica",
        "seen",
        "step",
        "stopped",
        "up",
    )
    replica: Replica

    def __init__(self, name: str, random: Random, log: Log) -> None:
        self.name = name
        self.log = log
        self.up = False
        self.doomed = False
        self.forgetful = False  # lost some of its log, and has not recovered
        self.stopped = 0.0
        self.incarnation = 0
        self.offset = random.uniform(0, 7200)
        self.rate = random.uniform(0.8, 1.25)
        self.step = random.uniform(0.4, 0.5)
        self.seen = 0  # entries whose being committed was checked
        self.led = -1  # the last view in which its being the adder was checked

    def now(self, time: float) -> float:
        return self.offset + self.rate * time


class Link:
    """A connection of a pair; `number` differs from that of one before."""

    __slots__ = ("blocked", "delay", "last", "muted", "number", "up")

    def __init__(self, delay: float) -> None:
        self.up = False
        self.number = 0
        self.delay = delay
        self.last: dict[str, float] = {}  # when the last message to one of them arrives
        self.blocked = 0  # faults that keep it from coming up
        self.muted = ""  # to whom nothing arrives, though the connection stands


class Schedule:
    """One run of a few participants through the faults of a seed."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)  # noqa: S311
        size = random.choice((2, 3, 3, 3, 4, 5, 5, 5, 6, 7))
        self.voters = [f"p{number}" for number in range(size)]
        self.can_add = self.voters
        if size > 2 and random.random() < 0.4:
            self.can_add = random.sample(self.voters, random.randint(size // 2 + 1, size))
        self.rough = self.rough_drawn = random.random() < 0.25
        self.lossy = random.random() < 0.25
        self.forgets = random.random() < 0.3
        self.learner = random.random() < 0.15
        self.time = 0.0
        self.truth = [Log(ORIGIN).digest(0)]  # the digest at each committed index
        self.decided = [-1]  # the view in which it was committed
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.number = 0
        self.steps = 0
        self.faults: Counter[str] = Counter()
        self.healed = False
        names = [*self.voters, "learner"] if self.learner else self.voters
        log = ForgetfulLog if self.lossy else Log
        self.nodes = {name: Node(name, random, log(ORIGIN)) for name in names}
        for node in self.nodes.values():  # on disk a log may have been there before
            node.log.doubtful = not self.lossy  # who comes late counts as one that forgot
        delay = random.choice((0.001, 0.02, 0.2))
        self.links: dict[frozenset[str], Link] = {}
        self.around: dict[str, list[tuple[str, Link]]] = {name: [] for name in names}
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                if one in self.can_add or other in self.can_add:
                    link = Link(delay * random.uniform(0.5, 2))
                    self.links[frozenset((one, other))] = link
                    self.around[one].append((other, link))
                    self.around[other].append((one, link))
        for name in names:
            self.at(random.uniform(0, 0.1), self.begin, name)
        self.draw()

    # What happens when.

    def at(self, time: float, what: Callable[..., None], *given: Any) -> None:
        self.number += 1
        heapq.heappush(self.events, (time, self.number, what, given))

    def draw(self) -> None:
        random = self.random
        if random.random() < 0.5:
            for _ in range(random.randint(2, 6)):
                self.at(random.uniform(0.2, FAULTS_END), self.propose, random.randint(1, 3))
            for _ in range(random.randint(1, 6)):
                kinds = ("crash", "adder", "part", "cut", "stop", "mute")
                start = random.uniform(0.2, FAULTS_END - 1)
                self.draw_fault(random.choice(kinds), start, random.choice((0.3, 2.0, 6.0)))
        else:  # one adder after the other is lost while it adds
            start = random.uniform(0.3, 1.5)
            while start < FAULTS_END - 2:
                self.at(start, self.propose, random.randint(1, 2))
                lost = start + random.choice((0.0, 0.0005, 0.002, 0.02, 0.2))
                kind = random.choice(("adder", "adder", "part", "part", "mute", "stop"))
                self.draw_fault(kind, lost, random.choice((1.0, 2.5, 6.0)), "")
                start += random.uniform(1.5, 3.5)
        self.at(FAULTS_END, self.heal)

    def draw_fault(self, kind: str, start: float, length: float, name: str | None = None) -> None:
        """Draw a fault of a kind; of a participant drawn, or of the adder if the name is empty."""
        random = self.random
        self.faults[kind] += 1
        end = min(FAULTS_END, start + length * random.uniform(0.5, 2))
        if name is None:
            name = random.choice(list(self.nodes))
        if kind in ("crash", "adder"):
            self.at(start, self.doom, name if kind == "crash" else "", end)
        elif kind == "stop":
            self.at(start, self.stop, random.choice((name, "")), end)
        elif kind == "part":
            side = set(random.sample(list(self.nodes), random.randint(1, len(self.nodes) - 1)))
            links = [link for pair, link in self.links.items() if len(pair & side) == 1]
            self.at(start, self.block, links)
            self.at(end, self.unblock, links)
        elif kind == "cut":
            links = [random.choice(list(self.links.values()))]
            self.at(start, self.block, links)
            self.at(end, self.unblock, links)
        else:
            link = random.choice(list(self.links.values()))
            self.at(start, self.mute, link, random.choice(list(self.nodes)))
            self.at(end, self.mute, link, "")

    def run(self) -> None:
        """Go through all events; raise ViolationError."""
        events = self.events
        while events:
            self.time, _, what, given = heapq.heappop(events)
            self.steps += 1
            what(*given)

    # Faults.

    def adder(self) -> str:
        adders = [node for node in self.nodes.values() if node.up and node.replica.is_adder]
        return max(adders, key=lambda node: node.log.view).name if adders else self.voters[0]

    def begin(self, name: str) -> None:
        node = self.nodes[name]
        node.up, node.doomed = True, False
        node.incarnation += 1
        node.seen = min(node.seen, node.log.committed)
        node.replica = Replica(
            name,
            self.voters,
            ["learner"] if self.learner else [],
            node.log,
            SETTINGS,
            can_add=self.can_add,
            snapshot=lambda: State(
                node.log.committed, node.log.digest(node.log.committed), b"state"
            ),
            install=lambda state: True,
            recovering=node.forgetful,
            nonce=node.incarnation,
            now=node.now(self.time),
        )
        self.at(self.time + self.random.uniform(0, 0.5), self.tick, name, node.incarnation)
        for other, link in self.around[name]:
            self.at(self.time + self.random.uniform(0.001, 0.3), self.connect, name, other, link)

    def doom(self, name: str, end: float) -> None:
        node = self.nodes[name or self.adder()]
        if node.up and not self.healed:
            node.doomed = True
            node.stopped = 0.0
            self.at(end, self.rise, node.name, node.incarnation)

    def crash(self, node: Node) -> None:
        node.up = node.doomed = False
        for other, link in self.around[node.name]:
            self.sever(link, node.name, other)
        forgetful = sum(each.forgetful for each in self.nodes.values())
        most = len(self.voters) - len(self.voters) // 2 - 1
        if self.lossy and node.name in self.voters and (node.forgetful or forgetful < most):
            node.forgetful = True
            assert isinstance(node.log, ForgetfulLog)
            node.log, node.seen, node.led = node.log.earlier(self.random), 0, -1

    def rise(self, name: str, incarnation: int) -> None:
        node = self.nodes[name]
        if node.incarnation == incarnation:
            if node.up:  # nothing happened to it in the meantime
                self.crash(node)
            self.begin(name)

    def stop(self, name: str, end: float) -> None:
        node = self.nodes[name or self.adder()]
        if not self.healed and not node.doomed:
            node.stopped = max(node.stopped, end)

    def block(self, links: list[Link]) -> None:
        for pair, link in self.links.items():
            if link in links:
                link.blocked += 1
                self.sever(link, *sorted(pair))

    def unblock(self, links: list[Link]) -> None:
        for pair, link in self.links.items():
            if link in links:
                link.blocked = max(0, link.blocked - 1)
                one, other = sorted(pair)
                self.connect(one, other, link)

    def mute(self, link: Link, name: str) -> None:
        link.muted = name

    def heal(self) -> None:
        self.healed = True
        self.rough = False
        for link in self.links.values():
            link.muted = ""
            link.blocked = 0
        for node in self.nodes.values():
            if not node.up or node.doomed:
                self.rise(node.name, node.incarnation)
            node.stopped = 0.0
        for pair, link in self.links.items():
            if link.up:  # what was lost on it is noticed
                self.sever(link, *sorted(pair))
            self.at(self.time + 0.1, self.connect, *sorted(pair), link)
        self.at(self.time + 3, self.finish, 0)

    def finish(self, target: int) -> None:
        """End when a new entry is committed everywhere; it has to be within bounded time."""
        logs = [node.log for node in self.nodes.values()]
        silent = any(node.replica.recovering for node in self.nodes.values())
        if target and not silent and all(log.committed >= target for log in logs):
            self.events.clear()
            return
        if self.time > FAULTS_END + PATIENCE:
            views = [(log.view, log.normal, log.committed, log.last) for log in logs]
            what = "somebody does not vote" if silent else "nothing is committed"
            raise ViolationError(f"After the faults {what}: {views}")
        adder = self.nodes[self.adder()]
        if adder.replica.settled and not target:
            adder.replica.propose(Entry("end", b""))
            target = adder.log.last
            self.act(adder)
        elif target and (not adder.replica.is_adder or adder.log.last < target):
            target = 0
        self.at(self.time + 1, self.finish, target)

    # Connections and messages.

    def connect(self, one: str, other: str, link: Link) -> None:
        both = self.nodes[one], self.nodes[other]
        if link.up or link.blocked or not (both[0].up and both[1].up):
            return
        if any(node.stopped > self.time for node in both):
            self.at(self.time + 0.5, self.connect, one, other, link)
            return
        link.up = True
        link.number += 1
        link.last = {one: self.time, other: self.time}
        for node, name in zip(both, (other, one), strict=True):
            if node.up:
                node.replica.connected(name, node.now(self.time))
                self.act(node)

    def sever(self, link: Link, one: str, other: str) -> None:
        if not link.up:
            return
        link.up = False
        for here, there in ((one, other), (other, one)):
            node = self.nodes[here]
            later = self.time + self.random.choice((0.001, 0.1, 1.0))
            self.at(later, self.notice, here, node.incarnation, there, link, link.number)
        self.at(self.time + self.random.uniform(0.2, 1.5), self.connect, one, other, link)

    def notice(self, name: str, incarnation: int, other: str, link: Link, number: int) -> None:
        node = self.nodes[name]
        if node.up and node.incarnation == incarnation and link.number == number:
            if node.stopped > self.time:
                self.at(node.stopped, self.notice, name, incarnation, other, link, number)
                return
            node.replica.disconnected(other, node.now(self.time))
            self.act(node)

    def act(self, node: Node) -> None:
        """Check what a participant did, and send what it says."""
        log = node.log
        if log.committed > node.seen or log.view > node.led or node.replica.disagreements:
            self.check(node)
        messages = node.replica.take()
        if node.doomed:
            messages = messages[: self.random.randint(0, len(messages))]
        for to, message in messages:
            self.send(node.name, to, message)
        if node.doomed:
            self.crash(node)

    def send(self, name: str, to: str, message: Message) -> None:
        link = self.links[frozenset((name, to))]
        random = self.random
        if not link.up or link.muted == to:
            return
        time = self.time + link.delay * (0.5 + random.random())
        if self.rough:
            draw = random.random()
            if draw < 0.03:
                return
            if draw < 0.06:
                self.at(time + random.random(), self.deliver, name, to, link, link.number, message)
            elif draw < 0.1:
                time += random.random()
                self.at(time, self.deliver, name, to, link, link.number, message)
                return
        time = link.last[to] = max(time, link.last[to])
        self.at(time, self.deliver, name, to, link, link.number, message)

    def deliver(self, name: str, to: str, link: Link, number: int, message: Message) -> None:
        node = self.nodes[to]
        if link.number != number or not link.up or not node.up:
            return
        if node.stopped > self.time:
            self.at(node.stopped, self.deliver, name, to, link, number, message)
            return
        node.replica.receive(name, message, node.offset + node.rate * self.time)
        self.act(node)

    def tick(self, name: str, incarnation: int) -> None:
        node = self.nodes[name]
        if not node.up or node.incarnation != incarnation:
            return
        if node.stopped > self.time:
            self.at(node.stopped, self.tick, name, incarnation)
            return
        self.at(self.time + node.step, self.tick, name, incarnation)
        node.replica.tick(node.offset + node.rate * self.time)
        self.act(node)

    def propose(self, count: int) -> None:
        for node in self.nodes.values():
            if node.up and node.stopped <= self.time and node.replica.is_adder:
                for _ in range(count):
                    content = b"%s %d" % (node.name.encode(), self.number)
                    self.number += 1
                    node.replica.propose(Entry("test", content))
                self.act(node)
        if self.forgets:
            node = self.random.choice(list(self.nodes.values()))
            if node.up and node.stopped <= self.time:
                node.replica.forget(self.random.randint(0, node.log.committed) + 1)

    # What must never happen.

    def check(self, node: Node) -> None:
        log, replica = node.log, node.replica
        if replica.disagreements or replica.halted:
            raise ViolationError(f"{node.name}: {replica.disagreements}")
        node.forgetful &= replica.recovering
        if log.committed > node.seen:
            truth = self.truth
            for index in range(max(node.seen + 1, log.base), log.committed + 1):
                digest = log.digest(index)
                if index < len(truth):
                    if truth[index] != digest:
                        raise ViolationError(f"Two histories at {index}, at {node.name}.")
                    continue
                if index > len(truth):
                    raise ViolationError(f"{node.name} begins after what was committed.")
                if self.copies(index, digest) < replica.majority:
                    raise ViolationError(f"{node.name} commits {index} with a minority.")
                truth.append(digest)
                self.decided.append(log.view)
            node.seen = log.committed
        if log.view > node.led and replica.is_adder:
            node.led = log.view
            before = sum(view < log.view for view in self.decided) - 1
            if before >= log.base and self.truth[before] != (
                log.digest(before) if before <= log.last else b""
            ):
                raise ViolationError(f"{node.name} adds in {log.view}; {before} is lost.")

    def copies(self, index: int, digest: bytes) -> int:
        logs = [(self.nodes[name].log, self.nodes[name].forgetful) for name in self.voters]
        return sum(
            forgetful
            or log.base > index
            or (log.base <= index <= log.last and log.digest(index) == digest)
            for log, forgetful in logs
        )
