"""The log of a plain server: entries on disk, each written before anybody gets it."""

import hashlib
import os
import threading
from pathlib import Path
from typing import Any

from fedtopics.errors import FedTopicsError
from fedtopics.files import make_folder, open_file, open_private, read_bytes, write_durably

HEAD = 8 + 32  # bytes before an entry: its size, and the SHA-256 of its step and content
NAME = "{:012d}.entries"  # of a file, by its first step


class Log:
    """Entries by step in files; `step` is the first one whose result no checkpoint has."""

    def __init__(self, folder: Path, step: int) -> None:
        make_folder(folder)
        self._folder = folder
        self._lock = threading.Lock()
        self._places: dict[int, tuple[Path, int, int]] = {}  # file, begin and size
        run = folder / "run"
        if not run.exists():
            write_durably(run, os.urandom(16))
        self.run = read_bytes(run)
        self.next = 0
        path = folder / NAME.format(0)
        for path in sorted(folder.glob("*.entries")):
            self._scan(path)
        if self.next < step:  # entries were lost; the checkpoint has their results
            self.next = step
            self._places = {}
            path = folder / NAME.format(step)
        self._file: Any = None
        self._open(path)

    def _scan(self, path: Path) -> None:
        """Find the entries of a file; cut off an incomplete end, which a crash left."""
        first = int(path.name.partition(".")[0])
        if first != self.next:
            self._places = {}  # entries in between are lost, so older ones are useless
        self.next = first
        place = 0
        length = path.stat().st_size
        with open_file(path, "rb+") as file:
            while place + HEAD <= length:
                file.seek(place)
                head = file.read(HEAD)
                size = int.from_bytes(head[:8], "big")
                is_whole = place + HEAD + size <= length
                if not is_whole or _head(self.next, file.read(size)) != head:
                    break
                self._places[self.next] = path, place + HEAD, size
                self.next += 1
                place += HEAD + size
            file.truncate(place)

    def _open(self, path: Path) -> None:
        if not path.exists():
            write_durably(path, b"")  # so that the folder has it after a power failure
        if self._file is not None:
            self._file.close()
        self._path = path
        self._file = open_private(path, "ab", buffering=0)

    def has(self, step: int) -> bool:
        return step in self._places

    def get(self, step: int) -> bytes | None:
        with self._lock:
            if step not in self._places:
                return None
            path, begin, size = self._places[step]
            with open_file(path) as file:
                file.seek(begin)
                content: bytes = file.read(size)
                return content

    def append(self, content: bytes) -> None:
        """Write the next entry, and wait until it is on the disk."""
        with self._lock:
            try:
                begin = self._path.stat().st_size + HEAD
                left = memoryview(_head(self.next, content) + content)
                while left:  # the system may write less than asked
                    left = left[self._file.write(left) :]
                os.fsync(self._file.fileno())
            except OSError as error:
                raise FedTopicsError(
                    f"The log in {self._folder} cannot be written: {error.strerror}; make room or "
                    "repair the disk, then start the same command again."
                ) from None
            self._places[self.next] = self._path, begin, len(content)
            self.next += 1

    def cut(self) -> None:
        """Begin a new file at a checkpoint; keep the previous one for clients that are behind."""
        path = self._folder / NAME.format(self.next)
        with self._lock:
            if path == self._path:
                return
            last = self._path
            self._open(path)
            self._places = {step: p for step, p in self._places.items() if p[0] == last}
            for old in self._folder.glob("*.entries"):
                if old not in (last, path):
                    old.unlink()

    def close(self) -> None:
        self._file.close()


def _head(step: int, content: bytes) -> bytes:
    digest = hashlib.sha256(step.to_bytes(8, "big"))
    digest.update(content)
    return len(content).to_bytes(8, "big") + digest.digest()
