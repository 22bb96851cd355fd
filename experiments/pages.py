"""Kept pages, recomputed from their rows.

These are the pages next to the rows, tables in a README.md below a line that names rows and title,
and in cells of tables the claims of claims.toml, before a mark with their name.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments import claims, report
from experiments.gfedntm import amwmd, amwmd_results
from experiments.gfedntm.amwmd_claims import Scores, summary
from experiments.report import Table
from fedtopics.errors import RunError

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "results"
PAPERS = ROOT / "experiments"
EXPERIMENTS = {
    "figure3": ("experiments.gfedntm.figure3", "experiments.gfedntm.figure3_results"),
    "flda": ("experiments.flda.runs", "experiments.flda.results"),
    "flda/topics": ("experiments.flda.runs", "experiments.flda.words"),
    "fstc": ("experiments.fstc.tasks", "experiments.fstc.results"),
}
FIGURE_4: dict[str, Literal["default", "paper"]] = {
    "amwmd-default": "default",
    "amwmd-paper": "paper",
}
MARKS = re.compile(r"\| [^|\n]*<!--(claim|verdict|text):([\w.-]+)-->")
MARKED = re.compile(r"(<!-- rows of ([\w-]+): (.+) -->\n\n)(?:\|.*\n)*")


@dataclass(frozen=True)
class Made:
    """What follows from an experiment's rows: its page, what stands beside it as JSON, tables."""

    page: str
    content: dict[str, Any]
    tables: list[Table]
    rows: Any


def made(name: str) -> Made:
    """Return an experiment's page, made of its rows anew, with the versions that they are of."""
    if name in FIGURE_4:
        return _figure_4(name)
    settings_of, results_of = map(import_module, EXPERIMENTS[name])
    settings = settings_of.Settings(Path("FOLDER"))
    path = path_of(name)
    rows = _rows(path.with_name("runs.jsonl"))
    versions = _kept(path.with_suffix(".json"))["versions"]
    content: dict[str, Any] = results_of.plain(settings, rows) | {"versions": versions}
    page = results_of.page(settings, rows, content)
    return Made(page, content, results_of.tables(settings, rows), rows)


def _figure_4(name: str) -> Made:
    """Return the page of a folder of figure 4, whose rows are scores by seed, client and model."""
    content = _kept(KEPT / name / "amwmd.json")
    settings = amwmd.Settings(Path("FOLDER"), preset=FIGURE_4[name])
    scores = [
        Scores(
            one["data_set"],
            one["documents"],
            tuple(one["models"]),
            np.array(one["by_seed"]),
            one["trainings"],
        )
        for one in content["data_sets"]
    ]
    page = amwmd_results.page(settings, scores, content)
    return Made(page, content, [summary(scores), amwmd_results.took(scores)], scores)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows; of a task that was done again the last one.

    What stands before "made_of" in a row says which task it is; counts of files have none.
    """
    by_task = {}
    for line in path.read_text("utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        before = takewhile(lambda item: item[0] != "made_of", row.items())
        by_task[json.dumps(list(before))] = row
    return list(by_task.values())


def _kept(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def path_of(name: str) -> Path:
    """Return where a page is kept: an experiment's own, or another one beside it."""
    folder, _, page = name.partition("/")
    return KEPT / folder / ("amwmd.md" if name in FIGURE_4 else f"{page or folder}.md")


def differing(write: bool) -> Iterator[Path]:
    """Yield the pages that are not what their rows say; with `write`, mend them."""
    by_name = {name: made(name) for name in (*EXPERIMENTS, *FIGURE_4)}
    for name, one in by_name.items():
        path = path_of(name)
        if path.read_text("utf-8") != one.page:
            if write:
                report.write(path.parent, path.stem, one.page, one.content)
            yield path
    tables = {(name, table.title): table for name, one in by_name.items() for table in one.tables}
    decided = _claims(by_name)
    others = (*PAPERS.glob("coverage.md"), *ROOT.glob("docs/research/papers.md"))
    for path in (*sorted(PAPERS.glob("*/README.md")), *others):
        text = path.read_text("utf-8")
        filled = MARKED.sub(partial(_filled, path, tables), text)
        filled = MARKS.sub(partial(_claimed, decided), filled)
        if text != filled:
            if write:
                path.write_text(filled, "utf-8")
            yield path


def _claims(by_name: Mapping[str, Made]) -> dict[str, claims.Claim]:
    """Return the claims that kept rows decide."""
    rows: dict[str, Any] = {
        name: kind(by_name[name].rows) for name, kind in claims.KINDS.items() if name in by_name
    }
    if FIGURE_4:
        rows["figure4"] = claims.Figure4({of: by_name[name].rows for name, of in FIGURE_4.items()})
    rows["quality"] = claims.Quality(_rows(KEPT / "quality.jsonl"))
    return {k: v for name, of in rows.items() for k, v in claims.claims(name, of).items()}


def _claimed(decided: Mapping[str, claims.Claim], mark: re.Match[str]) -> str:
    kind, name = mark.groups()
    claim = decided[name]
    limited = claim.verdict + claim.of
    said = {
        "claim": str(claim),
        "verdict": limited,
        "text": f"{claim.text[:1].upper()}{claim.text[1:]}.",
    }
    return f"| {said[kind]}<!--{kind}:{name}-->"


def _filled(path: Path, tables: Mapping[tuple[str, str], Table], mark: re.Match[str]) -> str:
    line, name, title = mark.groups()
    if (name, title) not in tables:
        titles = ", ".join(repr(title) for of, title in tables if of == name)
        raise RunError(
            f"{path.name} has a line for a table {title!r} that no rows of {name} make; mend the "
            f"line. There are: {titles or 'none'}."
        )
    return line + tables[name, title].body()
