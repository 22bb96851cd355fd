"""Positions in figures, in pixels, which templates write as SVG. Axes begin at zero."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.model.shown_words import CAPTION_WORDS

Shape = dict[str, Any]
Box = tuple[float, float, float, float]  # left, top, right, bottom
SIZES = {"wide": (640, 540), "narrow": (340, 400)}  # of the map, on screens and on phones
COLOURED = 8  # the largest clients, each with its own colour
COVERED = 0.17  # part of the map that circles cover
SMALLEST_RADIUS = 4.0
GAPS = {"wide": 24.0, "narrow": 4.0}  # between circles: a line of text, where there is room
EDGE = 6.0
STEPS = 300  # most steps to move circles apart
LETTER = 8.0  # width of a letter
LINE = 18.0  # height of a line
NAME_LENGTH = 24  # letters of a name in the map
NUMBERED = 6.0, 4.0  # least radius for a number: base, and more for each digit
ROW = 30  # height of a leaf
MOST_POINTS = 200  # of a curve: more are averaged
GROUPS = 6  # most groups of topics in the tree


def colours(clients: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return each client's colour by name; small clients beyond the first eight share one."""
    return {
        client["name"]: f"c{place}" if place < COLOURED else "cx"
        for place, client in enumerate(sorted(clients, key=lambda client: -client["documents"]))
    }


def strip(topic: Mapping[str, Any], colour: Mapping[str, str]) -> list[Shape]:
    """Return each client's part of a topic's documents, in percent of those shown, by colour."""
    total = sum(topic["parts"].values()) or 1.0
    by_colour: dict[str, float] = {}
    for client, part in sorted(topic["parts"].items(), key=lambda item: colour[item[0]]):
        by_colour[colour[client]] = by_colour.get(colour[client], 0.0) + 100 * part / total
    starts = accumulate(by_colour.values(), initial=0.0)  # and the end, which is not needed
    pieces = [
        {"colour": name, "start": round(start, 1), "length": round(length, 1)}
        for (name, length), start in zip(by_colour.items(), starts, strict=False)
        if length >= 0.5
    ]
    return pieces or [{"colour": "cx", "start": 0.0, "length": 100.0}]


def topic_map(
    topics: Sequence[Mapping[str, Any]], positions: NDArray[np.float64], size: str
) -> Shape:
    """Return circles with area by share, near topics with similar words, named where names fit."""
    width, height = SIZES[size]
    share = np.array([topic["share"] for topic in topics])
    radii = np.sqrt(COVERED * width * height * share / max(share.sum(), 1e-12) / np.pi)
    radii = np.clip(radii, SMALLEST_RADIUS, 0.16 * min(width, height))
    at = scaled(positions[[t["topic"] for t in topics]], width, height, 0.76)
    circles = [
        {"topic": topic, "x": round(x, 1), "y": round(y, 1), "r": round(r, 1)}
        | {"numbered": r >= NUMBERED[0] + NUMBERED[1] * len(str(topic["topic"]))}
        for topic, (x, y), r in zip(
            topics, _apart(at, radii, size).tolist(), radii.tolist(), strict=True
        )
    ]
    _name(circles, width, height)
    return {"size": size, "width": width, "height": height, "circles": circles}


def scaled(points: NDArray[np.float64], width: int, height: int, part: float) -> Any:
    """Fit points into a part of a box, with one scale for both directions to keep distances."""
    points = points[:, ::-1] if height > width else points  # longest axis for largest spread
    low = points.min(0)
    high = points.max(0)
    box = np.array([width, height])
    with np.errstate(divide="ignore"):
        scale = np.min(box * part / (high - low))
    return box / 2 + (points - (low + high) / 2) * (scale if np.isfinite(scale) else 0.0)


