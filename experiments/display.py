"""What an experiment shows on a terminal: which model is trained, its tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from rich import box
from rich import table as rich_table
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from experiments.report import Table
from fedtopics.cli.display import console, print_json, say


class ModelProgress:
    """Show which model is being trained, and how many are left; a line a model if not a terminal.

    Parameters
    ----------
    hidden : bool
        Show nothing.
    """

    def __init__(self, hidden: bool) -> None:
        self._hidden = hidden
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
        if event["event"] == "model":
            self._model = event["name"]
            self._bar.update(
                self._task,
                description=self._model,
                completed=event["done"],
                total=event["models"],
            )
            if not self._hidden and not console.is_terminal and self._model:
                say(f"{event['done'] + 1} of {event['models']}: {self._model}")
        elif event["event"] == "embedding":
            description = f"embedding {event['client']}"
            done, documents = event["done"], event["documents"]
            self._bar.update(self._task, description=description, completed=done, total=documents)
            if not self._hidden and not console.is_terminal and done == documents:
                say(f"{description}: {documents:,} documents")
        elif event["event"] == "round":
            description = f"{self._model}, round {event['round']:,}"
            self._bar.update(self._task, description=description)


def finish(results: Any, settings: Any, rows: Any, as_json: bool) -> None:
    """Write an experiment's results, by its module of results, and print them."""
    written = results.write_results(settings, rows)
    if as_json:
        print_json(results.plain(settings, rows))
        return
    print_tables(results.tables(settings, rows), results.sentences(settings, rows))
    say(f"\nWritten to {settings.folder}: {', '.join(path.name for path in written)}.")


def print_tables(tables: Iterable[Table], sentences: Iterable[str]) -> None:
    """Print what an experiment found."""
    for table in tables:
        _print_table(table)
    for sentence in sentences:
        say(f"- {sentence}")


def _print_table(table: Table) -> None:
    """Print a table with its numbers to the right."""
    say(table.title, "bold")
    shown = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, cells in enumerate(zip(table.header, *table.rows, strict=True)):
        side: Literal["left", "right"] = "right" if number else "left"
        shown.add_column(cells[0], justify=side, min_width=max(map(len, cells)))
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown, crop=False)  # a narrow terminal folds it, which is better than less
