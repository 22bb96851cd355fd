"""What the synthetic experiment leaves behind: a page, the numbers, a figure, verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from experiments import report
from experiments.gfedntm.figure3 import CLIENTS, ETAS, RECIPES, SHARED, SWEPT, Settings
from experiments.gfedntm.figure3_runs import Case
from experiments.report import Found, Table, spread

PACKAGES = ("fedtopics", "torch", "numpy", "scipy", "numba")
PUBLISHED = {"centralised": (8.68, 2555), "alone": (7.57, 3067)}  # figure 3, K' = 10, eta = 0.01
SCENARIOS = ("federated", "centralised", "alone")
READINGS = (
    "softmax once",
    "softmax twice",
    "softmax three times, columns shifted",
    "as the decoder uses it",
)
MEANING = """\
TSS: similarity of each true topic to the closest one that was found, summed; 50 is perfect. DSS: by
how much similarities of documents differ from the true ones, summed over pairs and divided by the
number of documents once, so that it grows with it; 0 is perfect. *refined*: theta after twenty
variational steps with the model's topics and its own prior of theta (LDA and oracle 1 / 50,
NeuralLDA 0.1, the others as their recipe says), read out as the theta closest to the posterior in
Hellinger's distance; without it, an encoder's theta or the posterior's mean. *alone*: each
client's own model on the documents of all, mean over clients. *random*: topics and thetas drawn
from the priors; *even*: all words, all topics alike; *oracle*: the true topics. Mean and deviation
over seeds."""


class Scores:
    """The rows, by what they are of."""

    def __init__(self, rows: Found) -> None:
        self._rows = rows

    def of(self, case: Case, model: str, scenario: str, score: str) -> list[float]:
        """Return a score of each seed, the mean over clients where each is alone."""
        scenarios = CLIENTS if scenario == "alone" else (scenario,)
        found: dict[int, list[float]] = {}
        for row in self._rows:
            if (row["model"], Case(**row["case"])) == (model, case) and (
                row["scenario"] in scenarios and score in row
            ):
                found.setdefault(row["seed"], []).append(row[score])
        complete = [values for values in found.values() if len(values) == len(scenarios)]
        return [float(np.mean(values)) for values in complete]

    def readings(self, case: Case, scenario: str) -> dict[str, float]:
        """Return the paper's network's score under each reading, mean over clients and seeds."""
        scenarios = CLIENTS if scenario == "alone" else (scenario,)
        found = [
            row["readings"]
            for row in self._rows
            if row["model"] == "paper"
            and Case(**row["case"]) == case
            and row["scenario"] in scenarios
        ]
        return {name: float(np.mean([one[name] for one in found])) for name in READINGS if found}


def tables(settings: Settings, rows: Found) -> list[Table]:
    """Return the tables for people."""
    scores, (first, *_) = Scores(rows), settings.cases
    found = [_first_table(scores, first), _readings_table(scores, first)]
    if not settings.quick:
        a = [replace(first, shared=shared) for shared in SHARED]
        b = [replace(first, eta=eta) for eta in ETAS]
        found.append(_sweep("Setting A: shared topics, eta = 0.01", "K'", SHARED, a, scores))
        found.append(_sweep("Setting B: eta, K' = 10", "eta", ETAS, b, scores))
    return [table for table in found if table.rows]


def _first_table(scores: Scores, case: Case) -> Table:
    lines: list[tuple[str, ...]] = [
        ("published", scenario, str(tss), f"{dss:,}", "-")
        for scenario, (tss, dss) in PUBLISHED.items()
    ]
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
    title = f"K' = {case.shared}, eta = {case.eta:g}, {case.n_documents:,} documents a client"
    return Table(title, ("model", "scenario", "TSS of 50", "DSS", "DSS refined"), tuple(lines))


def _readings_table(scores: Scores, case: Case) -> Table:
    lines = []
    for scenario in ("centralised", "alone"):
        found = scores.readings(case, scenario)
        if found:
            published = str(PUBLISHED[scenario][0])
            lines.append((scenario, *(f"{found[name]:.2f}" for name in READINGS), published))
    even = spread(scores.of(case, "even", "", "tss"), 2)
    lines.append(("even topics", even, even, even, even, "-"))
    title = "TSS of the paper's network, the same weights read in four ways"
    return Table(title, ("scenario", *READINGS, "published"), tuple(lines))


def _sweep(
    title: str, name: str, values: Sequence[float], cases: Sequence[Case], scores: Scores
) -> Table:
    header = [name]
    for model in SWEPT:
        header += [f"{model} {scenario} {score}" for scenario in ("federated", "alone")
                   for score in ("TSS", "DSS")]  # fmt: skip
    lines = []
    for value, case in zip(values, cases, strict=True):
        cells = []
        for model in SWEPT:
            for scenario in ("federated", "alone"):
                for score, digits in (("tss", 2), ("dss_refined", 0)):
                    cells.append(spread(scores.of(case, model, scenario, score)[:1], digits))
        lines.append((f"{value:g}", *cells, spread(scores.of(case, "random", "", "tss")[:1], 2)))
    return Table(f"{title}; DSS refined, seed 0", (*header, "random TSS"), tuple(lines))


def sentences(settings: Settings, rows: Found) -> Iterator[str]:
    """Say which claims of the paper hold."""
    scores, (first, *others) = Scores(rows), settings.cases
    for model in SWEPT:
        gaps = {
            case: _gap(scores, case, model, "tss")
            for case in [first, *others]
            if scores.of(case, model, "federated", "tss") and scores.of(case, model, "alone", "tss")
        }
        title = RECIPES[model].title
        better = sum(gap > 0 for gap in gaps.values())
        dss = sum(_gap(scores, case, model, "dss_refined") < 0 for case in gaps)
        yield (
            f"Claim 1, a common model is better than models of clients alone ({title}): closer "
            f"topics in {better} of {len(gaps)} settings, closer documents in {dss}."
        )
        a = [gaps[replace(first, shared=k)] for k in SHARED if replace(first, shared=k) in gaps]
        if len(a) > 1:
            falls = all(x > y for x, y in pairwise(a))
            yield (
                f"Claim 2, the gain shrinks with the number of shared topics ({title}): "
                f"{'holds' if falls else 'does not hold throughout'}; TSS gains "
                f"{', '.join(f'{gap:.1f}' for gap in a)}."
            )
        etas = [eta for eta in ETAS if replace(first, eta=eta) in gaps]
        b = [gaps[replace(first, eta=eta)] for eta in etas]
        if len(b) > 1:
            by_eta = ", ".join(f"{gap:.1f} ({eta:g})" for gap, eta in zip(b, etas, strict=True))
            yield (
                f"Claim 3, the gain is less significant when eta varies ({title}): TSS gains by "
                f"eta are {by_eta}."
            )
    found = scores.readings(first, "centralised")
    if found:
        even = float(np.mean(scores.of(first, "even", "", "tss")))
        yield (
            f"The published TSS of the centralised model, {PUBLISHED['centralised'][0]}, is that "
            f"of even topics ({even:.2f}): softmax is taken three times and columns are shifted by "
            f"a word, which gives {found[READINGS[2]]:.2f} here. As the decoder uses them, the "
            f"topics of the paper's network score {found[READINGS[3]]:.2f}."
        )


def _gap(scores: Scores, case: Case, model: str, score: str) -> float:
    """Return by how much the federated model's score is above that of clients alone; one seed."""
    federated, alone = (scores.of(case, model, s, score)[0] for s in ("federated", "alone"))
    return federated - alone


