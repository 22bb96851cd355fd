"""Rows of an experiment that is done in pieces: what is there is not done again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedtopics.lines import cut_half_line


class Rows:
    """A file of JSON lines, a line a run.

    Parameters
    ----------
    path : path
        Made with its folder when the first row is kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[dict[str, Any]] = []
        if path.exists():
            cut_half_line(path)
            self._rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def find(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        """Return the row that has all of this."""
        return next((row for row in self._rows if wanted.items() <= row.items()), None)

    def keep(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write a row down and return it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return row
