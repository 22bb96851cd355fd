"""Files of lines that only grow: ledgers, events, rows of experiments."""

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
