"""The FSTC paper's figures: scores over what is varied, and what each method sees."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.fstc.methods import TITLES, DataSet
from experiments.fstc.parts import COMPARED, SWEEPS, Sweep
from experiments.fstc.tables import data_sets, pictured
from experiments.report import Rows, draw, mean, scores, select

SIZE = 3.6  # inches, of one picture of a figure
FIGURES = {"lambda": ("lambda",), "clients": ("clients", "shares")}  # the parts of each
Panel = tuple[str, DataSet]  # a part, and of which data set


def write_figures(folder: Path, all_rows: Rows) -> list[Path]:
    """Write the figures of the parts that there are; return their paths."""
    written = []
    for name, parts in FIGURES.items():
        panels = [(part, data) for part in parts for data in data_sets(all_rows, part)]
        if panels:
            fill = partial(_draw_sweeps, all_rows=all_rows, panels=panels)
            written += draw(folder / f"fstc-{name}", "fstc", fill, font_size=10)
    for data in data_sets(all_rows, "picture"):
        fill = partial(_draw_picture, rows=pictured(all_rows, data))
        written += draw(folder / "fstc-picture", "fstc", fill, font_size=10)
    return written


def _draw_sweeps(figure: Any, all_rows: Rows, panels: Sequence[Panel]) -> None:
    """Draw the paper's figures 3 and 4: ACC above, NMI below, with deviations."""
    figure.set_size_inches(SIZE * len(panels) + 1, 2 * SIZE)
    grid = figure.subplots(2, len(panels), squeeze=False)
    for line, score in zip(grid, ("acc", "nmi"), strict=True):
        for axes, (part, data) in zip(line, panels, strict=True):
            sweep = SWEEPS[part]
            _draw_sweep(axes, select(all_rows, part=part, data=data.name), sweep, score)
            axes.set(title=data.title, xlabel=sweep.label, ylabel=f"{score.upper()} in per cent")
    legend = dict(zip(*reversed(grid[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend, loc="outside lower center", ncols=2)


def _draw_sweep(axes: Any, rows: Rows, sweep: Sweep, score: str) -> None:
    """Draw a line a method; one of which nothing is varied is level."""
    places = range(len(sweep.values))
    for number, name in enumerate(COMPARED):
        of_method = select(rows, name=name)
        style = {"color": f"C{number}", "label": TITLES[name]}
        if of_method and sweep.key not in of_method[0]:
            axes.axhline(mean(of_method, score), linestyle="--", **style)
        elif of_method:
            values = [scores(of_method, score, **{sweep.key: value}) for value in sweep.values]
            spread = [np.std(one) for one in values]
            axes.errorbar(places, [np.mean(one) for one in values], spread, marker="o", **style)
    axes.set_xticks(places, [f"{value:g}" for value in sweep.values])


def _draw_picture(figure: Any, rows: Rows) -> None:
    """Draw the paper's figure 2: what each method sees, coloured by label."""
    figure.set_size_inches(SIZE * len(rows), SIZE)
    for axes, row in zip(figure.subplots(1, len(rows), squeeze=False)[0], rows, strict=True):
        x, y, labels = zip(*row["points"], strict=True)
        axes.scatter(x, y, c=labels, cmap="tab20", s=3, linewidths=0)
        axes.set(title=TITLES[row["name"]], xticks=[], yticks=[])
        axes.set_xlabel(f"nearest of the same label: {row['neighbours']:.1f} %")
