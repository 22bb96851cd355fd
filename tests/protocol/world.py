"""A simulated world over the real members and relay: clock, network, disks, faults and attackers.

    python -m tests.protocol.world --seeds 10000

A seed decides everything that happens. After every event the checks of `checks` must hold.
"""

import copy
import heapq
import hmac
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedtopics.errors import FederationError
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Answer, Ask, Kind, Total, decode
from fedtopics.protocol.record import Record
from tests.protocol import faults
from tests.protocol.checks import Checks, ViolationError
from tests.protocol.disks import DiedError, Disk
from tests.protocol.host import RELAY, Host
from tests.protocol.malicious import STUDY, Memory
from tests.protocol.mutants import DISKS, MUTANTS, mutated
from tests.protocol.words import STEPS, Words

NAMES = ["ann", "bob", "cat", "dan", "eve"]
# seconds, as `exchange` has them
DEADLINE = 30.0
IDLE = 0.5
SHORTEST = 0.5
LONGEST = 10.0
STAY = 60.0  # seconds at the end of a member
PATIENCE = 60.0  # seconds after the last fault until everyone has the model
USUAL = ["kill", "kill", "power", "powers", "relay", "relay power", "loss", "cut", "half", "late"]
ON_DISK = {"older", "wipe", "clone", "clone rng", "relay disk"}  # what a run need not survive


@dataclass(eq=False)
class Process:
    """A member's process: the member, and what `Exchange` and the program do."""

    name: str
    member: Member
    disk: Disk
    documents: int
    rounding: int  # of the last bit, by this machine
    state: bytes  # of the program
    step: int  # of the program
    number: int = 0  # of the call under way; 0 if there is none
    pause: float = SHORTEST
    asked: float = 0.0
    says: list[bytes] = field(default_factory=list)
    has_said_stop: bool = False


