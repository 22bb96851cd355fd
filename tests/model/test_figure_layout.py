"""Where things stand in the report's figures."""

import math
import re
from typing import Any

import numpy as np
import pytest

from fedtopics.model import figure_layout as layout
from fedtopics.model import figures
from tests.helpers.hostile import hostile
from tests.helpers.models import made


def topics(shares: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        {"topic": k, "share": share, "label": "", "words": [f"word{k}", "tree", "sea"]} | more
        for k, share in enumerate(shares)
    ]


def test_the_largest_clients_have_colours_of_their_own() -> None:
    colour = layout.colours([{"name": f"client{n}", "documents": n} for n in range(12)])
    assert [colour[f"client{n}"] for n in (11, 10, 4, 3, 0)] == ["c0", "c1", "c7", "cx", "cx"]


def test_a_strip_is_of_what_is_shown() -> None:
    colour = {"a": "c0", "b": "c1", "c": "cx", "d": "cx"}
    pieces = layout.strip({"parts": {"b": 0.3, "a": 0.1, "c": 0.1, "d": 0.1}}, colour)
    assert [(p["colour"], p["start"], p["length"]) for p in pieces] == [
        ("c0", 0.0, 16.7),
        ("c1", 16.7, 50.0),
        ("cx", 66.7, 33.3),
    ]
    assert layout.strip({"parts": {}}, colour) == [{"colour": "cx", "start": 0.0, "length": 100.0}]


@pytest.mark.parametrize("size", layout.SIZES)
def test_areas_are_shares_and_names_are_beside_circles(size: str) -> None:
    places = np.array([[0.0, 0.0], [3.0, 0.1], [1.0, 1.0], [2.9, 0.1], [0.0, 0.0]])
    circles = layout.topic_map(topics([0.4, 0.3, 0.2, 0.06, 0.04]), places, size)["circles"]
    for circle in circles[1:]:
        assert (circle["r"] / circles[0]["r"]) ** 2 == pytest.approx(
            circle["topic"]["share"] / 0.4, rel=0.05
        )
    width, height = layout.SIZES[size]
    for place, one in enumerate(circles):
        assert one["r"] <= one["x"] <= width - one["r"]
        assert one["r"] <= one["y"] <= height - one["r"]
        for other in circles[:place]:
            assert math.hypot(one["x"] - other["x"], one["y"] - other["y"]) > one["r"] + other["r"]
    assert circles[0]["name"]["text"] == "word0, tree"
    assert sum("name" in circle for circle in circles) > 2


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("size", layout.SIZES)
def test_circles_of_few_topics_are_whole(n: int, size: str) -> None:
    places = np.array([[0.0, 0.0], [1.0, 0.1], [0.5, 0.2]])[:n]
    for circle in layout.topic_map(topics([1 / n] * n), places, size)["circles"]:
        for at, length in zip((circle["x"], circle["y"]), layout.SIZES[size], strict=True):
            assert circle["r"] <= at <= length - circle["r"]


def test_topics_at_one_point_part() -> None:
    one, other = layout.topic_map(topics([0.5, 0.5]), np.zeros((2, 2)), "wide")["circles"]
    assert math.hypot(one["x"] - other["x"], one["y"] - other["y"]) > one["r"] + other["r"] - 1
    (alone,) = layout.topic_map(topics([1.0]), np.zeros((1, 2)), "wide")["circles"]
    assert (alone["x"], alone["y"]) == (320, 270)
    (none,) = layout.topic_map(topics([0.0]), np.zeros((1, 2)), "wide")["circles"]
    assert none["r"] == layout.SMALLEST_RADIUS


def test_a_name_has_at_most_so_many_letters() -> None:
    assert layout.short("x" * 24) == "x" * 24
    assert layout.short("oak, elm, beech, " + "y" * 20) == "oak, elm, beech, yyyyyy…"


