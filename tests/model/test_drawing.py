"""What draws figures is native code: whatever it does, the process that asked for them goes on."""

from __future__ import annotations

import json
import socket
from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest

from fedtopics.errors import FedTopicsError
from fedtopics.model import figures
from tests.helpers.hostile import HOSTILE_WORDS, NO_WORDS, unchecked


def texts(svg: str) -> list[str]:
    """The texts in a figure, which must be XML."""
    picture = ElementTree.fromstring(svg)  # noqa: S314 - ours
    return [element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text")]


def bar(name: str) -> Any:
    """A figure with a text as it is, which nothing has made harmless."""
    import altair as alt

    return (
        alt.Chart(alt.Data(values=[{"name": name, "x": 1}])).mark_bar().encode(x="x:Q", y="name:N")
    )


def test_a_figure_that_aborts_takes_no_other_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    """What draws ends its process at these characters: SIGABRT."""
    names = ["oak", "\x1b[31m", "elm", "\x00", "\uffff", "fir"]
    drawn = figures.svgs([partial(bar, name) for name in names])
    assert [svg is not None for svg in drawn] == [True, False, True, False, False, True]
    for svg, name in zip(drawn, names, strict=True):
        assert svg is None or name in texts(svg)
    assert capfd.readouterr() == ("", ""), "nor does it say so to the terminal"


def test_a_figure_that_cannot_be_made() -> None:
    class Nonsense:
        def to_dict(self) -> Any:
            return {"mark": {"type": "no such mark"}}

    def fails() -> Any:
        raise RuntimeError

    drawn = figures.svgs([Nonsense, fails, partial(bar, "oak")])  # type: ignore[list-item]
    assert [svg is None for svg in drawn] == [True, True, False]


def test_a_figure_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "PATIENCE", 0.0)
    with pytest.raises(FedTopicsError, match="The figure could not be drawn"):
        figures.svg(bar("oak"))


def test_without_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert figures.svgs([partial(bar, "oak")]) == [None]


def test_a_figure_loads_nothing() -> None:
    """There is no data but what the figure has: nobody is asked for any."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        chart = bar("oak")
        chart.data = {"url": f"http://127.0.0.1:{server.getsockname()[1]}/x.json"}
        (svg,) = figures.svgs([lambda: chart])
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "oak" not in str(svg)


def test_no_word_crashes_what_draws_or_ends_a_script() -> None:
    rows = unchecked().get_topic_info(3)
    for number, text in enumerate([*NO_WORDS, *HOSTILE_WORDS]):
        rows.append(rows[0] | {"topic": 3 + number, "label": "", "words": [text], "share": 0.01})
    charts = [
        figures.topic_shares(rows),
        figures.clients_by_topics(rows),
    ]
    assert None not in figures.svgs([lambda chart=chart: chart for chart in charts])  # type: ignore[misc]
    for chart in charts:
        assert "<" not in json.dumps(chart.to_dict()), "some pages have it in a script as it is"
