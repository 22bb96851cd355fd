"""What the FSTC experiments leave behind: a page, the numbers, figures, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.embeddings import EmbeddingSettings
from fedtopics.experiments import report
from fedtopics.experiments.fstc_runs import (
    CLIENTS,
    COMPARED,
    CONCENTRATION,
    DATA_SETS,
    LAMBDAS,
    LEVELS,
    MASSES,
    N_CLIENTS,
    PICTURES,
    QUICK_DOCUMENTS,
    SHORT,
    SWEPT,
    DataSet,
    Settings,
)
from fedtopics.experiments.report import Table, spread, write_json

Found = Sequence[Mapping[str, Any]]
Wanted = Mapping[str, Any]
PACKAGES = ("fedtopics", "sentence-transformers", "torch", "numpy", "scipy", "scikit-learn")
ENCODER = EmbeddingSettings().model
PAPERS_ENCODER = "distilbert-base-nli-stsb-mean-tokens"
TITLES = {
    "fbow": "FBOW",
    "ftfidf": "FTF-IDF",
    "fsbert": "FSBERT",
    "fsccl": "FSCCL",
    "stc": "FSTC-STC",
    "rstc": "FSTC-RSTC",
    "paper": "FSTC as in the paper",
    "discriminative": "discriminative clustering (ours)",
    "fstc": "FSTC, discriminative start (ours)",
}
PUBLISHED: dict[str, dict[str, tuple[float, float, float, float]]] = {  # ACC, its deviation, NMI, …
    "agnews": {
        "fbow": (28.14, 0.89, 3.26, 0.65),
        "ftfidf": (30.58, 1.35, 7.48, 1.81),
        "fsbert": (65.95, 0.00, 31.55, 0.00),
        "fsccl": (81.17, 0.11, 54.78, 0.18),
        "stc": (84.38, 0.92, 60.75, 1.60),
        "rstc": (84.75, 0.60, 61.33, 0.95),
        "paper": (85.10, 0.25, 62.45, 0.45),
    },
    "stackoverflow": {
        "fbow": (12.32, 1.23, 6.37, 1.53),
        "ftfidf": (42.66, 2.72, 43.79, 3.57),
        "fsbert": (60.55, 0.00, 51.79, 0.00),
        "fsccl": (70.45, 1.84, 61.87, 0.71),
        "stc": (77.90, 1.12, 67.81, 0.51),
        "rstc": (78.58, 0.73, 68.11, 0.25),
        "paper": (79.70, 1.13, 68.83, 0.28),
    },
    "biomedical": {
        "fbow": (13.92, 1.68, 8.53, 1.81),
        "ftfidf": (25.87, 0.77, 23.86, 1.42),
        "fsbert": (39.50, 0.00, 32.63, 0.00),
        "fsccl": (42.10, 0.72, 37.40, 0.18),
        "stc": (45.31, 0.75, 38.25, 0.34),
        "rstc": (45.64, 0.58, 38.36, 0.20),
        "paper": (46.67, 0.72, 39.86, 0.58),
    },
}
STARTS = {"kmeans": "from k-means", "discriminative": "from discriminative clustering"}
VARIANTS = {
    "alone": "the start alone",
    "plain": "without the mixture",
    "mixture": "with the mixture from the beginning",
    "late": "with the mixture from the middle",
    "unaligned": "without the mixture and the common centres",
}
MEANING = f"""\
ACC / NMI in per cent (NMI with the geometric mean), mean and deviation over seeds: best matching of
clusters and labels, on the documents that were clustered. As many clusters as labels. {N_CLIENTS}
clients with equal shares of the shuffled documents, unless said. Embeddings are of
{ENCODER}, which is not trained; the paper trains {PAPERS_ENCODER}.
FSBERT is k-means of the same embeddings: what is above it is a method's, the rest the encoder's.
*Published*: the paper's table 2. *Seconds* are of training in one process, all clients one after
the other, without embedding texts. *MB*: what leaves one client in all. *Short schedule*: FSTC and
FSCCL have {SHORT["max_rounds"]} rounds of {SHORT["local_steps"]} steps instead of 40 of 100; three
seeds.
"""
QUICK_MEANING = f"""\
A quick run: {QUICK_DOCUMENTS} documents of each set, one seed, and far too few steps for a verdict.

