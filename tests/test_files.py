"""Files of lines that only grow."""

from __future__ import annotations

import json
from pathlib import Path

from fedtopics.files import Rows, digest


def test_a_task_with_a_row_is_not_done_again(tmp_path: Path) -> None:
    path, events, done = tmp_path / "new" / "rows.jsonl", [], []

    def work(task: int) -> dict[str, int]:
        done.append(task)
        return {"square": task**2}

    for tasks in ([2, 3], [3, 4]):
        Rows(path).fill(tasks, lambda n: {"n": n}, work, lambda n: f"task {n}", events.append)
        with path.open("a", encoding="utf-8") as file:
            file.write('{"n": 5, "squ')  # as a crash leaves it
    assert done == [2, 3, 4]
    assert [event["name"] for event in events] == ["task 2", "task 3", "", "task 4", ""]
    assert [(event["done"], event["models"]) for event in events[3:]] == [(0, 1), (1, 1)]
    assert Rows(path).find({"n": 4}) == {"n": 4, "square": 16}
    assert Rows(path).find({"n": 5}) is None


def test_rows_are_strict_json(tmp_path: Path) -> None:
    row = {"a": float("nan"), "b": float("-inf"), "c": 0.5}
    kept = Rows(tmp_path / "rows.jsonl").keep(row)
    assert kept == {"a": None, "b": None, "c": 0.5}
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == kept


def test_a_digest_is_short_and_stays() -> None:
    assert digest("tea") == "a9f74d1ec36ebdeb"
