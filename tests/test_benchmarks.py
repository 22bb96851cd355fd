"""Every benchmark, attack and experiment can be tried in seconds, and CI tries all of them."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks import __main__ as entry
from benchmarks import common
from experiments.commands import group
from fedtopics.text.words import RULES

ROOT = Path(__file__).parents[1]
KNOWN = entry.benchmarks()


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_list_has_a_line_for_each() -> None:
    lines = typed("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(KNOWN)
    assert all(len(line.split()) > 4 for line in lines)
    assert {"quality", "same-bits", "faults", "fuzz", "attacks", "sums"} <= KNOWN.keys()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["qualty"], "There is no benchmark 'qualty'; did you mean quality? "),
        (["xyz"], "There is no benchmark 'xyz'; python -m benchmarks list names all."),
        (["all"], "All benchmarks would take days; say: python -m benchmarks all --quick"),
    ],
)
def test_what_it_does_not_know_is_one_sentence(words: list[str], sentence: str) -> None:
    done = typed(*words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.startswith(sentence)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", KNOWN)
def test_a_benchmark_takes_the_options_of_all(name: str) -> None:
    text = (ROOT / KNOWN[name][0].replace(".", "/")).with_suffix(".py")
    path = text if text.exists() else text.with_suffix("") / "__init__.py"
    assert re.search(r"(arguments|play)\(\s*__doc__", path.read_text("utf-8"))


def test_ci_runs_all_in_their_quick_way() -> None:
    commands = entry.commands()
    assert {name for name in commands if not name.startswith("experiment ")} == KNOWN.keys()
    assert all("--quick" in words for words in commands.values())
    assert "make bench NAME=all QUICK=1" in (ROOT / ".ci/run").read_text("utf-8").splitlines()


def test_a_failure_is_a_line_and_what_went_well_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "BUILD", tmp_path)
    monkeypatch.setattr(entry, "ROOT", tmp_path)
    monkeypatch.setattr(common, "IMPORTED", [])
    monkeypatch.setattr(entry, "IMPORTED", [])
    commands = {"well": ["-m", "keyword"], "badly": ["-m", "benchmarks", "badly"]}
    monkeypatch.setattr(entry, "commands", lambda: commands)
    assert entry.run_all() == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "FAILED" in line]
    assert "badly FAILED: There is no benchmark 'badly'" in line and line.endswith("(badly.log)")
    commands["badly"] = ["-m", "keyword"]
    assert entry.run_all() == 0
    assert "1 of 1 ran; 1 had before" in capsys.readouterr().out


def test_experiments() -> None:
    assert entry.EXPERIMENTS.keys() == group.commands.keys() - {"pages"}  # which trains nothing
    for name in entry.EXPERIMENTS:
        assert "--quick" in [
            option for parameter in group.commands[name].params for option in parameter.opts
        ]
    with pytest.raises(click.UsageError, match="Missing option '--data'; --quick does without"):
        group.main(["flda"], standalone_mode=False)


def options(monkeypatch: pytest.MonkeyPatch, *words: str, **more: Any) -> argparse.Namespace:
    monkeypatch.setattr(sys, "argv", ["python -m benchmarks many-clients", *words])
    return common.arguments("What it is.", **more)


def test_a_quick_run_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "QUICK", tmp_path)
    assert options(monkeypatch).folder == ROOT / "benchmarks" / "results"
    folder = options(monkeypatch, "--quick").folder
    assert folder == tmp_path / "many_clients"
    (folder / "many_clients.md").touch()
    assert list(options(monkeypatch, "--quick").folder.iterdir()) == [], "begins anew"


def test_options_are_of_the_kind_of_their_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--seeds", "5", "--sets", "b", "--busy", "--out", "x.json")
    given = options(monkeypatch, *words, seeds=3, sets=("a", "b"), busy=False, out=None)
    assert (given.seeds, given.sets, given.busy, given.out) == (5, ["b"], True, Path("x.json"))


def test_files_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        options(monkeypatch, data="20ng.parquet")
    assert "say with --data which folder has 20ng.parquet" in capsys.readouterr().err
    assert options(monkeypatch, data="20ng.parquet", optional=True).data is None
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora/20ng.parquet").touch()
    assert common.parquet(tmp_path, "20ng") == tmp_path / "corpora/20ng.parquet"
    with pytest.raises(SystemExit, match=r"no m10\.parquet in .*; name its folder with --data"):
        common.parquet(tmp_path, "m10")


def test_what_has_a_row_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "QUICK", tmp_path)
    given = options(monkeypatch, "--quick")
    asked = []

    def measure(task: dict[str, Any]) -> dict[str, Any]:
        asked.append(task["n"])
        return {"square": task["n"] ** 2}

    common.measured(given, [{"n": 2}, {"n": 3}], measure)
    assert common.measured(given, [{"n": 3}, {"n": 4}], measure) == [
        {"n": 3, "rules": RULES, "square": 9},
        {"n": 4, "rules": RULES, "square": 16},
    ]
    assert common.rules_of([{"n": 1}, *common.kept_rows(given)]) == f"1/{RULES}"
    assert asked == [2, 3, 4]
    assert [row["n"] for row in common.kept_rows(given)] == [2, 3, 4]


def test_tasks_and_a_table() -> None:
    assert [[*task.values()] for task in common.grid(a="xy", b=range(2))] == [
        ["x", 0],
        ["x", 1],
        ["y", 0],
        ["y", 1],
    ]
    assert common.table("name | ms", [("a", 1), ("b", 2.5)]) == [
        "| name | ms |",
        "| --- | ---: |",
        "| a | 1 |",
        "| b | 2.5 |",
    ]
    assert common.mean_and_range([0.1, 0.3], 1) == "0.2 (0.1 to 0.3)"


def test_a_worker_answers_in_json() -> None:
    assert common.apart(common.mean_and_range, [1.0], 2) == "1.00"
    assert json.loads(json.dumps(common.key_of({"a": (1, 2)}))) == {"a": [1, 2]}