"""
SIZE = 3.6  # inches, of one picture of a figure


def select(found: Found, **wanted: Any) -> Found:
    """Return the rows that have all of this, in the order of seeds."""
    return [row for row in found if wanted.items() <= row.items()]


def scores(found: Found, score: str, **wanted: Any) -> list[float]:
    """Return a score of each seed."""
    return [row[score] for row in select(found, **wanted)]


def mean(found: Found, score: str, **wanted: Any) -> float:
    """Return a score's mean over seeds."""
    return float(np.mean(scores(found, score, **wanted)))


def tables(settings: Settings, found: Found) -> list[Table]:
    """Return the tables of the parts that there are."""
    swept = DATA_SETS[SWEPT].title
    made = [_table2(found, data) for data in _sets(found, "table2")]
    lines: dict[str, Wanted] = {
        f"{of_start}: {of_variant}": {"start": start, "name": variant}
        for start, of_start in STARTS.items()
        for variant, of_variant in VARIANTS.items()
    }
    made.append(_grid("FSTC and what it is made of, short schedule", found, "ablation", lines))
    lines = {TITLES[name]: {"name": name} for name in ("fsbert", "discriminative")}
    lines |= {
        f"{TITLES[name]}, lambda {value:g}": {"name": name, "alignment": value}
        for name in ("paper", "fstc")
        for value in LAMBDAS
    }
    made.append(_grid("Weight of the common centres, short schedule", found, "lambda", lines))
    lines = {TITLES[name]: {"name": name} for name in COMPARED}
    columns = {f"m = {m}": {"m": m} for m in CLIENTS}
    made.append(_grid(f"{swept} at m clients, short schedule", found, "clients", lines, columns))
    columns = {f"{5 + rho}:{5 - rho}": {"rho": rho} for rho in LEVELS}
    title = f"{swept} at two clients of different size, short schedule"
    made.append(_grid(title, found, "shares", lines, columns))
    made.append(_skew_table(found))
    return [table for table in made if table.rows]


def _sets(found: Found, part: str) -> list[DataSet]:
    """Return the data sets of a part."""
    return [data for data in DATA_SETS.values() if select(found, part=part, data=data.name)]


def _table2(found: Found, data: DataSet) -> Table:
    header = ("method", "ACC", "NMI", "published ACC", "published NMI", "seconds", "rounds", "MB")
    lines = []
    for name, title in TITLES.items():
        wanted = {"part": "table2", "data": data.name, "name": name}
        known = PUBLISHED.get(data.name, {}).get(name)
        published = ("-", "-")
        if known is not None:
            published = f"{known[0]:.2f} ± {known[1]:.2f}", f"{known[2]:.2f} ± {known[3]:.2f}"
        ours = (spread(scores(found, score, **wanted), 2) for score in ("acc", "nmi"))
        seconds, rounds, size = (
            mean(found, cost, **wanted) for cost in ("seconds", "rounds", "bytes")
        )
        cost = f"{seconds:.1f}", f"{rounds:.0f}", f"{size / 1e6:.2f}"
        lines.append((title, *ours, *published, *cost))
    return Table(f"{data.title}, table 2", header, tuple(lines))


def _grid(
    title: str,
    found: Found,
    part: str,
    lines: Mapping[str, Wanted],
    columns: Mapping[str, Wanted] | None = None,
) -> Table:
    """Return ACC / NMI of what is asked for; by default a column a data set."""
    rows_of_part = select(found, part=part)
    if columns is None:
        columns = {data.title: {"data": data.name} for data in _sets(found, part)}
    rows = tuple(
        (name, *(_both(select(rows_of_part, **line, **column)) for column in columns.values()))
        for name, line in lines.items()
        if rows_of_part
    )
    return Table(f"{title}: ACC / NMI", ("method", *columns), rows)


def _skew_table(found: Found) -> Table:
    lines: dict[str, Wanted] = {
        TITLES[name]: {"name": name} for name in ("fsbert", "fsccl", "discriminative")
    }
    lines |= {
        f"{TITLES['fstc']}, masses {masses!r}": {"name": "fstc", "masses": masses}
        for masses in MASSES
    }
    columns = {
        f"{data.title}, {labels}": {"data": data.name, "labels": labels}
        for data in _sets(found, "skew")
        for labels in ("even", "skewed")
    }
    title = (
        f"Clients with the same labels and with others (Dirichlet, {CONCENTRATION}), short schedule"
    )
    return _grid(title, found, "skew", lines, columns)


