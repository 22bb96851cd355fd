"""What experiments share: what they need, tables, versions, files that are written whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.errors import FedTopicsError


@dataclass(frozen=True)
class Table:
    """A table for people: the first column says what a row is, the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """Return it as Markdown, numbers to the right."""
        marks = ["---", *["---:"] * (len(self.header) - 1)]
        lines = [self.header, marks, *self.rows]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{self.title}\n\n{body}\n"


def require(**packages: str) -> None:
    """Refuse to begin without packages, given as module=package.

    Raises
    ------
    FedTopicsError
        If one is not installed.
    """
    for module, package in packages.items():
        if find_spec(module) is None:
            raise FedTopicsError(
                f"The experiments need the package {package}, which is not installed; install it "
                "with: pip install 'fedtopics[experiments]'"
            )


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def page(title: str, meaning: str, found: Mapping[str, Any], tables: Iterable[Table]) -> str:
    """Return an experiment in Markdown: what `plain` has, what it means, and its tables."""
    used = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    parts = [f"# {title}", f"`{found['command']}`", f"{used}.", meaning]
    parts += [table.markdown() for table in tables]
    parts.append("\n".join(f"- {sentence}" for sentence in found["findings"]))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def plain(
    command: str, packages: Sequence[str], findings: Iterable[str], rows: Iterable[Any]
) -> dict[str, Any]:
    """Return an experiment for JSON."""
    return {
        "command": command,
        "versions": versions(packages),
        "findings": list(findings),
        "runs": list(rows),
    }


def spread(values: Sequence[float], digits: int) -> str:
    """Return mean and deviation; one value has none, and where one is missing there is a dash."""
    if not len(values) or not np.isfinite(values).all():
        return "-"
    deviation = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):,.{digits}f}{deviation}"


def save_picture(figure: Any, paths: Iterable[Path], dots: int = 100) -> None:
    """Save a figure as .png or .svg, the same bytes for the same figure."""
    for path in paths:
        meta = {"Software": None} if path.suffix == ".png" else {"Date": None}
        figure.savefig(path, dpi=dots, metadata=meta)


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all, so that what is there can be trusted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
    unfinished.replace(path)
