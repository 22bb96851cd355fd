"""A simulated world whose messages are files, with people who approve them and carry them.

    python -m tests.protocol.carried --seeds 1000

A seed decides everything that happens. Each turn is a new process with what its disk contains.
Besides the checks of `checks`, m: a part or body is in a file before enough people approved it.
"""

import copy
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from functools import cache, partial
from itertools import product
from math import inf
from pathlib import Path
from unittest.mock import patch

import numpy as np

from fedtopics import waiting
from fedtopics.errors import FederationError
from fedtopics.protocol import roster
from fedtopics.protocol.exchange import MemberSteps, Patience
from fedtopics.protocol.keys import digest_of_fields
from fedtopics.protocol.link import NotYetError
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Body, Part, Stop, decode, encode
from fedtopics.protocol.record import Record
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Roster
from fedtopics.transport import folders
from fedtopics.transport.folders import SUFFIX, Exchange, FolderLink, Sealed, relay_turn
from tests.helpers.keys import key_of
from tests.protocol import faults
from tests.protocol.checks import ViolationError
from tests.protocol.disks import DiedError, Disk
from tests.protocol.host import RELAY
from tests.protocol.mutants import mutated
from tests.protocol.world import World

STUDY = "0a" * 32
APPROVERS = {"una", "vic"}  # both have to approve
PEOPLE = [*sorted(APPROVERS), "a stranger"]
LARGEST = 10_000  # bytes of a message
START = 1_800_000_000  # seconds since 1970
MEMORY = Path("/dev/shm")  # noqa: S108 a folder in memory, where there is one


