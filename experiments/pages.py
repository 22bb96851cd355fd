"""The pages that are kept, again from their rows: what stands in a page can be recomputed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / "benchmarks" / "results"
EXPERIMENTS = {
    "figure3": ("experiments.gfedntm.figure3", "experiments.gfedntm.figure3_results"),
    "flda": ("experiments.flda.runs", "experiments.flda.results"),
    "fstc": ("experiments.fstc.tasks", "experiments.fstc.results"),
}


def page_again(name: str) -> str:
    """Return an experiment's page, made of its rows anew, with the versions that they are of."""
    settings_of, results_of = map(import_module, EXPERIMENTS[name])
    settings = settings_of.Settings(Path("FOLDER"))
    folder = KEPT / name
    rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text("utf-8").splitlines()]
    versions = json.loads((folder / f"{name}.json").read_text("utf-8"))["versions"]
    content: dict[str, Any] = results_of.plain(settings, rows) | {"versions": versions}
    return str(results_of.page(settings, rows, content))


def differing(write: bool) -> Iterator[Path]:
    """Yield the pages that are not what their rows say; with `write`, mend them."""
    for name in EXPERIMENTS:
        path, page = KEPT / name / f"{name}.md", page_again(name)
        if path.read_text("utf-8") != page:
            if write:
                path.write_text(page, "utf-8")
            yield path
