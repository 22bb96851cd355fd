"""A disk that is full at each write once: what a program writes to it fails, then succeeds."""

import errno
import io
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MOST = 30  # writes of a process to a file that fail; a failed step of plain aggregation adds some


class FullDisk:
    """Fails the n-th write of a process to each file once, for n up to MOST; if `torn`, half-way.

    `restart` begins the count of another process, which gets at least one write further.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        holds: Callable[[Path], bool],
        torn: bool,
    ) -> None:
        self.failures: set[tuple[str, int]] = set()
        self._holds = holds
        self._torn = torn
        self._writes: Counter[str] = Counter()
        self._open = io.open
        self._fsync = os.fsync
        for place in ("io.open", "builtins.open"):
            monkeypatch.setattr(place, self._opened)
        monkeypatch.setattr("os.fsync", self._synced)

    def restart(self) -> None:
        self._writes.clear()

    def is_full(self, path: Path) -> bool:
        """Whether the next write to a file fails, as it does once."""
        name = re.sub(r"(\.[0-9a-f]{8})?\.tmp$", "", path.name)
        self._writes[name] += 1
        write = name, self._writes[name]
        if write in self.failures or self._writes[name] > MOST:
            return False
        self.failures.add(write)
        return True

    def _opened(self, file: Any, mode: str = "r", *given: Any, **how: Any) -> Any:
        opened = self._open(file, mode, *given, **how)
        path = Path(f"/proc/self/fd/{opened.fileno()}").readlink()
        return opened if mode in ("r", "rb") or not self._holds(path) else _File(self, opened, path)

    def _synced(self, handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        path = Path(f"/proc/self/fd/{number}").readlink()
        if path.is_file() and self._holds(path) and self.is_full(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._fsync(handle)


class _File:
    """A file on the disk."""

    def __init__(self, disk: FullDisk, file: Any, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path

    def write(self, content: Any) -> int:
        if self._disk.is_full(self._path):
            if self._disk._torn:
                self._file.write(content[: len(content) // 2])
                self._file.flush()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._file.write(content))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)
