"""A heat map of scores, as a picture; matplotlib is imported when one is drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.report import draw

CELL = 0.5  # inches
GAP = 0.3  # cells between groups of columns
SPAN = (5, 95)  # per cent of the values; those beyond have the colours of its ends


def draw_heat_map(
    path: Path,
    values: NDArray[np.float64],
    rows: Sequence[str],
    groups: Sequence[tuple[str, Sequence[str]]],
    title: str,
    legend: str,
) -> list[Path]:
    """Write a heat map as PNG and SVG; low values are dark, since low means close.

    `groups` are titles and names of columns from the left to the right, with gaps between them.
    """
    starts = np.cumsum([0, *(len(names) + GAP for _, names in groups)])
    size = (CELL * starts[-1] + 3.7, CELL * len(rows) + 2.4)
    limits = np.nanpercentile(values, SPAN).tolist()

    def fill(figure: Any) -> None:
        figure.set_size_inches(size)
        axes = figure.add_subplot()
        first = 0
        for start, (name, columns) in zip(starts, groups, strict=False):
            part = values[:, first : first + len(columns)]
            picture = _draw_group(axes, part, start, limits)
            axes.text(start - 0.5, -0.6, name, fontweight="bold", ha="left", va="bottom")
            first += len(columns)
        _name_axes(axes, rows, groups, starts)
        figure.suptitle(title, fontsize=13)
        figure.colorbar(picture, ax=axes, label=legend, extend="both", fraction=0.03, pad=0.01)

    return draw(path, title, fill)


def _draw_group(
    axes: Any, values: NDArray[np.float64], start: float, limits: Sequence[float]
) -> Any:
    """Draw some columns with their numbers."""
    from matplotlib import colormaps

    n_rows, n_columns = values.shape
    picture = axes.imshow(
        values,
        extent=(start - 0.5, start + n_columns - 0.5, n_rows - 0.5, -0.5),
        cmap=colormaps["viridis"].with_extremes(bad="0.93"),
        vmin=limits[0],
        vmax=limits[1],
    )
    middle = sum(limits) / 2
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        if np.isnan(value):
            axes.text(start + column, row, "own", ha="center", va="center", color="0.4", fontsize=9)
            continue
        colour = "white" if value < middle else "black"
        axes.text(start + column, row, f"{value:.2f}", ha="center", va="center", color=colour)
    return picture


def _name_axes(
    axes: Any,
    rows: Sequence[str],
    groups: Sequence[tuple[str, Sequence[str]]],
    starts: NDArray[np.float64],
) -> None:
    """Put names to rows and columns, and show all groups."""
    places = [
        start + n
        for start, (_, names) in zip(starts, groups, strict=False)
        for n in range(len(names))
    ]
    axes.set_xticks(places, [name for _, names in groups for name in names])
    axes.tick_params(axis="x", rotation=45, length=0)
    for label in axes.get_xticklabels():
        label.set(ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.5, starts[-1] - GAP - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_aspect("equal")
    for side in axes.spines.values():
        side.set_visible(False)
