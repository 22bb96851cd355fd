"""A member's data on disk, from which it sends the same bytes again after a crash.

For this, the record is written before the part is sent, and again, with the list, before the body.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec

from fedtopics.errors import FederationError, RunError
from fedtopics.files import make_folder, open_private, read_bytes, write_durably
from fedtopics.protocol.keys import (
    LENGTH,
    derive,
    digest_of_fields,
    digest_of_list,
    next_transcript,
)
from fedtopics.protocol.messages import decode, encode
from fedtopics.versions import RECORD

HEAD = 8 + LENGTH  # of an entry in the file of totals: its size and its digest


class _Private(msgspec.Struct, array_like=True):
    """Secret content, which no error or log may show."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class Record(_Private):
    """A member in a step: before its part is sent, afterwards, and with the list."""

    run: bytes = b""  # the SHA-256 of the list of step 0
    step: int = 0
    transcript: bytes = b""
    group: bytes = b""
    private: bytes = b""  # the one-time key
    content: bytes = b""  # the SHA-256 of the vector or the reply
    part: bytes = b""
    parts: list[bytes] = []
    format: int = 0  # on a disk `versions.RECORD`; 0 before it had a number

    @property
    def list_digest(self) -> bytes:
        """The digest of the list; b"" before there is one."""
        return digest_of_list(self.parts) if self.parts else b""

    def after(self, entry: OpenedStep, group: bytes = b"") -> Record:
        """Return the record of the next step; step 0 brings the group key."""
        group = group or self.group
        transcript = next_transcript(
            group, self.transcript, entry.function, self.list_digest, entry.digest
        )
        return Record(
            run=self.run or self.list_digest,
            step=self.step + 1,
            transcript=transcript,
            group=derive(group, "next", transcript),
        )


class OpenedStep(_Private, dict=True):
    """The opened total of a sum, or the replies to a call."""

    step: int
    function: str
    opened: list[bytes]

    @cached_property
    def digest(self) -> bytes:
        return digest_of_fields(*self.opened)


class Disk(Protocol):
    """Storage of a member's record, its vector or reply, and the totals."""

    def save(self, record: Record, content: bytes | None = None) -> None:
        """Write the totals so far, then the vector or reply, then the record, durably."""

    def append(self, entry: OpenedStep) -> None:
        """Write a total; it is durable with the next record."""


class Folder:
    """A `Disk` in a folder. RunError if a file is damaged."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder
        self._totals = open_private(folder / "totals", "ab", buffering=0)

    def save(self, record: Record, content: bytes | None = None) -> None:
        """See `Disk.save`; after a crash, the files are needed in this order."""
        os.fsync(self._totals.fileno())
        if content is not None:
            write_durably(self._folder / "content", content)
        write_durably(
            self._folder / "record", encode(msgspec.structs.replace(record, format=RECORD))
        )

    def append(self, entry: OpenedStep) -> None:
        left = memoryview(packed_record(entry))
        while left:  # a nearly full disk takes less than all
            left = left[self._totals.write(left) :]

    def load(self) -> tuple[Record, bytes, list[OpenedStep]]:
        """Return the record, its vector or reply, and the totals."""
        record = self._read_record()
        totals = self._folder / "totals"
        entries, whole = unpacked_record(read_bytes(totals))
        if whole < totals.stat().st_size:  # a crash cut the last one
            self._totals.truncate(whole)
        if entries and entries[-1].step == record.step:  # a crash before the next record
            record = record.after(entries[-1])
        content = self._folder / "content"
        return record, read_bytes(content) if content.exists() else b"", entries

    def _read_record(self) -> Record:
        path = self._folder / "record"
        if not path.exists():
            return Record()
        try:
            record = decode(read_bytes(path), Record)
        except FederationError:
            raise RunError(f"{path} is damaged; restore the folder, or start a new run.") from None
        if record.format != RECORD:
            raise RunError(
                f"{path} was written by another version of fedtopics: it has format "
                f"{record.format}, and this one {RECORD}. Resume with the version that wrote it, "
                "or start a new run."
            )
        return msgspec.structs.replace(record, format=0)

    def cut(self) -> None:
        """Remove the totals: a checkpoint contains their results."""
        self._totals.truncate(0)

    def close(self) -> None:
        self._totals.close()


def packed_record(entry: OpenedStep) -> bytes:
    """Return an entry in the format of the file of totals."""
    content = encode(entry)
    return b"".join([len(content).to_bytes(8, "big"), entry.digest, content])


def unpacked_record(content: bytes) -> tuple[list[OpenedStep], int]:
    """Return the entries of a file of totals, and the end of the last complete one."""
    entries = []
    place = 0
    while place + HEAD <= len(content):
        end = place + HEAD + int.from_bytes(content[place : place + 8], "big")
        try:
            entry = decode(content[place + HEAD : end], OpenedStep)
        except FederationError:
            break
        if entry.digest != content[place + 8 : place + HEAD]:
            break
        entries.append(entry)
        place = end
    return entries, place
