"""What experiments share: what they need, scores of rows, tables, pages, pictures, files."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics import extras

Rows = Sequence[Mapping[str, Any]]  # the rows of an experiment
DOTS = 100  # per inch, of a PNG
QUICK = "Made-up texts or few documents, to see that it runs: no verdict on a paper follows."


@dataclass(frozen=True)
class Table:
    """A table for people: the first column says what a row is, the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return it as Markdown, with its title."""
        return f"{self.title}\n\n{self.body()}"

    def body(self) -> str:
        """Return its header and rows as Markdown, numbers to the right."""
        marks = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [self.header, marks, *self.rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def require(**packages: str) -> None:
    """Refuse to begin without packages, given as module=package.

    Raises
    ------
    FedTopicsError
        If one is not installed.
    """
    extras.require("The experiments need", "'.[experiments]'", *packages.items())


def select(rows: Rows, **wanted: Any) -> Rows:
    """Return the rows that have all of this, in the order of seeds."""
    return [row for row in rows if wanted.items() <= row.items()]


def scores(rows: Rows, score: str, **wanted: Any) -> list[float]:
    """Return a score of each seed; nan where it has no finite value."""
    values = [row[score] for row in select(rows, **wanted)]
    return [float("nan") if value is None else value for value in values]


def mean(rows: Rows, score: str, **wanted: Any) -> float:
    """Return a score's mean over seeds."""
    return float(np.mean(scores(rows, score, **wanted)))


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    installed = {}
    for package in packages:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def page(title: str, meaning: str, content: Mapping[str, Any], tables: Iterable[Table]) -> str:
    """Return an experiment in Markdown: what `plain` has, what it means, and its tables.

    A quick run has neither verdicts nor published figures.
    """
    quick = "--quick" in content["command"]
    used = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    parts = [f"# {title}", *[QUICK] * quick, f"`{content['command']}`", f"{used}.", meaning]
    parts += [table.markdown() for table in (map(unpublished, tables) if quick else tables)]
    parts += ["\n".join(f"- {sentence}" for sentence in content["findings"])] * bool(
        content["findings"]
    )
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def unpublished(table: Table) -> Table:
    """Return a table without columns of published numbers."""
    columns = [n for n, name in enumerate(table.header) if not name.startswith("published")]
    header, *rows = (tuple(row[n] for n in columns) for row in (table.header, *table.rows))
    return Table(table.title, header, tuple(rows))


def plain(
    command: str, packages: Sequence[str], findings: Iterable[str], rows: Iterable[Any]
) -> dict[str, Any]:
    """Return an experiment for JSON."""
    return {
        "command": command,
        "versions": versions(packages),
        "findings": [] if "--quick" in command else list(findings),
        "runs": list(rows),
    }


def spread(values: Sequence[float], digits: int) -> str:
    """Return mean and deviation; one value has none, and where one is missing there is a dash."""
    if not len(values) or not np.isfinite(values).all():
        return "-"
    deviation = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):,.{digits}f}{deviation}"


def draw(path: Path, name: str, fill: Callable[[Any], None], font_size: int = 11) -> list[Path]:
    """Draw a figure on an empty one by `fill` and save it; return the paths, PNG and SVG.

    `path` has no suffix; identifiers in the SVG follow from `name`, so that the same figure has the
    same bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    written = []
    with rc_context({"svg.hashsalt": name, "font.size": font_size}):
        figure = Figure(layout="constrained")
        fill(figure)
        for suffix, meta in (("png", {"Software": None}), ("svg", {"Date": None})):
            written.append(path.with_name(f"{path.name}.{suffix}"))
            figure.savefig(written[-1], dpi=DOTS, metadata=meta)
    return written


def write(folder: Path, name: str, text: str, content: Any) -> list[Path]:
    """Write an experiment's page and numbers, NAME.md and NAME.json; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{name}.{suffix}" for suffix in ("md", "json")]
    written[0].write_text(text, "utf-8")
    write_json(written[1], content)
    return written


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all, so that what is there can be trusted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    unfinished.replace(path)