def test_a_tree_has_each_topic_once_and_groups_that_are_near() -> None:
    rows: list[dict[str, Any]] = [
        {"parent": 4, "left": 0, "right": 2, "topics": [0, 2], "distance": 0.04, "share": 0.5},
        {"parent": 5, "left": 1, "right": 3, "topics": [1, 3], "distance": 0.16, "share": 0.5},
        {"parent": 6, "left": 4, "right": 5, "topics": [0, 1, 2, 3], "distance": 0.64, "share": 1},
    ]
    rows = [row | {"words": [f"w{row['parent']}", "a", "b", "c"]} for row in rows]
    tree: Any = layout.tree(rows, 4)
    assert [g["topics"] for g in tree["groups"]] == [[0, 2], [1, 3]]
    assert [g["words"] for g in tree["groups"]] == [["w4", "a", "b"], ["w5", "a", "b"]]
    assert tree["height"] == 4 * layout.ROW
    # Heights are roots of distances: 0.2, 0.4 and 0.8 of the highest, 96 wide.
    assert re.findall(r"M100.0 15.0H(\S+?)V45.0H100.0", tree["path"]) == ["76.0"]
    assert re.findall(r"M100.0 75.0H(\S+?)V105.0H100.0", tree["path"]) == ["52.0"]
    assert tree["path"].endswith("M76.0 30.0H4.0V90.0H52.0")


@pytest.mark.parametrize("model", [made(), hostile()], ids=["made", "hostile"])
def test_the_tree_of_a_model(model: Any) -> None:
    tree: Any = layout.tree(model.hierarchy(), model.n_topics)
    assert sorted(k for group in tree["groups"] for k in group["topics"]) == [0, 1, 2]
    assert layout.tree(model.merge_topics([0, 1]).hierarchy(), 2) is None
    assert figures.positions(model.beta).shape == (3, 2)


def test_lines_and_curves_begin_at_zero() -> None:
    assert layout.line([(0.0, 0.0), (0.5, 0.25), (1.0, 0.5)]) == "M0.0 29.0L50.0 15.0L100.0 1.0"
    assert layout.line([(0.0, 0.0)]) == "M0.0 29.0"
    rows = [{"round": 1 + i, "bytes": size, "loss": size - 4} for i, size in enumerate((2, 4, 3))]
    curve: Any = layout.curve(rows, "bytes")
    assert (curve["first"], curve["last"], curve["most"], curve["lowest"]) == (1, 3, 4, 0)
    assert curve["path"] == "M0.0 15.0L50.0 1.0L100.0 8.0"
    loss: Any = layout.curve(rows, "loss")
    assert (loss["lowest"], loss["most"]) == (-2, 2)
    assert loss["path"] == "M0.0 29.0L50.0 1.0L100.0 15.0"


def test_no_curve_of_what_does_not_change_or_is_no_number() -> None:
    assert layout.curve([{"round": 1, "loss": 3.0}, {"round": 2, "loss": 3.0}], "loss") is None
    assert layout.curve([{"round": 1}], "loss") is None
    nans = [{"round": r, "loss": value} for r, value in enumerate([3.0, math.nan, 1.0])]
    assert layout.curve(nans, "loss") is None


@pytest.mark.parametrize("n", [2, 199, 200, 201, 401, 12_345])
def test_long_curves_are_means_of_neighbouring_rounds(n: int) -> None:
    curve: Any = layout.curve([{"round": 1 + i, "seconds": float(i)} for i in range(n)], "seconds")
    assert curve["path"].count("L") + 1 == math.ceil(n / math.ceil(n / 200))
    assert curve["last"] == n


def test_no_label_is_on_another() -> None:
    rng = np.random.default_rng(0)
    middles = [*rng.uniform([0, 0], [800, 600], (20, 2)).tolist(), *[(300.0, 300.0)] * 5]
    free = layout.free_places(middles, ["differential equation"] * 25, width=800, height=600)
    half = layout.LETTER * 21 / 2
    places = [place for place in free if place is not None]
    assert len(places) == 25
    for k, (x, y) in enumerate(places):
        assert half <= x <= 800 - half and layout.LINE * 0.75 <= y <= 600 - layout.LINE / 4
        for left, top in places[:k]:
            assert abs(x - left) >= 2 * half - 0.1 or abs(y - top) >= layout.LINE - 0.1
    assert layout.free_places([(0.0, 0.0)], ["x" * 500], 800, 600) == [None]