def _apart(places: NDArray[np.float64], radii: NDArray[np.float64], size: str) -> Any:
    """Move circles apart, a little at a time, until no two overlap."""
    # Circles at the same point need different directions to move apart.
    turn = np.arange(len(places)) * 2.4
    places = places + 0.01 * np.column_stack([np.cos(turn), np.sin(turn)])
    least = radii[:, None] + radii + GAPS[size]
    np.fill_diagonal(least, 0)
    low = radii[:, None] + EDGE
    high = np.array(SIZES[size]) - low
    for _ in range(STEPS):
        places = np.clip(places, low, high)
        between = places[:, None] - places[None]
        far = np.maximum(np.sqrt((between**2).sum(2)), 1e-9)
        push = np.maximum(least - far, 0) / far
        if not push.any():
            break
        places = places + 0.4 * (between * push[:, :, None]).sum(1) / 1.5
    return np.clip(places, low, high)


def _name(circles: list[Shape], width: int, height: int) -> None:
    """Name circles, the largest first, where nothing is in the way."""
    taken: list[Box] = [
        (c["x"] - c["r"], c["y"] - c["r"], c["x"] + c["r"], c["y"] + c["r"]) for c in circles
    ]
    for place, circle in enumerate(circles):
        topic = circle["topic"]
        # Where two words find no room, one may.
        boxes = {
            box: {"x": round(x, 1), "y": round(y, 1), "anchor": anchor, "text": text}
            for text in dict.fromkeys(
                [short(topic["label"] or ", ".join(topic["words"][:2])), short(topic["words"][0])]
            )
            for x, y, anchor in _places_around(circle)
            for box in [_box_of(text, x, y, anchor)]
        }
        for box in _free(boxes, taken[:place] + taken[place + 1 :], width, height, edge=2):
            circle["name"] = boxes[box]
            taken.append(box)


def _box_of(text: str, x: float, y: float, anchor: str) -> Box:
    length = LETTER * len(text)
    left = x - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
    return left - 3, y - LINE + 3, left + length + 3, y + 4


def _places_around(circle: Shape) -> Iterator[tuple[float, float, str]]:
    x = circle["x"]
    y = circle["y"]
    far = circle["r"] + 4
    yield x + far + 3, y + 4, "start"
    yield x - far - 3, y + 4, "end"
    yield x, y + far + LINE - 4, "middle"
    yield x, y - far, "middle"
    for side in (-1, 1):
        yield x + far * 0.7, y + side * far, "start"
        yield x - far * 0.7, y + side * far, "end"


