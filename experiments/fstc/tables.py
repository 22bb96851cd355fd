"""The scores of the FSTC experiments as tables, the published ones beside them."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from experiments.fstc.methods import (
    DAMAGED,
    DATA_SETS,
    ENCODERS,
    LOSSES,
    MASSES,
    TITLES,
    TUNED_DOCUMENTS,
    TUNINGS,
    VIEWS,
    DataSet,
)
from experiments.fstc.parts import (
    COMPARED,
    CONCENTRATION,
    CONTROLS,
    ENCODED,
    FORMS,
    LEARNED,
    PICTURES,
    SHAKEN,
    SMALLEST,
    SWEEPS,
    SWEPT,
    VIEWED,
)
from experiments.fstc.published import PUBLISHED, TABLE_1, Counts
from experiments.fstc.significance import LEVEL, PAIRS, UTest
from experiments.report import Rows, Table, mean, scores, select, spread

Wanted = Mapping[str, Any]
OLD = "†"  # of rows of an earlier state
STARTS = {"kmeans": "from k-means", "discriminative": "from discriminative clustering"}
VARIANTS = {
    "alone": "the start alone",
    "plain": "without the mixture",
    "mixture": "with the mixture from the beginning",
    "late": "with the mixture from the middle",
    "unaligned": "without the mixture and the common centres",
}


def tables(all_rows: Rows) -> list[Table]:
    """Return the tables of the parts that there are."""
    made = [_sets(all_rows), _all_of_table2(all_rows)]
    made += [_table2(all_rows, data) for data in data_sets(all_rows, "table2")]
    made += [_significance(all_rows), *_grids(all_rows).values(), _tuning(all_rows)]
    return [table for table in made if table.rows]


def data_sets(all_rows: Rows, part: str) -> list[DataSet]:
    """Return the data sets of a part."""
    return [data for data in DATA_SETS.values() if select(all_rows, part=part, data=data.name)]


def pictured(all_rows: Rows, data: DataSet) -> Rows:
    """Return the rows of the picture, in its order."""
    rows = select(all_rows, part="picture", data=data.name)
    return [row for name in PICTURES for row in select(rows, name=name)]


def _sets(all_rows: Rows) -> Table:
    """Return the paper's table 1: what the files hold, and what is published."""
    header = ("set", *(cell for name in Counts._fields for cell in (name, "published")))
    digits = Counts(0, 0, 1)
    lines = []
    for data in data_sets(all_rows, "sets"):
        row, *_ = select(all_rows, part="sets", data=data.name)
        published = TABLE_1[data.name]._asdict() if data.name in TABLE_1 else {}
        cells = (
            cell
            for name, n in digits._asdict().items()
            for cell in (f"{row[name]:,.{n}f}", f"{published[name]:,}" if published else "-")
        )
        lines.append((data.title, *cells))
    return Table("Table 1: what the files hold", header, tuple(lines))


def _all_of_table2(all_rows: Rows) -> Table:
    """Return ACC / NMI of all data sets, each beside what is published."""
    columns = {data.title: {"data": data.name} for data in data_sets(all_rows, "table2")}
    ours = _grid("Table 2", all_rows, "table2", _methods(*TITLES), columns)
    lines = []
    for name, (title, *cells) in zip(TITLES, ours.rows, strict=False):  # or there are no rows
        entries = (PUBLISHED.get(column["data"], {}).get(name) for column in columns.values())
        published = (f"{one.acc:.1f} / {one.nmi:.1f}" if one else "-" for one in entries)
        lines.append((title, *chain(*zip(cells, published, strict=True))))
    header = ("method", *chain(*((title, "published") for title in columns)))
    return Table(ours.title, header, tuple(lines))


def _table2(all_rows: Rows, data: DataSet) -> Table:
    header = (
        "method",
        "seeds",
        "ACC",
        "NMI",
        "published ACC",
        "published NMI",
        "seconds of a core",
        "rounds",
        "MB",
    )
    lines = []
    for name, title in TITLES.items():
        wanted = {"part": "table2", "data": data.name, "name": name}
        entry = PUBLISHED.get(data.name, {}).get(name)
        published = ("-", "-")
        if entry is not None:
            published = (
                f"{entry.acc:.2f} ± {entry.acc_deviation:.2f}",
                f"{entry.nmi:.2f} ± {entry.nmi_deviation:.2f}",
            )
        ours = (spread(scores(all_rows, score, **wanted), 2) for score in ("acc", "nmi"))
        rows = select(all_rows, **wanted)
        seeds = len(rows)
        cost = ("-", "-", "-")
        if seeds:
            seconds = [row["core_seconds"] for row in rows if "core_seconds" in row]
            rounds, size = (mean(all_rows, cost, **wanted) for cost in ("rounds", "bytes"))
            cost = (
                f"{np.mean(seconds):.1f}" if seconds else "-",
                f"{rounds:.0f}",
                f"{size / 1e6:.2f}",
            )
        lines.append((title, f"{seeds}{_mark(rows)}", *ours, *published, *cost))
    return Table(f"{data.title}, table 2", header, tuple(lines))


def _significance(all_rows: Rows) -> Table:
    """Return p of one-sided tests, a column a data set and score."""
    sets = data_sets(all_rows, "table2")
    header = ("is above", *(f"{data.title}, {score}" for data in sets for score in ("ACC", "NMI")))
    rows = tuple(
        (
            f"{TITLES[one]} above {TITLES[other]}",
            *(
                str(UTest.of(all_rows, data.name, score, one, other))
                for data in sets
                for score in ("acc", "nmi")
            ),
        )
        for one, other in PAIRS
        if sets
    )
    return Table(f"Mann-Whitney U tests, one-sided, of table 2 (* p < {LEVEL})", header, rows)


