"""The progress of a run (ProgressDisplay): a bar on a terminal; elsewhere, one line per minute.

Also how durations are written, until when a run waits, and how its records get an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from fedtopics.contract.events import Event, Failed, WaitsFor
from fedtopics.errors import FedTopicsError
from fedtopics.protocol.link import NotYetError, reason_of

if TYPE_CHECKING:
    from rich.console import Console

MINUTE = 60.0
DAY = 24  # hours


def duration(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> duration(14.2), duration(600), duration(9000)
    ('14 s', '10 min', '2 h 30 min')
    """
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    if hours >= 2 * DAY:
        return f"{hours / DAY:,.0f} days"
    return f"{hours:,} h {minutes} min" if hours > 1 else f"{60 * hours + minutes} min"


def end_of_wait(event: Mapping[str, Any]) -> str:
    """Say until when a run waits, and what happens then."""
    if (left := event.get("left")) is None:
        return "the run continues when they are there"
    return (
        f"after {duration(left)} a quorum continues without them"
        if event["event"] == "waiting" and not event.get("ends")
        else f"the run continues when they are there, or ends after {duration(left)}; it can resume"
    )


@contextmanager
def recording(notify: Callable[[Event], None]) -> Iterator[None]:
    """Notify of an error that ends a process."""
    try:
        yield
    except NotYetError as news:  # the command is started again later
        notify(WaitsFor(news.waiting, 0.0, None))
        raise
    except FedTopicsError as error:
        notify(Failed(str(error), error.exit_code))
        raise
    except Exception as error:  # exit codes as of the command line
        notify(Failed(reason_of(error), 1 if isinstance(error, (OSError, MemoryError)) else 70))
        raise


class ProgressDisplay:
    """Shows the progress of a run from its events: a `bar` on terminals, else lines by `say`."""

    def __init__(
        self,
        console: Console | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        from rich import progress
        from rich.console import Console

        console = console or Console(stderr=True)
        self._lines = not console.is_terminal
        self._say = say or partial(print, file=sys.stderr, flush=True)
        self._last_line = ""
        self._when = time.monotonic()
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.MofNCompleteColumn(),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[loss]}"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=self._lines,
            speed_estimate_period=60 * MINUTE,  # a round may take minutes
        )
        self._bar.add_task("", total=None, visible=False, loss="")
        (self._task,) = self._bar.tasks

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._say_line()

    def __call__(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "training":
                self._count("round", event["done"], event["rounds"], begins=True)
            case "embedding":
                what = f"embedding {event.get('client') or ''}".strip()
                self._count(
                    what, event["done"], event["documents"], begins=what != self._task.description
                )
            case "round":
                self._bar.update(
                    self._task.id,
                    description="round",
                    completed=event["round"],
                    loss=f"loss {event['loss']:.2f}" if "loss" in event else "",
                )
            case "stopped":  # no round follows
                self._bar.update(self._task.id, total=event["round"], completed=event["round"])
            case _:
                return
        if time.monotonic() - self._when >= MINUTE or self._task.completed == self._task.total:
            self._say_line()

    def _count(self, what: str, done: int, total: int, begins: bool) -> None:
        if begins:  # rounds of earlier processes do not count for the speed
            self._bar.reset(
                self._task.id,
                completed=done,
                total=total,
                description=what,
                visible=True,
                loss="",
            )
        else:
            self._bar.update(self._task.id, completed=done)

    def _say_line(self) -> None:
        self._when = time.monotonic()
        if self._lines and self._task.description and self._last_line != str(self):
            self._last_line = str(self)
            self._say(self._last_line)

    def __str__(self) -> str:
        task = self._task
        left = self._task.time_remaining
        counted = f"{task.description} {task.completed:,.0f} of {task.total or 0:,.0f}"
        shown = f"{duration(left)} left" if left else ""
        return ", ".join(filter(None, [counted, task.fields["loss"], shown]))