def _both(rows: Found) -> str:
    return " / ".join(spread([row[score] for row in rows], 1) for score in ("acc", "nmi"))


def sentences(settings: Settings, found: Found) -> Iterator[str]:
    """Say what is best, what reaches the paper, what each step adds, and what is the encoder's."""
    for data in _sets(found, "table2"):
        yield from _of_table2(found, data)
    for data in _sets(found, "ablation"):
        for start in STARTS:
            yield _of_ablation(found, data, start)
    for data in _sets(found, "lambda"):
        for name in ("paper", "fstc"):
            yield _of_lambda(found, data, name)
    for part, key, values in (("clients", "m", CLIENTS), ("shares", "rho", LEVELS)):
        if _sets(found, part):
            yield from _of_clients(found, part, key, values)
    for data in _sets(found, "skew"):
        yield from _of_skew(found, data)
    if pictured := select(found, part="picture"):
        near = {TITLES[row["name"]]: row["neighbours"] for row in pictured}
        said = ", ".join(f"{title} {share:.1f}" for title, share in near.items())
        yield f"{DATA_SETS[SWEPT].title}: per cent of nearest neighbours of the same label: {said}."


def _of_table2(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="table2", data=data.name)
    acc, nmi = ({name: mean(rows, score, name=name) for name in TITLES} for score in ("acc", "nmi"))
    first, second = (max(means, key=means.__getitem__) for means in (acc, nmi))
    yield (
        f"{data.title}: best in ACC is {TITLES[first]} ({acc[first]:.2f}), best in NMI is "
        f"{TITLES[second]} ({nmi[second]:.2f})."
    )
    if data.name in PUBLISHED:
        yield from _beside_published(data, acc, nmi)
    else:
        added = acc["paper"] - acc["fsbert"]
        yield f"{data.title}: FSTC as in the paper adds {added:+.2f} to FSBERT's ACC."
    gains = [_gain(rows, score, {"name": "fstc"}, {"name": "discriminative"})
             for score in ("acc", "nmi")]  # fmt: skip
    verdict = "adds to" if all(gain.clear for gain in gains) else "does not add to"
    yield (
        f"{data.title}: training FSTC {verdict} the discriminative start: ACC {gains[0]}; NMI "
        f"{gains[1]}."
    )
    order = [acc[name] for name in ("stc", "rstc", "paper")]
    yield (
        f"{data.title}: the mixture and then the common centres each raise ACC, as in the paper: "
        f"{_verdict(order == sorted(set(order)))} "
        f"({', '.join(f'{value:.2f}' for value in order)})."
    )


def _beside_published(
    data: DataSet, acc: Mapping[str, float], nmi: Mapping[str, float]
) -> Iterator[str]:
    """Say which methods reach the published FSTC, and how much of that is the encoder's."""
    known = PUBLISHED[data.name]
    wanted_acc, _, wanted_nmi, _ = known["paper"]
    reached = {name: (acc[name] >= wanted_acc) + (nmi[name] >= wanted_nmi) for name in TITLES}
    yield (
        f"{data.title}: the published FSTC ({wanted_acc:.2f} / {wanted_nmi:.2f}) is reached in "
        f"both scores by {_names(reached, 2)}; in one of them by {_names(reached, 1)}. FSTC as in "
        f"the paper has {acc['paper']:.2f} / {nmi['paper']:.2f} here."
    )
    here, there, best = acc["fsbert"], known["fsbert"][0], max(acc.values())
    yield (
        f"{data.title}: k-means of the embeddings (FSBERT) has ACC {here:.2f} with {ENCODER}; "
        f"{there:.2f} was published with {PAPERS_ENCODER}. Our best is {best - there:.2f} above "
        f"the latter, and {here - there:.2f} of it are the encoder's. FSTC as in the paper adds "
        f"{acc['paper'] - here:+.2f} to FSBERT here, {wanted_acc - there:+.2f} as published."
    )


def _names(reached: Mapping[str, int], times: int) -> str:
    return ", ".join(TITLES[name] for name, n in reached.items() if n == times) or "none"


class _Gain:
    """By how much one thing is above another, seed by seed."""

    def __init__(self, one: Sequence[float], other: Sequence[float]) -> None:
        gains = np.subtract(one, other)
        self.mean = float(gains.mean())
        self.better, self.seeds = int((gains > 0).sum()), len(gains)

    @property
    def clear(self) -> bool:
        """Whether it is above on average and in most seeds."""
        return self.mean > 0 and 2 * self.better > self.seeds

    def __str__(self) -> str:
        return f"{self.mean:+.2f}, better in {self.better} of {self.seeds} seeds"