class Scene(World):
    """Everybody's disks and folders; first events of these kinds happen, then all is carried."""

    def __init__(self, seed: int, kinds: Sequence[str], mutant: str = "") -> None:
        n_faults = int("older" in kinds)  # of disks; without them, nobody may stop
        super().__init__(seed, ["older"], mutant=mutant, count=(n_faults, n_faults), between=0.01)
        # Small scenes get further.
        del self.steps[5:], self.names[3:]
        self.checks.honest.intersection_update(self.names)
        self.kinds = kinds
        self.disks = {name: Disk(self.point) for name in self.names}
        self.host = self.r.choice([RELAY, self.names[0]])  # who takes the turns of the relay
        self.places = sorted({*self.names, self.host})
        self.roster = Roster(
            members={name: key_of(name).certificate for name in self.names},
            server=key_of(self.host).certificate,
        )
        self.gated = self.r.sample(self.names, self.r.randint(1, 2))
        # What waits, by member; b"" stands for all that this member will send.
        self.pages = [(name, b"") for name in self.gated if self.r.random() < 0.1]
        self.given = defaultdict[tuple[str, bytes], set[str]](set)
        self.left: list[bytes] = []  # messages that are in files
        self.relay_file = b""
        self.reason = ""  # why somebody stopped
        # All files that were ever written, and three that must not be used.
        forged = Sealed(STUDY, "ann", 2000 * START, signature=b"not a signature")
        other = Sealed("another study", "ann", 2000 * START)
        self.files = [(f"{i}{SUFFIX}", encode(file)) for i, file in enumerate(("", forged, other))]

    def run(self) -> str:
        """Let everything happen; return how it ended. ViolationError if a check fails."""
        with ExitStack() as stack:
            memory = MEMORY if MEMORY.is_dir() else None
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))
            for owner, name, stand_in in (
                (folders, "write_durably", partial(self.written, folders.write_durably)),
                (folders, "has_signed", cache(folders.has_signed)),
                (roster, "has_signed", cache(roster.has_signed)),
                (time, "time_ns", self.clock),
                (waiting, "NO_NEWS", 0.0),
            ):
                stack.enter_context(patch.object(owner, name, stand_in))
            stack.enter_context(mutated(self) if self.mutant else nullcontext())
            self.checks.watch(stack)
            for place in product(self.places, ["in", "out"]):
                self.folder.joinpath(*place).mkdir(parents=True)
            self.quiet = inf
            for _ in range(self.r.randint(100, 250) if self.kinds else 0):
                self.now += self.r.random()
                getattr(self, self.r.choice(self.kinds))(self.r.choice(self.places))
            self.finish()
            self.checks.rank()
        return f"stopped {self.reason}" if self.reason else self.ending()

    def finish(self) -> None:
        """Carry all files until everybody has the model: two times for each step are enough."""
        self.quiet = self.now
        for _ in range(2 * len(self.steps) + 1 + bool(self.kinds)):
            for name in [*self.names, *self.names]:
                self.turn(name)
            if self.reason or len(self.ended) == len(self.names):
                break
            self.bring(self.names, self.host)
            self.turn(self.host)
            for name in self.names:
                self.bring([self.host], name)
            self.now += 1

    def clock(self) -> int:
        # The relay keeps the number of its file only in that file, which can be lost.
        error = 0.0 if self.actor == self.host else self.r.uniform(-1000, 1000)
        return int((START + self.now + error) * 1e9)

    # Turns

    def turn(self, place: str) -> None:
        """Let a member or the relay take a turn; it can die."""
        self.actor = place
        try:
            self.relay() if place == RELAY else self.step(place)
        except DiedError:
            self.crash(place, power=place != RELAY and self.r.random() < 0.5)
        except FederationError as error:
            self.reason = self.reason if isinstance(error, NotYetError) else str(error)

    def exchange(self, place: str) -> Exchange:
        return Exchange(
            inbox=self.folder / place / "in",
            outbox=self.folder / place / "out",
            study=STUDY,
            roster=self.roster,
            largest=LARGEST,
            notify=lambda problem: None,
        )

    def relay(self) -> None:
        relay = Relay(self.names, self.relay_file, partial(setattr, self, "relay_file"))
        relay_turn(self.exchange(self.host), RelayService(relay, LARGEST), key_of(self.host))

    def step(self, name: str) -> None:
        """Let a member go on until it has the model, or waits for others."""
        disk = self.disks[name]
        record, content, _ = disk.load()
        member = self.checks.acting = Member(
            name=name,
            study=bytes.fromhex(STUDY),
            names=self.names,
            sign=key_of(name).sign,
            verify=self.roster.verify,
            random=partial(self.draw, disk),
            disk=disk,
            record=record,
            content=content,
        )
        member._process = self.r.randbytes(8)  # not even a copied machine has the same one
        link = FolderLink(
            self.exchange(name),
            key_of(name),
            self.folder / name / "sent",
            self.relay if name == self.host else None,
        )
        steps = MemberSteps(
            member,
            link,
            Patience(inf, lambda event: None),
            self.waits if name in self.gated else None,
        )
        while (record := member.record).step < len(self.steps):
            if not record.part or self.r.random() < 0.1:
                self.snapshots[name].append(copy.copy(disk))
            seed = digest_of_fields(name, self.documents[name], record.step, record.transcript)
            vector = (np.frombuffer(seed[:24], "<i8") >> 24).tobytes()
            content = member.content if record.part else vector
            steps.step(*self.steps[record.step], b"3 words", content)
            if record.step:  # its record is on disk until the next step
                self.checks.accepted(member, decode(disk.record, Record))
        self.models[name] = record.transcript, encode([e.opened for e in disk.load()[2]])
        steps.done()
        self.ended.add(name)

    def draw(self, disk: Disk, size: int) -> bytes:
        """Return random bytes; a machine that is copied draws the same again in a step."""
        place = f"{self.actor} {disk.load()[0].step}"
        return (random.Random(place) if self.disks_fail else self.r).randbytes(size)  # noqa: S311

    # What is written, and who approves it

    def written(
        self, real: Callable[..., None], path: Path, content: bytes, public: bool = False
    ) -> None:
        """Look at a file before it is written; the process can die before and after that."""
        self.point()
        if public:
            self.files.append((path.name, content))
            self.check_approvals(decode(content, Sealed).messages)
        real(path, content, public)
        self.point()

    def check_approvals(self, messages: list[bytes]) -> None:
        """Look at messages when they are in a file for the first time."""
        member = self.checks.acting
        for message in filter(lambda message: message not in self.left, messages):
            assert member is not None
            self.left.append(message)
            self.checks.said(self.actor, message)
            is_stop = isinstance(decode(message, Part | Body | Stop), Stop)
            if not is_stop and member.record.step and not self.is_approved(member.content):
                raise ViolationError("m: a message is in a file before its approval")

    def is_approved(self, content: bytes) -> bool:
        return self.actor not in self.gated or any(
            self.given[self.actor, page] >= APPROVERS for page in (content, b"")
        )

    def waits(self, function: str, content: bytes, secret: bytes) -> str:
        """Stand in for the gate of a member; meanwhile somebody approves something."""
        is_quiet = self.now >= self.quiet
        for page in self.pages if is_quiet else self.r.sample(self.pages, bool(self.pages)):
            self.given[page] |= APPROVERS if is_quiet else {self.r.choice(PEOPLE)}
        self.pages.append((self.actor, content))
        return "" if self.is_approved(content) else "noon"

    # What happens to files and disks

    def bring(self, senders: Sequence[str], receiver: str) -> None:
        """Copy all files of these outboxes."""
        for sender in senders:
            inbox = self.folder / receiver / "in"
            shutil.copytree(self.folder / sender / "out", inbox, dirs_exist_ok=True)

    def carry(self, place: str) -> None:
        """Bring new files; at times lose one, and bring an old one, perhaps renamed or in part."""
        self.bring(self.r.sample(self.places, self.r.randint(1, len(self.places))), place)
        if self.r.random() < 0.3:
            name, content = self.r.choice(self.files)
            size = self.r.choice([len(content), self.r.randrange(len(content))])
            path = self.folder / place / "in" / (self.r.choice(["", "copy of "]) + name)
            path.write_bytes(content[:size])
            self.r.choice(sorted((self.folder / place).glob(f"*/*{SUFFIX}"))).unlink()

    def older(self, place: str) -> None:
        if self.snapshots[place]:
            faults.happen(self, "older", place)


if __name__ == "__main__":
    from tests.protocol.runs import main

    sys.exit(main("files"))
