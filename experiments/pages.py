"""The pages that are kept, again from their rows: what stands in a page can be recomputed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments import report
from experiments.gfedntm import amwmd, amwmd_results
from experiments.gfedntm.amwmd_claims import Scores

KEPT = Path(__file__).parents[1] / "benchmarks" / "results"
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


def page_again(name: str) -> str:
    """Return an experiment's page, made of its rows anew, with the versions that they are of."""
    return _made(name)[0]


def _made(name: str) -> tuple[str, dict[str, Any]]:
    """Return a page, and what stands beside it as JSON."""
    if name in FIGURE_4:
        return _figure_4(name)
    settings_of, results_of = map(import_module, EXPERIMENTS[name])
    settings = settings_of.Settings(Path("FOLDER"))
    page = path_of(name)
    lines = page.with_name("runs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    versions = _kept(page.with_suffix(".json"))["versions"]
    content: dict[str, Any] = results_of.plain(settings, rows) | {"versions": versions}
    return results_of.page(settings, rows, content), content


def _figure_4(name: str) -> tuple[str, dict[str, Any]]:
    """Return the page of a folder of figure 4, whose rows are scores by seed, client and model."""
    content = _kept(KEPT / name / "amwmd.json")
    settings = amwmd.Settings(Path("FOLDER"), preset=FIGURE_4[name])
    scores = [
        Scores(one["data_set"], one["documents"], tuple(one["models"]), np.array(one["by_seed"]))
        for one in content["data_sets"]
    ]
    return amwmd_results.page(settings, scores, content), content


def _kept(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def path_of(name: str) -> Path:
    """Return where a page is kept: an experiment's own, or another one beside it."""
    folder, _, page = name.partition("/")
    return KEPT / folder / ("amwmd.md" if name in FIGURE_4 else f"{page or folder}.md")


def differing(write: bool) -> Iterator[Path]:
    """Yield the pages that are not what their rows say; with `write`, mend them."""
    for name in (*EXPERIMENTS, *FIGURE_4):
        path, (page, content) = path_of(name), _made(name)
        if path.read_text("utf-8") != page:
            if write:
                report.write(path.parent, path.stem, page, content)
            yield path