def free_places(
    middles: Sequence[tuple[float, float]], texts: Sequence[str], width: int, height: int
) -> list[tuple[float, float] | None]:
    """Return a free place for each text, at its middle or above or below; None without room."""
    taken: list[Box] = []
    places: list[tuple[float, float] | None] = []
    for (x, y), text in zip(middles, texts, strict=True):
        reach = LETTER * len(text) / 2
        x = min(max(x, reach), width - reach)
        lines = (
            y + LINE * (-1) ** line * ((line + 1) // 2) for line in range(2 * round(height / LINE))
        )
        boxes = {
            (x - reach, at - LINE / 2, x + reach, at + LINE / 2): (
                (round(x, 1), round(at + LINE / 4, 1))
            )
            for at in lines
        }
        free = _free(boxes, taken, width, height)
        taken += free
        places += [boxes[box] for box in free] or [None]
    return places


def _free(
    boxes: Iterable[Box], taken: Sequence[Box], width: int, height: int, edge: float = 0
) -> list[Box]:
    """Return the first box within the edge that meets no taken one, or none."""
    inside = (b for b in boxes if min(b) >= edge and b[2] <= width - edge and b[3] <= height - edge)
    return [*islice((box for box in inside if not any(_meet(box, t) for t in taken)), 1)]


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def short(text: str) -> str:
    """Shorten a name for the map."""
    return text if len(text) <= NAME_LENGTH else text[: NAME_LENGTH - 1].rstrip(" ,") + "…"


def tree(rows: Sequence[Mapping[str, Any]], n_topics: int) -> Shape | None:
    """Return a tree of topics: the order of its leaves, its branches, and groups of topics."""
    if len(rows) < 2:
        return None
    below = {topic: [topic] for topic in range(n_topics)}  # leaves in order, by node
    for row in rows:
        below[row["parent"]] = below[row["left"]] + below[row["right"]]
    leaves = below[rows[-1]["parent"]]
    heights = np.sqrt(np.maximum.accumulate([row["distance"] for row in rows]))
    across = 100 - 96 * heights / max(float(heights[-1]), 1e-12)
    ends = {leaf: (100.0, ROW * (place + 0.5)) for place, leaf in enumerate(leaves)}
    branches = []
    for row, x in zip(rows, across.tolist(), strict=True):
        x1, y1 = ends[row["left"]]
        x2, y2 = ends[row["right"]]
        branches.append(f"M{x1:.1f} {y1:.1f}H{x:.1f}V{y2:.1f}H{x2:.1f}")
        ends[row["parent"]] = x, (y1 + y2) / 2
    n_groups = max(2, min(GROUPS, round(math.sqrt(n_topics))))
    merges = rows[: n_topics - n_groups]  # the tree is cut where this many groups remain
    inner = {row[side] for row in merges for side in ("left", "right")}
    tops = {row["parent"]: row for row in merges if row["parent"] not in inner}
    top_of = {leaf: row["parent"] for row in tops.values() for leaf in row["topics"]}
    groups: list[Shape] = []
    for top, topics in groupby(leaves, lambda leaf: top_of.get(leaf, leaf)):
        row = tops.get(top, {"words": [], "share": None})
        groups.append(
            {"topics": [*topics], "words": row["words"][:CAPTION_WORDS], "share": row["share"]}
        )
    return {"path": "".join(branches), "height": ROW * len(leaves), "groups": groups}


def line(points: Sequence[tuple[float, float]]) -> str:
    """Return a path of points (x from 0 to 1, y from zero up) in a box of 100 by 30."""
    top = max(y for _, y in points) or 1.0
    return "M" + "L".join(f"{100 * x:.1f} {29 - 28 * y / top:.1f}" for x, y in points)


def intervals(rows: Sequence[Mapping[str, Any]]) -> list[Shape]:
    """Return rows with places from 0 to 1, on one axis that contains zero: of ends and values."""
    wide = [
        {
            "zero": 0.0,
            "at": row.get("estimate", row.get("share")),
            "low": row["low"],
            "high": row["high"],
            "least": row.get("low_of_all", row["low"]),
            "most": row.get("high_of_all", row["high"]),
        }
        for row in rows
    ]
    numbers = [number for ends in wide for number in ends.values()] or [0.0]
    first = min(numbers)
    reach = (max(numbers) - first) or 1.0
    return [
        {**row, "places": {key: round((x - first) / reach, 4) for key, x in ends.items()}}
        for row, ends in zip(rows, wide, strict=True)
    ]


def curve(rows: Sequence[Mapping[str, Any]], name: str) -> Shape | None:
    """Return a value's curve over the rounds; None where it is constant or not finite."""
    values = [(row["round"], float(row[name])) for row in rows if name in row]
    if len({y for _, y in values}) < 2 or not all(math.isfinite(y) for _, y in values):
        return None
    step = -(-len(values) // MOST_POINTS)
    parts = [values[start : start + step] for start in range(0, len(values), step)]
    points = [(part[-1][0], sum(y for _, y in part) / len(part)) for part in parts]
    lowest = min(y for _, y in points) if name == "loss" else 0.0
    first = points[0][0]
    last = points[-1][0]
    relative = [((x - first) / max(last - first, 1), y - lowest) for x, y in points]
    return {
        "path": line(relative),
        "first": first,
        "last": last,
        "most": max(y for _, y in relative),
        "lowest": lowest,
    }
