"""The scores of the FSTC experiments as tables, the published ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.fstc.published import PUBLISHED
from experiments.fstc.tasks import (
    COMPARED,
    CONCENTRATION,
    CONTROLS,
    DATA_SETS,
    FORMS,
    MASSES,
    SWEEPS,
    SWEPT,
    TITLES,
    DataSet,
)
from experiments.report import Found, Table, mean, scores, select, spread

Wanted = Mapping[str, Any]
STARTS = {"kmeans": "from k-means", "discriminative": "from discriminative clustering"}
VARIANTS = {
    "alone": "the start alone",
    "plain": "without the mixture",
    "mixture": "with the mixture from the beginning",
    "late": "with the mixture from the middle",
    "unaligned": "without the mixture and the common centres",
}


def tables(found: Found) -> list[Table]:
    """Return the tables of the parts that there are."""
    made = [_table2(found, data) for data in data_sets(found, "table2")]
    made += [_ablation(found), _lambda(found), _clients(found), _shares(found), _skew(found)]
    return [table for table in made if table.rows]


def data_sets(found: Found, part: str) -> list[DataSet]:
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
            published = (
                f"{known.acc:.2f} ± {known.acc_deviation:.2f}",
                f"{known.nmi:.2f} ± {known.nmi_deviation:.2f}",
            )
        ours = (spread(scores(found, score, **wanted), 2) for score in ("acc", "nmi"))
        seconds, rounds, size = (
            mean(found, cost, **wanted) for cost in ("seconds", "rounds", "bytes")
        )
        cost = f"{seconds:.1f}", f"{rounds:.0f}", f"{size / 1e6:.2f}"
        lines.append((title, *ours, *published, *cost))
    return Table(f"{data.title}, table 2", header, tuple(lines))


def _ablation(found: Found) -> Table:
    lines: dict[str, Wanted] = {
        f"{of_start}: {of_variant}": {"start": start, "name": variant}
        for start, of_start in STARTS.items()
        for variant, of_variant in VARIANTS.items()
    }
    return _grid("FSTC and what it is made of, short schedule", found, "ablation", lines)


def _lambda(found: Found) -> Table:
    lines = _methods("fsbert", "discriminative")
    lines |= {
        f"{TITLES[name]}, lambda {value:g}": {"name": name, "alignment": value}
        for name in FORMS
        for value in SWEEPS["lambda"].values
    }
    return _grid("Weight of the common centres, short schedule", found, "lambda", lines)


def _clients(found: Found) -> Table:
    title = f"{DATA_SETS[SWEPT].title} at m clients, short schedule"
    columns = {f"m = {m}": {"m": m} for m in SWEEPS["clients"].values}
    return _grid(title, found, "clients", _methods(*COMPARED), columns)


def _shares(found: Found) -> Table:
    title = f"{DATA_SETS[SWEPT].title} at two clients of different size, short schedule"
    columns = {f"{5 + rho}:{5 - rho}": {"rho": rho} for rho in SWEEPS["shares"].values}
    return _grid(title, found, "shares", _methods(*COMPARED), columns)


def _skew(found: Found) -> Table:
    lines = _methods(*CONTROLS)
    lines |= {
        f"{TITLES['fstc']}, masses {masses!r}": {"name": "fstc", "masses": masses}
        for masses in MASSES
    }
    columns = {
        f"{data.title}, {labels}": {"data": data.name, "labels": labels}
        for data in data_sets(found, "skew")
        for labels in ("even", "skewed")
    }
    title = (
        f"Clients with the same labels and with others (Dirichlet, {CONCENTRATION}), short schedule"
    )
    return _grid(title, found, "skew", lines, columns)


def _methods(*names: str) -> dict[str, Wanted]:
    return {TITLES[name]: {"name": name} for name in names}


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
        columns = {data.title: {"data": data.name} for data in data_sets(found, part)}
    rows = tuple(
        (name, *(_both(select(rows_of_part, **line, **column)) for column in columns.values()))
        for name, line in lines.items()
        if rows_of_part
    )
    return Table(f"{title}: ACC / NMI", ("method", *columns), rows)


def _both(rows: Found) -> str:
    return " / ".join(spread([row[score] for row in rows], 1) for score in ("acc", "nmi"))
