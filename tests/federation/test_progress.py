"""How far a run is, on a terminal, in a notebook and in a log."""

from __future__ import annotations

import io
import sys
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from fedtopics.federation import progress
from fedtopics.federation.progress import Bar, Cell, Lines, Progress, Seen

TRAINING = {"event": "training", "done": 0, "rounds": 10}


def ended(number: int, **more: Any) -> dict[str, Any]:
    return {"event": "round", "round": number, "documents": 100, "seconds": 0.5} | more


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    for name in ("monotonic", "time"):
        monkeypatch.setattr(progress.time, name, lambda: now[0])
    return now


def test_what_events_say(clock: list[float]) -> None:
    seen = Seen()
    assert not seen.take({"event": "vocabulary", "words": 3})
    assert seen.take({"event": "embedding", "client": "a", "done": 5, "documents": 20})
    assert str(seen) == "embedding a 5 of 20"
    assert seen.take(TRAINING)
    assert str(seen) == "round 0 of 10"
    clock[0] += 6
    assert seen.take(ended(3, loss=4.126))
    assert str(seen) == "round 3 of 10, loss 4.13, 14 s left"
    assert seen.speed == 200
    seen.take(ended(10))
    assert str(seen) == "round 10 of 10"


def test_time_left_is_of_this_process(clock: list[float]) -> None:
    """Rounds of before an interruption took it no time."""
    seen = Seen()
    seen.take({"event": "training", "done": 5, "rounds": 10})
    clock[0] += 2
    seen.take(ended(6))
    assert str(seen) == "round 6 of 10, 8 s left"


def test_time_left_of_a_file() -> None:
    """Events have their times there; a resumed run is slower, and what went before is not of it."""
    seen = Seen()
    seen.take(TRAINING | {"time": 100.0})
    seen.take(ended(1, time=200.0))
    assert seen.left == 900
    seen.take({"event": "training", "done": 1, "rounds": 10, "time": 5000.0})
    assert seen.left is None
    seen.take(ended(2, time=5030.0))
    assert (seen.left, str(seen)) == (240, "round 2 of 10, 4 min left")


def test_a_log_has_a_line_a_minute(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    lines, seen = Lines(), Seen()
    lines.close(seen)
    seen.take(TRAINING)
    for number in range(1, 10):
        clock[0] += 20
        seen.take(ended(number))
        lines.show(seen)
    lines.close(seen)
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in shown] == [
        "round 3 of 10", "round 6 of 10", "round 9 of 10",
    ]  # fmt: skip


class Handle:
    def __init__(self, shown: list[Any]) -> None:
        self.shown = shown

    def update(self, data: Any, raw: bool) -> None:
        assert raw
        self.shown.append(data)


def test_a_notebook_has_one_line_that_changes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    changes: list[Any] = []

    def display(data: Any, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        begun.append(data)
        return Handle(changes)

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(Console, "is_jupyter", True, raising=False)
    monkeypatch.setattr(Console, "__init__", lambda self, **_: None)
    with Progress() as show:
        show(TRAINING)
        for number in range(1, 11):  # faster than a cell changes
            clock[0] += 0.1
            show(ended(number))
    assert begun == [
        {
            "text/plain": "round 0 of 10",
            "text/html": '<progress value="0" max="10"></progress> round 0 of 10',
        }
    ]
    assert [data["text/plain"].partition(",")[0] for data in changes] == [
        "round 3 of 10", "round 6 of 10", "round 9 of 10", "round 10 of 10",
    ]  # fmt: skip


def test_a_name_is_no_markup() -> None:
    seen = Seen()
    seen.take({"event": "embedding", "client": "<b>", "done": 1, "documents": 2})
    cell = object.__new__(Cell)
    shown: list[Any] = []
    cell._display, cell._handle, cell._shown = None, Handle(shown), 0.0
    cell.show(seen)
    assert "<b>" not in shown[0]["text/html"]


def test_a_terminal_has_a_bar() -> None:
    screen = io.StringIO()
    bar, seen = Bar(Console(file=screen, force_terminal=True, width=100)), Seen()
    for event in (TRAINING, ended(4, loss=2.5)):
        seen.take(event)
        bar.show(seen)
    bar.close(seen)
    assert "4/10" in screen.getvalue()
    assert "loss 2.50" in screen.getvalue()
