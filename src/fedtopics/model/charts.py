"""Charts of numbers as SVG: lines with bands, points, and a marked place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from fedtopics.harmless import visible
from fedtopics.model.figures import environment

Point = tuple[float, float]
WIDTH, HEIGHT = 360, 210  # of a panel, with its axes
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 28, 40
COLUMNS = 2


@dataclass(frozen=True)
class Panel:
    """A line and what belongs to it, on axes of its own."""

    title: str  # of what is upwards
    across: str
    line: Sequence[Point]
    deviations: Sequence[float] = ()  # of the line's points: a band
    dots: Sequence[Point] = ()
    mark: tuple[float, str] | None = None  # a place across, and its name


def chart(panels: Sequence[Panel]) -> str:
    """Return panels as an SVG file, two side by side."""
    columns, rows = min(COLUMNS, len(panels)), ceil(len(panels) / COLUMNS)
    placed = [
        (WIDTH * (place % COLUMNS), HEIGHT * (place // COLUMNS), _drawn(panel))
        for place, panel in enumerate(panels)
    ]
    return (
        environment(visible)
        .get_template("chart.svg.j2")
        .render(width=WIDTH * columns, height=HEIGHT * rows, panels=placed)
    )


def _drawn(panel: Panel) -> dict[str, Any]:
    """Return the pixels of a panel: those of its line, band, dots, mark and ticks."""
    spread = panel.deviations or [0.0] * len(panel.line)
    upper = [(x, y + d) for (x, y), d in zip(panel.line, spread, strict=True)]
    lower = [(x, y - d) for (x, y), d in zip(panel.line, spread, strict=True)]
    points = [*upper, *lower, *panel.dots]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def x_of(value: float) -> float:
        part = (value - left) / ((right - left) or 1.0)
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def y_of(value: float) -> float:
        part = (value - low) / ((high - low) or 1.0)
        return round(HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM), 1)

    def path(points: Sequence[Point]) -> str:
        return "M" + "L".join(f"{x_of(x)} {y_of(y)}" for x, y in points)

    return {
        "title": panel.title,
        "across": panel.across,
        "box": (LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM),
        "line": path(panel.line),
        "band": f"{path([*upper, *reversed(lower)])}Z" if panel.deviations else "",
        "dots": [(x_of(x), y_of(y)) for x, y in panel.dots],
        "mark": panel.mark and (x_of(panel.mark[0]), panel.mark[1]),
        "x_ticks": [(x_of(value), f"{value:.4g}") for value in ticks(left, right)],
        "y_ticks": [(y_of(value), f"{value:.4g}") for value in ticks(low, high)],
    }


def ticks(low: float, high: float) -> list[float]:
    """Return at most six round numbers between two, one where they are equal.

    Examples
    --------
    >>> ticks(0.0, 1.0), ticks(5, 50)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [10.0, 20.0, 30.0, 40.0, 50.0])
    """
    if not high > low:
        return [low]
    power = 10.0 ** floor(log10((high - low) / 5))
    step = next(n * power for n in (1, 2, 5, 10) if (high - low) / (n * power) <= 5.001)
    numbers = range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    return [round(number * step, 12) for number in numbers]
