"""How far a run is, on a terminal and in a log."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from fedtopics.federation import progress
from fedtopics.federation.progress import Progress

TRAINING = {"event": "training", "done": 0, "rounds": 10}


class Shown:
    """A run's progress on a screen, by a clock that stands still, and the lines of its log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, terminal: bool = False) -> None:
        self.now, self.lines, self.screen = 1000.0, list[str](), io.StringIO()
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        console = Console(
            file=self.screen, force_terminal=terminal, width=100, get_time=lambda: self.now
        )
        self.progress = Progress(console, self.lines.append)

    def rounds(self, first: int, last: int, seconds: float, **more: Any) -> None:
        for number in range(first, last + 1):
            self.now += seconds
            self.progress({"event": "round", "round": number} | more)


def test_what_events_say(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    shown.progress({"event": "vocabulary", "words": 3})
    for done in (5, 10):
        shown.progress({"event": "embedding", "client": "a", "done": done, "documents": 20})
        shown.now += 1
    assert str(shown.progress) == "embedding a 10 of 20"
    shown.progress(TRAINING)
    assert str(shown.progress) == "round 0 of 10"
    shown.rounds(1, 3, 2.0, loss=4.126)
    assert str(shown.progress) == "round 3 of 10, loss 4.13, 14 s left"
    shown.rounds(4, 10, 2.0)
    assert str(shown.progress) == "round 10 of 10"


def test_time_left_is_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of before an interruption took it no time."""
    shown = Shown(monkeypatch)
    shown.progress({"event": "training", "done": 5, "rounds": 10})
    shown.rounds(6, 7, 200.0)
    assert str(shown.progress) == "round 7 of 10, 10 min left"


def test_a_log_has_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch)
    with shown.progress as running:
        running(TRAINING)
        shown.rounds(1, 9, 20.0)
    assert [line.partition(",")[0] for line in shown.lines] == [
        "round 3 of 10", "round 6 of 10", "round 9 of 10",
    ]  # fmt: skip
    assert shown.screen.getvalue() == ""


def test_a_log_of_nothing_is_empty(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Shown(monkeypatch)
    with shown.progress:
        pass
    assert shown.lines == []
    with Progress(Console(file=shown.screen)) as running:
        running(TRAINING | {"rounds": 0})
    assert capsys.readouterr().err == "round 0 of 0\n"


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, terminal=True)
    with shown.progress as running:
        running({"event": "embedding", "client": "[red]", "done": 1, "documents": 2})
        assert "[red]" in shown.screen.getvalue()
        running(TRAINING)
        shown.rounds(4, 4, 1.0, loss=2.5)
    assert "4/10" in shown.screen.getvalue()
    assert "loss 2.50" in shown.screen.getvalue()
    assert shown.lines == []