def _gain(found: Found, score: str, one: Wanted, other: Wanted) -> _Gain:
    return _Gain(scores(found, score, **one), scores(found, score, **other))


def _of_ablation(found: Found, data: DataSet, start: str) -> str:
    rows = select(found, part="ablation", data=data.name, start=start)
    pairs = {
        "training without the mixture": ("plain", "alone"),
        "the mixture from the beginning": ("mixture", "plain"),
        "the mixture from the middle": ("late", "plain"),
        "pulling centres together": ("plain", "unaligned"),
    }
    said = []
    for what, (one, other) in pairs.items():
        gain = _gain(rows, "acc", {"name": one}, {"name": other})
        said.append(f"{what} {'helps' if gain.clear else 'does not help'} ({gain})")
    return f"{data.title}, {STARTS[start]}, by ACC: {'; '.join(said)}."


def _of_lambda(found: Found, data: DataSet, name: str) -> str:
    rows = select(found, part="lambda", data=data.name, name=name)
    values = [mean(rows, "acc", alignment=value) for value in LAMBDAS]
    best = int(np.argmax(values))
    steps = [after > before for before, after in pairwise(values)]
    rises_and_falls = steps == sorted(steps, reverse=True) and 0 < best < len(values) - 1
    return (
        f"{data.title}, {TITLES[name]}: best lambda by ACC is {LAMBDAS[best]:g} "
        f"({values[best]:.2f}), the worst has {min(values):.2f}; ACC rises and then falls with "
        f"lambda, as in the paper: {_verdict(rises_and_falls)}."
    )


def _of_clients(found: Found, part: str, key: str, values: Sequence[int]) -> Iterator[str]:
    title = DATA_SETS[SWEPT].title
    rows = select(found, part=part)
    acc = {
        name: [mean(rows, "acc", name=name, **{key: value}) for value in values]
        for name in COMPARED
    }
    for name in ("paper", "fstc"):
        beside = list(zip(values, acc[name], acc["fsccl"], strict=True))
        said = [f"{key} = {value}: {one:.1f} against {other:.1f}" for value, one, other in beside]
        holds = all(one > other for _, one, other in beside)
        yield (
            f"{title}: {TITLES[name]} is above FSCCL in ACC for each {key}: {_verdict(holds)} "
            f"({'; '.join(said)})."
        )
    change = ", ".join(f"{TITLES[name]} {a[-1] - a[0]:+.1f}" for name, a in acc.items())
    yield f"{title}: change of ACC from {key} = {values[0]} to {key} = {values[-1]}: {change}."


def _of_skew(found: Found, data: DataSet) -> Iterator[str]:
    rows = select(found, part="skew", data=data.name)
    skewed, even = select(rows, labels="skewed"), select(rows, labels="even")
    lines: dict[str, Wanted] = {
        TITLES[name]: {"name": name} for name in ("fsbert", "fsccl", "discriminative")
    }
    lines[TITLES["fstc"]] = {"name": "fstc", "masses": "even"}
    change = [
        f"{title} {mean(skewed, 'acc', **line) - mean(even, 'acc', **line):+.2f}"
        for title, line in lines.items()
    ]
    yield f"{data.title}: what skewed labels change in ACC: {', '.join(change)}."
    for labels, of_labels in (("skewed", skewed), ("even", even)):
        acc = {masses: mean(of_labels, "acc", masses=masses) for masses in MASSES}
        said = ", ".join(f"{masses} {value:.2f}" for masses, value in acc.items())
        best = max(acc, key=acc.__getitem__)
        yield (
            f"{data.title}, {labels} labels: the best masses for FSTC's transport are {best!r} "
            f"(ACC: {said}; discriminative clustering, which it begins with, "
            f"{mean(of_labels, 'acc', name='discriminative'):.2f})."
        )


