"""Files that outlive a crash: written as a whole or not at all, or grown line by line."""

from __future__ import annotations

import os
from pathlib import Path

TAIL = 1 << 16  # bytes


def cut_half_line(path: Path) -> None:
    """Take away the half line that a full disk or a crash can leave at the end of a file."""
    with path.open("rb+") as file:
        end = place = file.seek(0, os.SEEK_END)
        while place > 0:
            place = max(0, place - TAIL)
            file.seek(place)
            newline = file.read(TAIL).rfind(b"\n")
            if newline >= 0:
                place += newline + 1
                break
        if place < end:
            file.truncate(place)


def write_durably(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file, over an older one if there is one: all of it or nothing, even if power fails.

    Parameters
    ----------
    path : path
    content : bytes
    private : bool
        Only its owner can read it.

    Raises
    ------
    OSError
        If it cannot be written; the older file is untouched.
    """
    beside = path.with_name(path.name + ".tmp")
    beside.unlink(missing_ok=True)
    create(beside, content, private)
    try:
        beside.replace(path)
    except BaseException:
        beside.unlink()
        raise


def create(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file that is not there yet, to the disk itself; what failed leaves no half of it.

    Parameters
    ----------
    path, content, private
        As of `write_durably`.

    Raises
    ------
    FileExistsError
        If there is a file of that name.
    OSError
        If it cannot be written.
    """
    mode = 0o600 if private else 0o666  # less what the umask takes away
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