def page(settings: Settings, rows: Found) -> str:
    """Return the tables and sentences in Markdown."""
    return report.page("gFedNTM, figure 3", MEANING, plain(settings, rows), tables(settings, rows))


def plain(settings: Settings, rows: Found) -> dict[str, Any]:
    """Return all of it for JSON."""
    return report.plain(settings.command, PACKAGES, sentences(settings, rows), rows)


def write_results(settings: Settings, rows: Found) -> list[Path]:
    """Write figure3.md, figure3.json and the figure; return their paths."""
    written = report.write(settings.folder, "figure3", page(settings, rows), plain(settings, rows))
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
    figure.set_size_inches(11, 4 * len(axes_of))
    grid = figure.subplots(len(axes_of), 2, squeeze=False)
    for (name, values, cases), pair in zip(axes_of, grid, strict=True):
        for axes, score in zip(pair, ("dss_refined", "tss"), strict=True):
            _lines(axes, cases, values, scores, score)
            axes.set(xlabel=name, ylabel="DSS, refined" if score != "tss" else "TSS")
            if name == "eta":
                axes.set_xscale("log")
    grid[0][0].legend(fontsize=9)


def _lines(
    axes: Any, cases: Sequence[Case], values: Sequence[float], scores: Scores, score: str
) -> None:
    for colour, model in enumerate(SWEPT):
        for scenario, style in (("federated", "-o"), ("alone", "--s")):
            found = [scores.of(case, model, scenario, score)[:1] or [np.nan] for case in cases]
            label = f"{RECIPES[model].title}, {scenario}"
            axes.plot(values, found, style, color=f"C{colour}", label=label)
    reference, key = ("random", "tss") if score == "tss" else ("oracle", "dss")
    found = [scores.of(case, reference, "", key)[:1] or [np.nan] for case in cases]
    axes.plot(values, found, ":", color="0.4", label="random topics" if key == "tss" else "oracle")
