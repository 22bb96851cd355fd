"""A replica's log in a folder: files that only grow, with what has to outlive a restart in them.

A segment is a file `00000001.log`: a head, then records. The head says after which index of the log
the segment goes on; if the log went further before it, what is after that index was dropped. A
record is an entry or a state (view, last normal view); each says as well how far the log was
committed. The folder's last segments are the log, whichever is the first of them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BufferedWriter
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from fedtopics.engines.log import Entry, Log, chained
from fedtopics.errors import RunError
from fedtopics.files import make_folder, open_file, open_private, read_text

MAGIC = b"fedtlog1"
HEAD = struct.Struct(">8sQQQQ?16s32s32s")  # then: view, normal, committed, index, ...
ENTRY = struct.Struct(">HQQ32s32s")  # bytes of kind and content, committed, digests of content, log
STATE = struct.Struct(">QQQ?")  # view, normal, committed, doubtful
CHECK = struct.Struct(">I")
SEGMENT_BYTES = 64 << 20
RECENT_BYTES = 8 << 20
BOOT = Path("/proc/sys/kernel/random/boot_id")
NO_BOOT = bytes(16)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry is."""

    segment: int
    offset: int  # of its content
    kind: str
    size: int
    content_digest: bytes


class DiskLog(Log):
    """A log in a folder, of which a few MB are in memory.

    A half-written last entry is cut away: nothing was said yet that relies on it. One that is there
    in length and damaged, or damage before the end, is cut away as well and leaves a doubt.

    With `sync` each change is on the disk itself when its method returns. Without, it outlives the
    process and not a power failure: the log is `doubtful` when it is opened after one, as it is in
    a new folder: the one before may have been lost.

    Raises
    ------
    RunError
        The folder holds another study's or run's log, or an entry read is damaged.
    """

    def __init__(self, folder: Path, origin: bytes, sync: bool = True) -> None:
        super().__init__(origin)
        self._folder = folder
        self._origin = self.digest(0)
        self._sync = sync
        self._places: list[_Place] = []
        self._segments: dict[int, int] = {}  # after which index a segment, by number, goes on
        self._recent: dict[int, Entry] = {}
        self._file: BufferedWriter | None = None
        self._boot = NO_BOOT if sync else _boot()
        make_folder(folder)
        paths = sorted(folder.glob("*.log"))
        self.doubtful = not paths  # there may have been some
        for place, path in enumerate(paths):
            if not self._read(path, last=path == paths[-1]):
                for later in paths[place + 1 :]:
                    later.unlink()
                break
        self._begin_segment()

    def _read(self, path: Path, last: bool) -> bool:
        """Take over a segment; False if it ends before its time."""
        number, size = int(path.stem), path.stat().st_size
        with open_file(path) as file:
            head = _checked(file, HEAD)
            if head is None:
                self.doubtful |= not last or size > HEAD.size + CHECK.size
                path.unlink()
                return False
            magic, view, normal, committed, index, doubtful, boot, origin, digest = head
            if magic != MAGIC or origin != self._origin:
                raise RunError(
                    f"{path} is not of this study and run. Give another folder, or move it away."
                )
            if self.base <= index <= self.last and self.digest(index) == digest:
                self._shorten(index)
            else:  # the first one, or a state took the place of entries
                self._places = []
                super().reset(index, digest)
            self.view, self.normal, self.committed = view, normal, committed
            lost_power = boot not in (NO_BOOT, _boot())
            self.doubtful = doubtful or (last and lost_power)
            self._segments[number] = index
            end = file.tell()
            while end < size and self._read_record(file, number, size, lost_power):
                end = file.tell()
            file.seek(end)
            self.doubtful |= end < size and (not last or _is_whole(file, size))
        if end < size:
            os.truncate(path, end)
        return bool(end == size)

    def _read_record(self, file: BinaryIO, number: int, size: int, careful: bool) -> bool:
        """Take over a record; False if it is damaged or not whole."""
        kind_of_record = file.read(1)
        if kind_of_record == b"S" and (state := _checked(file, STATE)) is not None:
            self.view, self.normal, self.committed, doubtful = state
            self.doubtful = doubtful
            return True
        if kind_of_record != b"E" or (head := _checked(file, ENTRY)) is None:
            return False
        kind_bytes, content_bytes, committed, content_digest, digest = head
        kind = file.read(kind_bytes).decode(errors="replace")
        offset = file.tell()
        end = offset + content_bytes
        if end > size or chained(self._digests[-1], kind, content_digest) != digest:
            return False
        check = careful or end == size  # what was written last may be there in length alone
        if check and sha256(file.read(content_bytes)).digest() != content_digest:
            return False
        file.seek(end)
        self._add(_Place(number, offset, kind, content_bytes, content_digest), digest)
        self.committed = committed
        return True

    def _add(self, place: _Place, digest: bytes) -> None:
        self._digests.append(digest)
        self._places.append(place)
        self.last += 1

    def _begin_segment(self) -> None:
        """Go on in a new segment: not in one that a crash may have left in any state."""
        self.close()
        number = max(self._segments, default=0) + 1
        values = (self.view, self.normal, self.committed, self.last, self.doubtful, self._boot)
        head = HEAD.pack(MAGIC, *values, self._origin, self._digests[-1])
        path = self._path(number)
        path.unlink(missing_ok=True)
        self._file = open_private(path, "xb")
        self._write(head, CHECK.pack(crc32(head)))
        if self._sync:
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._segments[number] = self.last

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.log"

    def _write(self, *parts: bytes) -> None:
        """Write a record to the current segment, or nothing."""
        if self._file is None:
            raise ValueError("The log is closed.")
        end = self._file.tell()
        try:
            for part in parts:
                self._file.write(part)
            self._file.flush()
            if self._sync:
                os.fsync(self._file.fileno())
        except OSError:
            self._file.close()
            self._file = None
            os.truncate(self._path(max(self._segments)), end)
            raise

    def entry(self, index: int) -> Entry:
        """Return an entry after `base` and up to `last`; read it if it is not a recent one."""
        if index in self._recent:
            return self._recent[index]
        place = self._place(index)
        path = self._path(place.segment)
        with open_file(path) as file:
            file.seek(place.offset)
            content = file.read(place.size)
        if sha256(content).digest() != place.content_digest:
            raise RunError(f"Entry {index} of the log in {path} is damaged. Check the disk.")
        return Entry(place.kind, content)

    def _place(self, index: int) -> _Place:
        if not self.base < index <= self.last:
            raise IndexError(f"The log has {self.base + 1} to {self.last}, not {index}.")
        return self._places[index - self.base - 1]

    def size(self, index: int) -> int:
        """Return how many bytes the content of an entry has."""
        return self._place(index).size

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        if self._file is not None and self._file.tell() > SEGMENT_BYTES:
            self._begin_segment()
        end = self._file.tell() if self._file is not None else 0
        parts: list[bytes] = []
        added: list[tuple[_Place, bytes]] = []
        digest, segment = self._digests[-1], max(self._segments)
        for entry in entries:
            kind, size = entry.kind.encode(), len(entry.content)
            content_digest = sha256(entry.content).digest()
            digest = chained(digest, entry.kind, content_digest)
            head = ENTRY.pack(len(kind), size, self.committed, content_digest, digest)
            parts += [b"E", head, CHECK.pack(crc32(head)), kind, entry.content]
            end += 1 + ENTRY.size + CHECK.size + len(kind)
            added.append((_Place(segment, end, entry.kind, size, content_digest), digest))
            end += size
        self._write(*parts)
        for entry, (place, digest) in zip(entries, added, strict=True):
            self._add(place, digest)
            self._recent[self.last] = entry
        held = sum(len(entry.content) for entry in self._recent.values())
        while held > RECENT_BYTES and len(self._recent) > 1:
            held -= len(self._recent.pop(next(iter(self._recent))).content)

    def truncate(self, after: int) -> None:
        """Drop the entries after an index, none of which is committed."""
        if after < self.last:
            self._shorten(after)
            self._begin_segment()

    def _shorten(self, after: int) -> None:
        super().truncate(after)
        del self._places[after - self.base :]
        self._recent = {index: each for index, each in self._recent.items() if index <= after}

    def _forget(self, upto: int) -> None:
        """Forget the segments that have no later entries."""
        numbers = [number for number, index in self._segments.items() if index <= upto]
        base = self._segments[numbers[-1]] if numbers else self.base
        if base > self.base:
            del self._places[: base - self.base]
            super()._forget(base)
            self._recent = {index: each for index, each in self._recent.items() if index > base}
            self._keep_from(numbers[-1])

    def _keep_from(self, first: int) -> None:
        for number in [number for number in self._segments if number < first]:
            self._path(number).unlink(missing_ok=True)
            del self._segments[number]

    def reset(self, index: int, digest: bytes) -> None:
        """Forget everything and begin after an index: a state stands for what came before."""
        super().reset(index, digest)
        self._places, self._recent = [], {}
        self._begin_segment()
        self._keep_from(max(self._segments))

    def keep(self, view: int, normal: int, doubtful: bool) -> None:
        """Keep what has to outlive a restart besides the entries."""
        super().keep(view, normal, doubtful)
        state = STATE.pack(view, normal, self.committed, doubtful)
        self._write(b"S", state, CHECK.pack(crc32(state)))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _checked(file: BinaryIO, form: struct.Struct) -> tuple[Any, ...] | None:
    """Read values with a checksum; None if they are not whole."""
    written = file.read(form.size + CHECK.size)
    if len(written) < form.size + CHECK.size:
        return None
    if CHECK.pack(crc32(written[: form.size])) != written[form.size :]:
        return None
    return form.unpack(written[: form.size])


def _is_whole(file: BinaryIO, size: int) -> bool:
    """Whether a record that cannot be read has at least the length that it should have."""
    kind_of_record = file.read(1)
    if kind_of_record == b"E" and (head := _checked(file, ENTRY)) is not None:
        return file.tell() + int(head[0]) + int(head[1]) <= size
    return size - file.tell() >= ENTRY.size + CHECK.size


def _boot() -> bytes:
    """Return a name of the time since the machine was started; another one where it is not told."""
    try:
        return bytes.fromhex(read_text(BOOT, "ascii").strip().replace("-", ""))
    except (OSError, ValueError):
        return os.urandom(16)
