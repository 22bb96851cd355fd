"""What the synthetic experiment leaves behind: a page, the numbers, a figure, verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments import claims, costs, report
from experiments.gfedntm.figure3 import ALPHAS, ETAS, PACKAGES, RECIPES, SHARED, Settings, tasks
from experiments.gfedntm.figure3_runs import Case
from experiments.gfedntm.figure3_scores import READINGS, SCORES, Scores
from experiments.report import Rows, Table, select, spread

SCENARIOS = ("federated", "centralised", "alone")
MEANING = """\
TSS: similarity of each true topic to the closest one that was found, summed; 50 is perfect. DSS: by
how much similarities of documents differ from the true ones, summed over pairs and divided by the
number of documents once, so that it grows with it; 0 is perfect. *refined*: theta after twenty
variational steps with the model's topics and its own prior of theta (LDA and oracle 1 / 50,
NeuralLDA 0.1, the others as their recipe says), read out as the theta closest to the posterior in
Hellinger's distance; without it, an encoder's theta or the posterior's mean. *alone*: each
client's own model on the documents of all, mean over clients; but for the first setting of one
client, another with each seed. *random*: topics and thetas drawn from the priors; *even*: all
words, all topics alike; *oracle*: the true topics. Mean and deviation over seeds."""


def tables(settings: Settings, rows: Rows) -> list[Table]:
    """Return the tables for people."""
    scores = Scores(rows)
    (first, *_) = settings.cases
    made = [_first_table(scores, first), _readings_table(scores, first)]
    if not settings.quick:
        made.append(_first_table(scores, replace(first, alpha=ALPHAS[1])))
        for alpha in ALPHAS:
            case = replace(first, alpha=alpha)
            for score, title, digits in SCORES:
                made.append(_sweep(f"{title}, alpha = {alpha:g}", case, score, digits, scores))
    groups = {
        recipe.title: (
            len(list(tasks(replace(settings, models=(model,))))),
            select(rows, model=model),
        )
        for model, recipe in RECIPES.items()
    }
    return [table for table in (*made, costs.table(groups)) if table.rows]


def _first_table(scores: Scores, case: Case) -> Table:
    lines: list[tuple[str, ...]] = []
    for model, recipe in RECIPES.items():
        for scenario in SCENARIOS:
            cells = [
                spread(scores.of(case, model, scenario, score), digits)
                for score, digits in (("tss", 2), ("dss", 0), ("dss_refined", 0))
            ]
            if cells[0] != "-":
                lines.append((recipe.title, scenario, *cells))
    for name in ("random", "even", "oracle"):
        tss, dss = (
            spread(scores.of(case, name, "", score), digits)
            for score, digits in (("tss", 2), ("dss", 0))
        )
        lines.append((name, "-", tss, *(("-", dss) if name == "oracle" else (dss, "-"))))
    title = f"K' = {case.shared}, eta = {case.eta:g}, alpha = {case.alpha:g}"
    return Table(title, ("model", "scenario", "TSS of 50", "DSS", "DSS refined"), tuple(lines))


def _readings_table(scores: Scores, case: Case) -> Table:
    lines = []
    for scenario in ("centralised", "alone"):
        readings = scores.readings(case, scenario)
        if readings:
            lines.append((scenario, *(f"{readings[name]:.2f}" for name in READINGS)))
    even = spread(scores.of(case, "even", "", "tss"), 2)
    lines.append(("even topics", even, even, even, even))
    title = "TSS of the paper's network, the same weights read in four ways"
    return Table(title, ("scenario", *READINGS), tuple(lines))


def _sweep(title: str, first: Case, score: str, digits: int, scores: Scores) -> Table:
    """Return a score of every model in settings A and B."""
    swept = {
        **{f"K' = {shared}": replace(first, shared=shared) for shared in SHARED},
        **{f"eta = {eta:g}": replace(first, eta=eta) for eta in ETAS[1:]},
    }
    rows = [
        (recipe.title, scenario, model, scenario, score)
        for model, recipe in RECIPES.items()
        for scenario in SCENARIOS
    ]
    reference = "random" if score == "tss" else "oracle"
    rows.append((reference, "-", reference, "", score if score == "tss" else "dss"))
    lines = [
        (name, where, *(spread(scores.of(case, *of), digits) for case in swept.values()))
        for name, where, *of in rows
    ]
    shown = tuple(line for line in lines[:-1] if {*line[2:]} != {"-"})
    return Table(title, ("model", "scenario", *swept), (*shown, lines[-1]) if shown else ())


def sentences(settings: Settings, rows: Rows) -> list[str]:
    """Say which claims hold, of a whole run."""
    models = {row["model"] for row in rows}
    cases = [Case(**row["case"]) for row in rows]
    every = models >= {*RECIPES} and {*cases} >= {*settings.cases} and not settings.quick
    return claims.sentences("figure3", claims.Figure3(rows)) if every else []


def page(settings: Settings, rows: Rows, content: Mapping[str, Any]) -> str:
    """Return the tables and sentences in Markdown, of what `plain` returned."""
    return report.page("gFedNTM, figure 3", MEANING, content, tables(settings, rows))


def plain(settings: Settings, rows: Rows) -> dict[str, Any]:
    """Return all of it for JSON."""
    return report.plain(settings.command, PACKAGES, sentences(settings, rows), rows)


def write_results(settings: Settings, rows: Rows) -> list[Path]:
    """Write figure3.md, figure3.json and the figure; return their paths."""
    content = plain(settings, rows)
    written = report.write(settings.folder, "figure3", page(settings, rows, content), content)
    draw = partial(_draw, settings=settings, scores=Scores(rows))
    return written + report.draw(settings.folder / "figure3", "figure 3", draw)


def _draw(figure: Any, settings: Settings, scores: Scores) -> None:
    """Draw the paper's figure 3: DSS and TSS over both settings, a line a model and scenario."""
    first, *_ = settings.cases
    values_a = [case.shared for case in settings.cases] if settings.quick else [*SHARED]
    axes_of: list[tuple[str, Sequence[float], list[Case]]] = [
        ("K'", values_a, [replace(first, shared=shared) for shared in values_a])
    ]
    if not settings.quick:
        axes_of.append(("eta", ETAS, [replace(first, eta=eta) for eta in ETAS]))
    figure.set_size_inches(11, 4 * len(axes_of) + 1)
    grid = figure.subplots(len(axes_of), 2, squeeze=False)
    for (name, values, cases), pair in zip(axes_of, grid, strict=True):
        for axes, score in zip(pair, ("dss", "tss"), strict=True):
            _lines(axes, cases, values, scores, score)
            axes.set(xlabel=name, ylabel=score.upper())
            if name == "eta":
                axes.set_xscale("log")
    handles = grid[0][1].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=9)


def _lines(
    axes: Any, cases: Sequence[Case], values: Sequence[float], scores: Scores, score: str
) -> None:
    for colour, model in enumerate(RECIPES):
        for scenario, style in (("federated", "-o"), ("alone", "--s")):
            means = [_mean(scores.of(case, model, scenario, score)) for case in cases]
            if np.isnan(means).all():
                continue
            label = RECIPES[model].title if scenario == "federated" else None
            axes.plot(values, means, style, color=f"C{colour}", label=label)
    reference, key = ("random", "tss") if score == "tss" else ("oracle", "dss")
    means = [_mean(scores.of(case, reference, "", key)) for case in cases]
    axes.plot([], [], "--s", color="0.4", label="dashed: clients alone")
    axes.plot(values, means, ":", color="0.4", label="dotted: random topics' TSS, oracle's DSS")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
