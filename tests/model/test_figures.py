"""Figures draw the numbers they are given, need no host, and are legible on any page."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from importlib.util import find_spec
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics.errors import FedTopicsError
from fedtopics.harmless import for_scripts
from fedtopics.model import figures
from tests.helpers.hostile import hostile
from tests.helpers.models import made

pytestmark = pytest.mark.usefixtures("drawn_here")
ROWS = made().get_topic_info(3)
NAMES = ["1 __init__ flu tea", "0 Trees | shrubs", "2 oak elm flu"]
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
POINTS = np.array([[0.5, 0.5], [-0.5, 0.25], [0.0, -1.0]])


def rows_of(chart: Any) -> list[dict[str, Any]]:
    """What a chart draws."""
    found: list[dict[str, Any]] = chart.to_dict()["data"]["values"]
    return found


def cells_of(chart: Any, value: str) -> dict[tuple[str, str], float]:
    """What a heat map draws, by column and row."""
    encoding = chart.to_dict()["layer"][0]["encoding"]
    across, down = encoding["x"]["field"], encoding["y"]["field"]
    return {(row[across], row[down]): row[value] for row in rows_of(chart)}


def drawn(chart: Any) -> ElementTree.Element:
    """A figure as SVG, which must be XML."""
    return ElementTree.fromstring(figures.svg(chart))  # noqa: S314 - ours


def texts(picture: ElementTree.Element) -> list[str]:
    """The texts in a figure."""
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


# Values


def test_a_bar_is_a_share() -> None:
    chart = figures.topic_shares(ROWS)
    assert [(row["name"], row["share"]) for row in rows_of(chart)] == [
        (NAMES[0], 0.4375),
        (NAMES[1], 0.375),
        (NAMES[2], 0.1875),
    ]
    assert chart.to_dict()["encoding"]["x"]["field"] == "share"
    assert [text for text in texts(drawn(chart)) if text in NAMES] == NAMES


def test_clients_by_topics() -> None:
    chart = figures.clients_by_topics(ROWS)
    assert cells_of(chart, "of_client") == {
        ("north", NAMES[0]): 0.25,
        ("south", NAMES[0]): 1.0,
        ("north", NAMES[1]): 0.5,
        ("south", NAMES[1]): 0.0,
        ("north", NAMES[2]): 0.25,
        ("south", NAMES[2]): 0.0,
    }


def without(hidden: set[tuple[int, str]]) -> list[dict[str, Any]]:
    """The rows, of which some clients' shares are not there."""
    return [
        row
        | {"clients": {n: None if (row["topic"], n) in hidden else v for n, v in clients.items()}}
        for row in ROWS
        for clients in [row["clients"]]
    ]


def test_hidden_cells_are_not_in_the_figure() -> None:
    chart = figures.clients_by_topics(without({(1, "north"), (2, "north"), (2, "south")}))
    assert cells_of(chart, "of_client") == {
        ("south", NAMES[0]): 1.0,
        ("north", NAMES[1]): 0.5,
        ("south", NAMES[1]): 0.0,
    }
    picture = figures.svg(chart)
    assert "25%" not in picture
    assert "0.25" not in picture
    shown = texts(drawn(chart))
    assert sorted(text for text in shown if text.endswith("%")) == ["0%", "100%", "50%"]
    # Clients and topics stay in their order, with what is hidden of them or all.
    assert [text for text in shown if text in ("north", "south")] == ["north", "south"]
    assert [text for text in shown if text in NAMES] == NAMES
    names = [element.get("aria-label") for element in drawn(chart).iter(f"{SVG}path")]
    assert f"{NAMES[0]}, south: 100%" in names


def test_nothing_but_hidden_cells() -> None:
    chart = figures.clients_by_topics(without({(k, n) for k in range(3) for n in made().shares}))
    assert cells_of(chart, "of_client") == {}
    assert not [text for text in texts(drawn(chart)) if "%" in text]


def test_a_map_has_topics_at_their_places() -> None:
    chart = figures.topic_map(ROWS, POINTS)
    assert [(row["topic"], row["x"], row["y"], row["share"]) for row in rows_of(chart)] == [
        (1, -0.5, 0.25, 0.4375),
        (0, 0.5, 0.5, 0.375),
        (2, 0.0, -1.0, 0.1875),
    ]
    picture = drawn(chart)
    assert [link.get(LINK) for link in picture.iter(f"{SVG}a")] == [
        "#topic-1",
        "#topic-0",
        "#topic-2",
    ]
    named = [path.get("aria-label") for link in picture.iter(f"{SVG}a") for path in link]
    assert named == NAMES
    assert [text for text in texts(picture) if text] == ["1", "0", "2"]


# Places of topics


def distances(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(points[:, None] - points[None], axis=2))


def hellinger(beta: NDArray[np.float64]) -> NDArray[np.float64]:
    return distances(np.sqrt(beta)) / np.sqrt(2)


def drawn_topics(n: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(20, 0.3), n)