class World:
    """Members, a relay and everything between them."""

    def __init__(
        self,
        seed: int,
        kinds: Collection[str] = USUAL,
        evil: bool = False,
        accomplices: int = 0,
        mutant: str = "",
        count: tuple[int, int] = (1, 6),
        operator: bool = False,
        between: float = 0.004,
        reform: float = 0.0,
        words: bool = False,
    ) -> None:
        r = self.r = random.Random(seed)  # noqa: S311
        self.seed = seed
        self.evil = evil
        self.mutant = mutant
        self.operator = operator
        self.between = between
        self.reform = reform
        self.names = NAMES[: r.choice([3, 3, 4, 5] if evil else [2, 3, 3, 4, 5])]
        self.accomplices = set(r.sample(self.names, min(accomplices, len(self.names) - 2)))
        self.lies = r.choice([0.03, 0.1, 0.3]) if evil else 0.0
        self.disks_fail = count[1] > 0 and bool(ON_DISK & set(kinds))
        self.checks = Checks(self.names, self.accomplices, evil, self.disks_fail)
        choices: list[tuple[str, Kind]] = [("sum", "sum"), ("sum", "sum"), ("reply", "call")]
        self.steps: list[tuple[str, Kind]] = [
            ("group key", "call"),
            *r.choices(choices, k=r.randint(2, 7)),
            ("end", "call"),
        ]
        self.words = Words(seed, self.names, self.accomplices) if words else None
        if words:
            self.steps[1:1] = [*STEPS.items()]
        self.now = self.quiet = 0.0  # until when there are faults
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.events = self.calls = 0
        self.memory = Memory()
        self.computed = b""
        self.asks: dict[str, Ask] = {}  # of a mutant
        self.disks: dict[str, Disk] = {}
        self.snapshots: dict[str, list[Disk]] = defaultdict(list)
        self.processes: list[Process] = []
        self.documents = Counter[str]()
        self.restarts = Counter[str]()
        self.touched = set[str]()  # whose disk an operator or an attacker changed
        self.models: dict[str, tuple[bytes, bytes]] = {}
        self.ended = set[str]()
        self.cut = set[tuple[str, str]]()
        self.loss = 0.0
        self.copies = 0.0
        self.delay = 0.05
        self.host = Host(self)
        if count[1]:
            at = 0.0
            for _ in range(r.randint(*count)):
                at += r.expovariate(1 / r.choice([0.1, 1, 5]))
                self.after(at, partial(self.fault, r.choice(list(kinds))))
                self.quiet = max(self.quiet, at)

    # Time

    def after(self, delay: float, happen: Callable[[], None]) -> None:
        self.events += 1
        heapq.heappush(self.queue, (self.now + delay, self.events, happen))

    def run(self) -> str:
        """Let everything happen; return how it ended. ViolationError if a check fails."""
        with ExitStack() as stack:
            if self.mutant in MUTANTS:
                stack.enter_context(mutated(self))
            self.checks.watch(stack)
            for name in self.names:
                self.disks[name] = DISKS.get(self.mutant, Disk)(self.point)
                self.snapshots[name].append(copy.copy(self.disks[name]))
                self.boot(name)
            self.host.start()
            if self.reform:
                self.after(self.reform, self.host.stop)
                self.quiet = self.reform
            while self.queue and self.now < self.quiet + PATIENCE and not self.is_over():
                self.now, _, happen = heapq.heappop(self.queue)
                happen()
            self.checks.rank()
        return self.ending()

    def is_over(self) -> bool:
        if self.now < self.quiet:
            return False
        if not self.processes:
            return set(self.names) == self.ended
        stopped = all(p.member.phase == "stopped" and not p.says for p in self.processes)
        return stopped and not self.evil and not self.operator

    def ending(self) -> str:
        honest = [name for name in self.names if name not in self.accomplices]
        models = {self.models[name] for name in honest if name in self.models}
        if len(models) > 1 and not (self.evil and self.accomplices):
            raise ViolationError("b: two models")
        if set(honest) <= self.ended:
            return "same model"
        reasons = sorted({p.member.reason for p in self.processes if p.member.reason})
        if reasons:
            return "stopped " + " / ".join(reasons)
        return "stuck " + " ".join(
            f"{p.name} {p.member.record.step} {p.member.phase}" for p in self.processes
        )

    def point(self) -> None:
        """A process can die here."""
        if self.now < self.quiet and self.r.random() < self.between:
            raise DiedError

    # Members' processes

    def sign(self, name: str, content: bytes) -> bytes:
        return hmac.digest(name.encode(), content, "sha256")

    def verify(self, name: str, signature: bytes, content: bytes) -> bool:
        return name in self.names and self.sign(name, content) == signature

    def running(self, name: str) -> list[Process]:
        return [p for p in self.processes if p.name == name]

    def boot(self, name: str) -> None:
        """Start a member's process from its disk, unless there is one, or it has ended."""
        if self.running(name) or name in self.ended:
            return
        disk = self.disks[name]
        r = self.r
        record, content, entries = disk.load()
        entry_of = {entry.step: entry for entry in entries}
        step, state = disk.checkpoint
        reason = ""
        for number in range(max(step, 1), record.step):
            if number not in entry_of:
                reason = f"{name}: its folder lacks a total"
                break
            state = self.settled(state, number, entry_of[number].opened)
        member = Member(
            name=name,
            study=STUDY,
            names=self.names,
            sign=lambda content: self.sign(name, content),
            verify=self.verify,
            random=r.randbytes,
            disk=disk,
            record=record,
            content=content,
        )
        process = Process(
            name=name,
            member=member,
            disk=disk,
            documents=self.documents[name],
            rounding=r.randint(0, 1),
            state=state,
            step=max(step, record.step),
        )
        self.processes.append(process)
        if reason:
            member.phase = "stopped"
            member.reason = reason
        else:
            self.compute(process)

    def clone(self, original: Process) -> None:
        """Let a copy of a process run, with its memory and a copy of its disk."""
        disk = copy.copy(original.disk)
        member = copy.copy(original.member)
        member._disk = disk
        member._random = self.r.randbytes
        process = Process(
            name=original.name,
            member=member,
            disk=disk,
            documents=original.documents + self.r.randint(0, 1),
            rounding=original.rounding,
            state=original.state,
            step=original.step,
        )
        self.processes.append(process)
        if member.phase == "compute":
            self.compute(process)
        else:
            self.link_rounds(process)

    def compute(self, p: Process) -> None:
        """Let the program compute its next vector or reply, and give it."""

        def ready() -> None:
            member = p.member
            step = p.step
            if p not in self.processes or member.phase != "compute":
                return
            if step == len(self.steps):
                self.models[p.name] = member.record.transcript, p.state
                self.after(STAY, lambda: self.end(p))
                self.act(p, finish)
                return
            function, kind = self.steps[step]
            try:
                self.computed = self.vector(p, function)
            except FederationError as error:
                self.halt(p, str(error))
                self.link_rounds(p)
                return
            content = member.content if member.record.part else self.computed
            self.act(p, lambda: member.give(function, kind, b"3 words", content))

        def finish() -> list[bytes]:
            p.member.finish()
            return []

        self.after(self.r.choice([0, 0.1, 0.5]) * self.r.random(), ready)

    def settled(self, state: bytes, step: int, opened: list[bytes]) -> bytes:
        """Return the state of the program after a step: three numbers, and what it knows of words.

        The number of a step is that of the protocol, which begins with the group key.
        """
        if self.words and self.steps[step][0] in STEPS:
            return self.words.settled(state, self.steps[step][0], opened)
        wholes = [np.frombuffer(content, "<i8") for content in (state[:24], *opened)]
        return np.sum(wholes, axis=0).tobytes() + state[24:]

    def vector(self, p: Process, function: str) -> bytes:
        if self.words and function in STEPS:
            return self.words.content(p.name, function, p.state)
        if p.name == "cat" and function == "sum":  # an observer
            return bytes(24)
        seed = digest_of_fields(self.seed, p.name, p.member.record.step, p.state, p.documents)
        whole = np.frombuffer(seed[:24], "<i8") >> 24
        return (whole + np.array([p.rounding, 0, 0])).tobytes()

    def act(self, p: Process, work: Callable[[], list[bytes]]) -> None:
        """Let a member do something, look at what it says, and go on; it can die meanwhile."""
        member = p.member
        before = p.member.record
        self.checks.acting = member
        try:
            said = work()
            if p.name in self.accomplices and member.record.group:
                place = member.record.step, member.record.transcript
                self.memory.groups[place] = member.record.group
            for content in said:
                self.checks.said(p.name, content)
            if member.record.step > before.step:
                self.take_total(p, before)
        except DiedError:
            self.crash(p.name, self.r.random() < 0.5)
            return
        finally:
            self.checks.acting = None
        snapshots = self.snapshots[p.name]
        if snapshots[-1].record != p.disk.record:
            snapshots.append(copy.copy(p.disk))
        p.says += said
        if member.phase == "stopped":
            p.has_said_stop = bool(said)
        if member.phase == "compute":
            self.compute(p)
        elif not p.number:
            wait = IDLE if member.record is before and self.now - p.asked < IDLE else 0.0
            self.after(wait, lambda: self.link_rounds(p))

    def take_total(self, p: Process, before: Record) -> None:
        """The program gets a total, and may write a checkpoint."""
        member = p.member
        self.checks.accepted(member, before)
        p.state = self.settled(p.state, p.step, member.last.opened)
        p.step += 1
        if self.r.random() < 0.3:
            member.save()
            p.disk.write_checkpoint(p.step, p.state)

    def end(self, p: Process) -> None:
        if p in self.processes and p.member.phase == "done":
            self.processes.remove(p)
            self.ended.add(p.name)

    def halt(self, p: Process, reason: str) -> None:
        """A process ends with a sentence, without a message to the others."""
        p.member.phase = "stopped"
        p.member.reason = f"{p.name}: {reason}"

    # Calls of a process, one at a time

    def link_rounds(self, p: Process) -> None:
        if p not in self.processes or p.number or p.member.phase == "compute":
            return
        if p.says:
            self.call(p, "say", p.says[0])
        elif p.member.phase != "stopped":
            p.asked = self.now
            self.call(p, "ask", p.member.question())
        elif self.evil or self.operator:
            self.after(self.r.uniform(1, 3), lambda: self.restart(p))

    def call(self, p: Process, kind: str, content: bytes) -> None:
        if p not in self.processes:
            return
        self.calls += 1
        number = p.number = self.calls
        self.net(p.name, RELAY, lambda: self.host.arrive(p, number, kind, content))
        self.after(DEADLINE, lambda: self.failed(p, number, kind, content))

    def failed(self, p: Process, number: int, kind: str, content: bytes) -> None:
        """The relay cannot be reached, or the deadline has passed: try again, later each time."""
        if p.number == number and p in self.processes:
            p.number = -1
            pause = p.pause * self.r.uniform(0.75, 1.25)
            p.pause = min(2 * p.pause, LONGEST)
            self.after(pause, lambda: self.call(p, kind, content))

    def reply(self, p: Process, number: int, kind: str, content: bytes) -> None:
        """Take the answer to a call, unless it is not the newest one."""
        if p.number != number or p not in self.processes:
            return
        p.number = 0
        p.pause = SHORTEST
        member = p.member
        if kind == "refused":
            self.halt(p, content.decode())
        elif kind == "say":
            p.says.pop(0)
        elif kind == "fetch":
            return self.act(p, lambda: member.open(content))
        elif member.phase == "done":
            return self.end(p)
        else:
            try:
                message = decode(content, Answer).message
            except FederationError as error:
                self.halt(p, str(error))
            else:
                if isinstance(message, Total):
                    return self.call(p, "fetch", member.record.list_digest)
                return self.act(p, lambda: member.answer(message))
        return self.link_rounds(p)

    def net(self, a: str, b: str, happen: Callable[[], None]) -> None:
        if (a, b) in self.cut or self.r.random() < self.loss:
            return
        for _ in range(2 if self.r.random() < self.copies else 1):
            self.after(self.delay * self.r.expovariate(1), happen)

    # Faults; `faults` has the others

    def fault(self, kind: str) -> None:
        self.quiet = max(self.quiet, self.now)
        faults.happen(self, kind, self.r.choice(self.names))

    def crash(self, name: str, power: bool, down: float = -1.0) -> None:
        """Kill all processes of a member; it starts again later."""
        for p in self.running(name):
            self.processes.remove(p)
        if power:
            self.disks[name].power_cut(self.r)
        down = self.r.uniform(0.1, 4) if down < 0 else down
        self.after(down, lambda: self.boot(name))
        self.quiet = max(self.quiet, self.now)

    def restart(self, p: Process) -> None:
        """Start a process that stopped again, as its operator does, some times."""
        most = 1000 if self.reform else 10
        if p not in self.processes or self.restarts[p.name] >= most:
            return
        if self.operator and self.now <= self.quiet:
            self.after(1.0, lambda: self.restart(p))
        elif self.operator or p.name not in self.touched:
            self.restarts[p.name] += 1
            self.processes.remove(p)
            self.boot(p.name)


if __name__ == "__main__":
    from tests.protocol.runs import main

    sys.exit(main())