def _grids(all_rows: Rows) -> dict[str, Table]:
    """Return the tables of ACC / NMI of the parts but table 2."""
    starts: dict[str, Wanted] = {
        f"{of_start}: {of_variant}": {"start": start, "name": variant}
        for start, of_start in STARTS.items()
        for variant, of_variant in VARIANTS.items()
    }
    weights = _methods("fsbert", "discriminative") | {
        f"{TITLES[name]}, lambda {value:g}": {"name": name, "alignment": value}
        for name in FORMS
        for value in SWEEPS["lambda"].values
    }
    masses = _methods(*CONTROLS) | {
        f"{TITLES['fstc']}, masses {masses!r}": {"name": "fstc", "masses": masses}
        for masses in MASSES
    }
    encoders: dict[str, Wanted] = {
        f"{encoder}: {TITLES[name]}": {"name": name, "encoder": encoder}
        for encoder in ENCODERS
        for name in ENCODED
    }
    labels = {
        f"{data.title}, {labels}": {"data": data.name, "labels": labels}
        for data in data_sets(all_rows, "skew")
        for labels in ("even", "skewed")
    }
    by_m = {f"m = {m}": {"m": m} for m in SWEEPS["clients"].values}
    by_rho = {f"{5 + rho}:{5 - rho}": {"rho": rho} for rho in SWEEPS["shares"].values}
    by_share = {f"{share:.0%}": {"damaged": share} for share in DAMAGED}
    swept = DATA_SETS[SWEPT].title
    smallest = DATA_SETS[SMALLEST].title
    grids: dict[str, tuple[str, Mapping[str, Wanted], Mapping[str, Wanted] | None]] = {
        "ablation": ("FSTC and what it is made of", starts, None),
        "losses": ("What networks make small", _each(LEARNED, "loss", LOSSES), None),
        "lambda": ("Weight of the common centres", weights, None),
        "clients": (f"IID partitions: {swept} at m clients", _methods(*COMPARED), by_m),
        "shares": (
            f"Non-IID partitions: {swept} at two clients of different size",
            _methods(*COMPARED),
            by_rho,
        ),
        "skew": (
            f"Clients with the same labels and with others (Dirichlet, {CONCENTRATION})",
            masses,
            labels,
        ),
        "noise": (f"Typing mistakes in a share of {smallest}'s words", _methods(*SHAKEN), by_share),
        "views": ("What networks are trained on", _each(VIEWED, "views", VIEWS), None),
        "encoders": ("Encoders", encoders, None),
    }
    return {
        part: _grid(f"{title}, short schedule", all_rows, part, lines, columns)
        for part, (title, lines, columns) in grids.items()
    }


def _each(names: Iterable[str], key: str, values: Iterable[str]) -> dict[str, Wanted]:
    return {f"{TITLES[n]}: {value}": {"name": n, key: value} for n in names for value in values}


def _tuning(all_rows: Rows) -> Table:
    rows = select(all_rows, part="tuning")
    lines: dict[str, Wanted] = {TITLES["fsbert"]: {"name": "fsbert"}}
    lines |= {
        TITLES[name].replace("frozen", tuning): {"name": name, "tuning": tuning}
        for name in ("stc", "paper")
        for tuning in TUNINGS
    }
    title = (
        f"An encoder that is trained: {TUNED_DOCUMENTS} texts of {DATA_SETS[SMALLEST].title}, few "
        "and small steps"
    )
    digits = {"acc": 2, "nmi": 2, "core_seconds": 0}
    return Table(
        title,
        ("method", "ACC", "NMI", "seconds of a core"),
        tuple(
            (name, *(spread(scores(rows, score, **line), n) for score, n in digits.items()))
            for name, line in lines.items()
            if rows
        ),
    )


def _methods(*names: str) -> dict[str, Wanted]:
    return {TITLES[name]: {"name": name} for name in names}


def _grid(
    title: str,
    all_rows: Rows,
    part: str,
    lines: Mapping[str, Wanted],
    columns: Mapping[str, Wanted] | None = None,
) -> Table:
    """Return ACC / NMI of what is asked for; by default a column a data set."""
    rows_of_part = select(all_rows, part=part)
    if columns is None:
        columns = {data.title: {"data": data.name} for data in data_sets(all_rows, part)}
    cells = {
        name: [select(rows_of_part, **line, **column) for column in columns.values()]
        for name, line in lines.items()
        if rows_of_part
    }
    most = max((len(rows) for of_line in cells.values() for rows in of_line), default=0)
    made = ((name, *(_both(rows, most) for rows in of_line)) for name, of_line in cells.items())
    return Table(f"{title}: ACC / NMI", ("method", *columns), tuple(made))


def _both(rows: Rows, most: int) -> str:
    """Return ACC / NMI, and in brackets of how many seeds if they are fewer."""
    scored = (spread([row[score] for row in rows], 1) for score in ("acc", "nmi"))
    fewer = f" ({len(rows)})" if 0 < len(rows) < most else ""
    return " / ".join(scored) + fewer + _mark(rows)


def _mark(rows: Rows) -> str:
    return f" {OLD}" if any("versions" not in row for row in rows) else ""
