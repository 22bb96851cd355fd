"""The log of a plain server: a file per entry, each written before anybody gets it."""

import hashlib
import os
import threading
from pathlib import Path

from fedtopics.errors import FedTopicsError
from fedtopics.files import make_folder, read_bytes, write_durably

NAME = "{:012d}.entry"  # of a file, by its step
DIGEST = 32  # bytes of SHA-256 before an entry


class Log:
    """Entries by step in files; `step` is the first one whose result no checkpoint has."""

    def __init__(self, folder: Path, step: int) -> None:
        make_folder(folder)
        self._folder = folder
        self._lock = threading.Lock()
        self._checkpoint = step  # of the last checkpoint
        run = folder / "run"
        if not run.exists():
            write_durably(run, os.urandom(16))
        self.run = read_bytes(run)
        self._steps = {int(path.stem) for path in folder.glob("*.entry") if _is_intact(path)}
        # Entries may be lost; the checkpoint has the results of those before it.
        self.next = max(step, 1 + max(self._steps, default=-1))

    def _path(self, step: int) -> Path:
        return self._folder / NAME.format(step)

    def has(self, step: int) -> bool:
        return step in self._steps

    def get(self, step: int) -> bytes | None:
        with self._lock:
            return read_bytes(self._path(step))[DIGEST:] if self.has(step) else None

    def append(self, content: bytes) -> None:
        """Write the next entry, and wait until it is on the disk."""
        try:
            write_durably(self._path(self.next), hashlib.sha256(content).digest() + content)
        except OSError as error:
            raise FedTopicsError(
                f"The log in {self._folder} cannot be written: {error.strerror}; make room or "
                "repair the disk, then start the same command again."
            ) from None
        self._steps.add(self.next)
        self.next += 1

    def cut(self) -> None:
        """Forget entries before the last checkpoint: clients that are behind need those since."""
        with self._lock:
            for step in [step for step in self._steps if step < self._checkpoint < self.next]:
                self._path(step).unlink()
                self._steps.remove(step)
            self._checkpoint = self.next


def _is_intact(path: Path) -> bool:
    """Whether an entry is complete and unchanged."""
    content = read_bytes(path)
    return hashlib.sha256(content[DIGEST:]).digest() == content[:DIGEST]