def _verdict(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def page(settings: Settings, found: Found) -> str:
    """Return the tables and sentences in Markdown."""
    meaning = (QUICK_MEANING if settings.quick else "") + MEANING
    return report.page("FSTC", meaning, plain(settings, found), tables(settings, found))


def plain(settings: Settings, found: Found) -> dict[str, Any]:
    """Return all of it for JSON, but for the points of the picture."""
    rows = [{key: value for key, value in row.items() if key != "points"} for row in found]
    return report.plain(settings.command, PACKAGES, sentences(settings, found), rows)


def write_results(settings: Settings, found: Found) -> list[Path]:
    """Write fstc.md, fstc.json and the figures of the parts that there are; return their paths."""
    written = [settings.folder / f"fstc.{suffix}" for suffix in ("md", "json")]
    written[0].write_text(page(settings, found), "utf-8")
    write_json(written[1], plain(settings, found))
    sweeps = {
        "lambda": [
            Sweep(data.title, "lambda", {"part": "lambda", "data": data.name}, "alignment", LAMBDAS)
            for data in _sets(found, "lambda")
        ],
        "clients": [
            Sweep(DATA_SETS[SWEPT].title, label, {"part": part}, key, values)
            for part, label, key, values in (
                ("clients", "m, clients of one size", "m", CLIENTS),
                ("shares", "rho, two clients 5 + rho to 5 - rho", "rho", LEVELS),
            )
            if _sets(found, part)
        ],
    }
    for name, panels in sweeps.items():
        if panels:
            written += _draw(settings, name, partial(_draw_sweeps, found=found, panels=panels))
    if pictured := select(found, part="picture"):
        written += _draw(settings, "picture", partial(_draw_picture, rows=pictured))
    return written


@dataclass(frozen=True)
class Sweep:
    """A column of a figure: scores over values of a key of the rows.

    Parameters
    ----------
    title, label : str
        Of the column, of its axis.
    wanted : mapping
        Which rows.
    key : str
        Rows without it are a level line.
    values : sequence of float
    """

    title: str
    label: str
    wanted: Wanted
    key: str
    values: Sequence[float]


def _draw(settings: Settings, name: str, draw: Callable[[Any], None]) -> list[Path]:
    """Draw a figure and save it; return its paths."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    paths = [settings.folder / f"fstc-{name}.{suffix}" for suffix in ("png", "svg")]
    with rc_context({"svg.hashsalt": "fstc", "font.size": 10}):
        figure = Figure(layout="constrained")
        draw(figure)
        report.save_picture(figure, paths)
    return paths


def _draw_sweeps(figure: Any, found: Found, panels: Sequence[Sweep]) -> None:
    """Draw the paper's figures 3 and 4: ACC above, NMI below, with deviations."""
    figure.set_size_inches(SIZE * len(panels) + 1, 2 * SIZE)
    grid = figure.subplots(2, len(panels), squeeze=False)
    for line, score in zip(grid, ("acc", "nmi"), strict=True):
        for axes, panel in zip(line, panels, strict=True):
            _draw_sweep(axes, select(found, **panel.wanted), panel, score)
            axes.set(title=panel.title, xlabel=panel.label, ylabel=f"{score.upper()} in per cent")
    known = dict(zip(*reversed(grid[0][0].get_legend_handles_labels()), strict=True))
    figure.legend(known.values(), known, loc="outside lower center", ncols=2)


def _draw_sweep(axes: Any, rows: Found, panel: Sweep, score: str) -> None:
    places = range(len(panel.values))
    for number, name in enumerate(COMPARED):
        own = select(rows, name=name)
        style = {"color": f"C{number}", "label": TITLES[name]}
        if own and panel.key not in own[0]:
            axes.axhline(mean(own, score), linestyle="--", **style)
        elif own:
            values = [scores(own, score, **{panel.key: value}) for value in panel.values]
            spread = [np.std(one) for one in values]
            axes.errorbar(places, [np.mean(one) for one in values], spread, marker="o", **style)
    axes.set_xticks(places, [f"{value:g}" for value in panel.values])


def _draw_picture(figure: Any, rows: Found) -> None:
    """Draw the paper's figure 2: what each method sees, coloured by label."""
    figure.set_size_inches(SIZE * len(PICTURES), SIZE)
    for axes, name in zip(
        figure.subplots(1, len(PICTURES), squeeze=False)[0], PICTURES, strict=True
    ):
        (row,) = select(rows, name=name)
        x, y, labels = zip(*row["points"], strict=True)
        axes.scatter(x, y, c=labels, cmap="tab20", s=3, linewidths=0)
        axes.set(title=TITLES[name], xticks=[], yticks=[])
        axes.set_xlabel(f"nearest of the same label: {row['neighbours']:.1f} %")
