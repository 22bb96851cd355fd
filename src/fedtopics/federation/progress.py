"""How far a run is: a bar on a terminal, a changing line in a notebook, else a line a minute."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fedtopics.harmless import for_html

if TYPE_CHECKING:
    from rich.console import Console

MEMORY = 0.95  # of the speed that is shown, how much is that of the rounds before
MINUTE = 60.0
OFTEN, SELDOM = 0.25, MINUTE  # seconds between two changes of a cell, and between two lines


@dataclass
class Seen:
    """What the events so far say of a run's progress."""

    what: str = ""  # is counted: "round", or "embedding" and a client
    done: int = 0
    total: int | None = None
    loss: float = math.nan
    speed: float = 0.0  # documents a second
    pace: float = math.nan  # seconds for one of what is counted, since it began
    _began: float = field(default_factory=time.time)
    _before: int = 0  # done when it began

    def take(self, event: Mapping[str, Any]) -> bool:
        """Take an event in, now or of a file; return whether it says how far the run is."""
        kind, now = event["event"], event.get("time", time.time())
        if kind == "training":
            self.what = ""  # of an earlier process, which took another time
            self._count("round", event["done"], event["rounds"], now)
        elif kind == "embedding":
            client = event.get("client", "")
            self._count(f"embedding {client}".strip(), event["done"], event["documents"], now)
        elif kind == "round":
            self._count("round", event["round"], self.total, now)
            self.loss = event.get("loss", math.nan)
            speed = event.get("documents", 0) / max(event["seconds"], 1e-9)
            self.speed = MEMORY * (self.speed or speed) + (1 - MEMORY) * speed
        else:
            return False
        return True

    def _count(self, what: str, done: int, total: int | None, now: float) -> None:
        if what != self.what:
            self._began, self._before, self.pace = now, done, math.nan
        self.what, self.done, self.total = what, done, total
        if self.done > self._before:
            self.pace = max(now - self._began, 0.0) / (self.done - self._before)

    @property
    def left(self) -> float | None:
        """Seconds until all is done, if nothing ends it before; None where nobody knows."""
        if not self.total or math.isnan(self.pace) or self.done >= self.total:
            return None
        return self.pace * (self.total - self.done)

    def __str__(self) -> str:
        parts = [f"{self.what} {self.done:,} of {self.total or 0:,}"]
        if not math.isnan(self.loss):
            parts.append(f"loss {self.loss:.2f}")
        if self.left is not None:
            parts.append(f"{duration(self.left)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Say how long something takes, for people.

    Examples
    --------
    >>> duration(14.2), duration(600), duration(9000)
    ('14 s', '10 min', '2 h 30 min')
    """
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / MINUTE), 60)
    return f"{hours:,} h {minutes} min" if hours > 1 else f"{60 * hours + minutes} min"


class Display(Protocol):
    """What shows how far a run is."""

    def show(self, seen: Seen) -> None:
        """Show it, unless it was shown a moment ago."""

    def close(self, seen: Seen) -> None:
        """Show how far it came."""


class Progress:
    """Show how far a run is, in a with statement; it is called with each event of `train`."""

    def __enter__(self) -> Progress:
        from rich.console import Console

        console = Console(stderr=True)
        self._seen = Seen()
        self._display: Display = (
            Cell() if console.is_jupyter else Bar(console) if console.is_terminal else Lines()
        )
        return self

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Take an event in, and show what it changes."""
        if self._seen.take(event):
            self._display.show(self._seen)

    def __exit__(self, *_: object) -> None:
        self._display.close(self._seen)


class Bar:
    """A bar of rich; where the console is no terminal, nothing."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.progress import TimeRemainingColumn as Remaining

        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.2f}  {task.fields[speed]:,.0f} documents/s  left"),
            Remaining(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, loss=math.nan, speed=0.0)
        self._bar.start()

    def show(self, seen: Seen) -> None:
        """Draw how far the run is."""
        self._bar.update(
            self._task,
            description=seen.what,
            completed=seen.done,
            total=seen.total,
            loss=seen.loss,
            speed=seen.speed,
        )

    def close(self, seen: Seen) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


class Cell:
    """A line of HTML below a notebook's cell, which changes; without widgets."""

    def __init__(self) -> None:
        self._display = import_module("IPython.display").display
        self._handle: Any = None
        self._shown = -math.inf

    def show(self, seen: Seen) -> None:
        """Change the line, a few times a second at most."""
        if time.monotonic() - self._shown < OFTEN:
            return
        self._shown = time.monotonic()
        bar = f'<progress value="{seen.done}" max="{seen.total or 1}"></progress>'
        shown = {"text/plain": str(seen), "text/html": f"{bar} {for_html(str(seen))}"}
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)

    def close(self, seen: Seen) -> None:
        """Show how far it came."""
        self._shown = -math.inf
        if seen.what:
            self.show(seen)


class Lines:
    """A line a minute, where nothing that is shown can change: logs, pipes."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or partial(print, file=sys.stderr, flush=True)
        self._shown = time.monotonic()
        self._said = ""

    def show(self, seen: Seen) -> None:
        """Print a line if the last one is a minute old, or all is done."""
        if time.monotonic() - self._shown >= SELDOM or seen.done == seen.total:
            self.close(seen)

    def close(self, seen: Seen) -> None:
        """Print how far it came."""
        self._shown = time.monotonic()
        if seen.what and self._said != str(seen):
            self._said = str(seen)
            self._say(self._said)
