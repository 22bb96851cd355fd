"""Rows of an experiment that is done in pieces: what is there is not done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from fedtopics.files import cut_half_line

T = TypeVar("T")
Naming = Callable[[T], dict[str, Any]]
Working = Callable[[T], dict[str, Any]]
OnEvent = Callable[[dict[str, Any]], None]


def digest(content: str) -> str:
    """Return what a row says of all that its result is made of."""
    return hashlib.sha256(content.encode()).hexdigest()[:16]


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

    def fill(
        self,
        tasks: Iterable[T],
        name: Naming[T],
        work: Working[T],
        title: Callable[[T], str],
        on_event: OnEvent,
    ) -> None:
        """Work the tasks that have no row yet, with an event {"event": "model"} before each."""
        todo = [task for task in tasks if not self.find(name(task))]
        for number, task in enumerate(todo):
            event = {"event": "model", "name": title(task), "done": number, "models": len(todo)}
            on_event(event)
            self.keep(name(task) | work(task))
        on_event({"event": "model", "name": "", "done": len(todo), "models": len(todo)})

    def keep(self, row: dict[str, Any]) -> dict[str, Any]:
        """Write a row down and return it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._rows.append(row)
        return row
