"""How many trainings the FSTC experiments are, and what those that there are cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from experiments.costs import Groups
from experiments.fstc.methods import DATA_SETS, TITLES
from experiments.fstc.parts import PARTS, Task
from experiments.fstc.tasks import Settings, given
from experiments.report import Found, select
from fedtopics.federation.study import Study


def groups(settings: Settings, found: Found) -> Groups:
    """Return how many trainings each part is, of the data sets that there are, and their rows.

    FSCCL, which takes five times as long as the others, is apart. A training that is a row of
    several parts counts in the first of them alone. Rows without versions do not count: they are to
    be trained again.
    """
    sets = [data for data in DATA_SETS.values() if select(found, data=data.name)]
    first: dict[tuple[bool, str], str] = {}  # the group of a training, which is pictured or not
    rows: dict[tuple[bool, str], Mapping[str, Any]] = {}
    for part in PARTS:
        there = [row for row in select(found, part=part) if "versions" in row]
        for task in settings.planned(part, sets, lambda *given: range(given[-1])):
            training = part == "picture", _depends_on(task)
            apart = f", {TITLES[task.name]}" if task.name == "fsccl" else ""
            first.setdefault(training, part + apart)
            for row in select(there, **task.row):
                rows.setdefault(training, row)
    return {
        group: (
            list(first.values()).count(group),
            [row for training, row in rows.items() if first[training] == group],
        )
        for group in dict.fromkeys(first.values())
    }


def _depends_on(task: Task) -> str:
    """Return what a task's result depends on, but for the texts."""
    method = _method(json.dumps(task.method))
    content = [task.data, task.split, task.seed, task.n_documents, task.damaged, method]
    return json.dumps(content, sort_keys=True)


@cache
def _method(method: str) -> dict[str, Any]:
    return given(Study.make(method={"n_components": 2, **json.loads(method)}))
