"""A member's disk in a simulated world: what `record.Folder` writes, in the same order."""

import random
from collections.abc import Callable

from fedtopics.protocol.messages import decode, encode
from fedtopics.protocol.record import OpenedStep, Record, packed_record, unpacked_record


class DiedError(Exception):
    """A process ends here, or its machine does."""


def _nothing() -> None:
    return None


class Disk:
    """A `Disk` in memory. At each `point` a process can die: between any two writes."""

    def __init__(self, point: Callable[[], None] = _nothing) -> None:
        self.point = point
        self.record = b""
        self.content = b""
        self.totals = b""  # as written, as after a power cut
        self.synced = b""
        self.checkpoint = (0, bytes(24))  # the step and the state of the program

    def save(self, record: Record, content: bytes | None = None) -> None:
        self.point()
        self.sync()
        self.point()
        if content is not None:
            self.content = content
            self.point()
        self.record = encode(record)
        self.point()

    def sync(self) -> None:
        self.synced = self.totals

    def append(self, entry: OpenedStep) -> None:
        self.point()
        self.totals += packed_record(entry)
        self.point()

    def cut(self) -> None:
        self.totals = b""

    def write_checkpoint(self, step: int, state: bytes) -> None:
        self.checkpoint = step, state
        self.point()
        self.cut()
        self.point()

    def load(self) -> tuple[Record, bytes, list[OpenedStep]]:
        record = decode(self.record, Record) if self.record else Record()
        entries, whole = unpacked_record(self.totals)
        self.totals = self.totals[:whole]
        if entries and entries[-1].step == record.step:
            record = record.after(entries[-1])
        return record, self.content, entries

    def power_cut(self, r: random.Random) -> None:
        """Lose what was not synced, or a part of it."""
        if not self.totals.startswith(self.synced) and r.random() < 0.5:
            self.totals = self.synced  # they were cut off, and that is lost
        else:
            least = len(self.synced) if self.totals.startswith(self.synced) else 0
            self.totals = self.totals[: r.randint(least, len(self.totals))]
        self.synced = self.totals
