"""What an experiment prints: which model is trained, its tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from experiments.report import QUICK, Table, unpublished
from fedtopics.terminal.display import console, print_json, say


class ModelProgress:
    """Show which model is being trained, and how many are left; a line a model if not a terminal.

    Parameters
    ----------
    hidden : bool
        Show nothing.
    """

    def __init__(self, hidden: bool) -> None:
        self._lines = not hidden and not console.is_terminal
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=hidden or not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._model = ""

    def __enter__(self) -> ModelProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show an event of the experiment or of a training."""
        shown: dict[str, Any] = {}
        if event["event"] == "model":
            self._model = event["name"]
            shown = {"completed": event["done"], "total": event["models"]}
            if self._lines and self._model:
                say(f"{event['done'] + 1} of {event['models']}: {self._model}")
        elif event["event"] == "embedding":
            done = event["done"]
            total = event["documents"]
            shown = {"completed": done, "total": total}
            if self._lines and done == total:
                say(f"embedding {event['client']}: {total:,} documents")
        elif event["event"] != "round":
            return
        where = f", round {event['round']:,}" if event["event"] == "round" else ""
        where = f", embedding {event['client']}" if event["event"] == "embedding" else where
        self._bar.update(self._task, description=self._model + where, **shown)


def finish(results: Any, settings: Any, reproduce: Callable[..., Any], as_json: bool) -> None:
    """Run an experiment; write its results, by its module of results, and print them."""
    with ModelProgress(hidden=as_json) as display:
        rows = reproduce(settings, display)
    written = results.write_results(settings, rows)
    content = results.plain(settings, rows)
    tables = results.tables(settings, rows)
    if as_json:
        print_json(content)
        return
    if settings.quick:
        say(f"{QUICK}\n", "bold")
        tables = map(unpublished, tables)
    print_tables(tables, content["findings"])
    say(f"\nWritten to {settings.folder}: {', '.join(path.name for path in written)}.")


def print_tables(tables: Iterable[Table], sentences: Iterable[str]) -> None:
    """Print what an experiment found, tables in Markdown with aligned columns."""
    for table in tables:
        columns = list(zip(table.header, *table.rows, strict=True))
        widths = [max(map(len, cells)) for cells in columns]
        say(f"{table.title}\n", "bold")
        for row in (table.header, *table.rows):
            first, *others = (
                cell.rjust(width) if number else cell.ljust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            say("  ".join([first, *others]))
        say("")
    for sentence in sentences:
        say(f"- {sentence}")