def test_three_topics_are_as_far_apart_as_hellinger_says() -> None:
    beta = drawn_topics(3)
    np.testing.assert_allclose(distances(figures.positions(beta)), hellinger(beta), atol=1e-8)


def test_of_many_topics_the_plane_is_the_best_one() -> None:
    beta = drawn_topics(12)
    found = figures.positions(beta)
    roots = np.sqrt(beta / 2)
    sizes = np.linalg.svd(roots - roots.mean(0), compute_uv=False)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), sizes[:2])
    assert (distances(found) <= hellinger(beta) + 1e-8).all()
    np.testing.assert_allclose(
        distances(figures.positions(beta[::-1]))[::-1, ::-1], distances(found), atol=1e-8
    )


@pytest.mark.parametrize("n", [1, 2])
def test_few_topics(n: int) -> None:
    beta = drawn_topics(n)
    found = figures.positions(beta)
    assert found.shape == (n, 2)
    np.testing.assert_allclose(distances(found), hellinger(beta), atol=1e-8)
    np.testing.assert_array_equal(found[:, 1], 0)


@pytest.mark.parametrize("n_words", [1, 2, 7])
@pytest.mark.filterwarnings("error")
def test_topics_that_are_all_equal_are_in_one_place(n_words: int) -> None:
    weights = np.arange(1, n_words + 1) / (n_words * (n_words + 1) / 2)
    found = figures.positions(np.tile(weights, (3, 1)))
    np.testing.assert_array_equal(found, np.zeros((3, 2)))
    picture = figures.svg(figures.topic_map(ROWS, found))
    assert "NaN" not in picture
    assert picture.count("<a ") == 3


# Over time


def test_a_panel_a_topic_by_period() -> None:
    chart = figures.topics_over_time(OVER_TIME, ROWS).to_dict()
    assert [panel["title"]["text"] for panel in chart["concat"]] == [
        figures._shown(row)["name"] for row in ROWS
    ]
    for panel, row in zip(chart["concat"], ROWS, strict=True):
        points = panel["data"]["values"]
        assert [point["period"] for point in points] == ["2026-01-01", "2026-02-01", "2026-03-01"]
        assert points[0]["share"] == row["topic"] / 2
        assert panel["encoding"]["y"]["scale"]["domain"] == [0, 1.0], "all from zero, and alike"
    numbers = [{**row, "period": 2024} for row in OVER_TIME]
    by_year = figures.topics_over_time(numbers, ROWS).to_dict()["concat"][0]
    assert by_year["encoding"]["x"]["type"] == "quantitative"


# Pages


OVER_TIME = [
    {"period": date(2026, month, 1), "topic": topic, "share": topic / 2 / month, "documents": 20}
    for month in (1, 2, 3)
    for topic in (0, 1, 2)
]


CHARTS: dict[str, Callable[[], Any]] = {
    "shares": lambda: figures.topic_shares(ROWS),
    "clients": lambda: figures.clients_by_topics(ROWS),
    "map": lambda: figures.topic_map(ROWS, POINTS),
    "over time": lambda: figures.topics_over_time(OVER_TIME, ROWS),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_needs_no_host_and_takes_the_pages_colours(name: str) -> None:
    picture = figures.svg(CHARTS[name]())
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"\w+:/[^\"'\s]*", picture)) == namespaces
    assert not re.search(r"url\(|@import|<image|<script|<style|<foreignObject", picture)
    assert 'fill="currentColor"' in picture
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', picture))
    assert colours <= {"currentColor", "none", "transparent", figures.ACCENT}
    assert figures.svg(CHARTS[name]()) == picture, "the same bytes again"


def test_words_are_no_markup() -> None:
    model = hostile()
    rows = model.get_topic_info(3)
    names = [
        for_scripts(f"{row['topic']} {row['label'] or ' '.join(row['words'])}") for row in rows
    ]
    for chart in (figures.topic_shares(rows), figures.clients_by_topics(rows)):
        picture = figures.svg(chart)
        assert not re.search(r"<(script|img|b|!--)", picture)
        shown = [" ".join(text.split()) for text in texts(drawn(chart))]
        for name in names:
            words = " ".join(name.split())
            # A long one is cut.
            assert any(t == words or (t[-1:] == "…" and words.startswith(t[:-1])) for t in shown)
    picture = figures.svg(figures.topic_map(rows, figures.positions(model.beta)))
    assert not re.search(r"<(script|img|b|!--)", picture)


@pytest.mark.parametrize(("module", "package"), figures.NEEDED)
def test_without_what_draws(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        return None if name == module else find_spec(name)

    assert figures.available()
    monkeypatch.setattr(figures, "find_spec", absent)
    monkeypatch.setattr("fedtopics.extras.find_spec", absent)
    assert not figures.available()
    with pytest.raises(FedTopicsError) as error:
        figures.topic_shares(ROWS)
    assert str(error.value) == (
        f"Figures need the package {package}, which is not installed; install it with: "
        "pip install 'fedtopics[report]'"
    )
    assert figures.positions(made().beta).shape == (3, 2), "numbers need no such package"
