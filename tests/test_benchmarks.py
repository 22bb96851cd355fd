"""Every benchmark, attack and experiment can be tried in seconds, and CI tries all of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import click
import pytest

from experiments.commands import group

ROOT = Path(__file__).parents[1]
KNOWS = ('"--quick"', "parser_of(__doc__)", "options(__doc__)")  # the helpers' parsers know it


def module(name: str) -> Any:
    """Return a module of benchmarks, whose folder is on no path."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


all_quick = module("all_quick")
SCRIPTS = all_quick.scripts()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_knows_quick(name: str) -> None:
    text = SCRIPTS[name].read_text("utf-8")
    assert any(known in text for known in KNOWS)


def test_no_script_is_forgotten() -> None:
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert names >= all_quick.WORKERS, "a worker that is gone"
    assert {"quality", "scale", "time_to_topics", "faults", "solving", "blind"} <= set(SCRIPTS)
    assert all_quick.commands().keys() == {*SCRIPTS, *all_quick.EXPERIMENTS}
    assert all(words[-1] == "--quick" for words in all_quick.commands().values())


def test_experiments() -> None:
    ran = {words[1] for words in all_quick.EXPERIMENTS.values() if words[0] == "experiments"}
    experiments = group.commands.keys() - {"pages"}  # which trains nothing
    assert ran == experiments
    for name in experiments:
        options = [option for each in group.commands[name].params for option in each.opts]
        assert "--quick" in options


def test_an_experiment_on_files_asks_for_them() -> None:
    with pytest.raises(click.UsageError, match="Missing option '--data'; --quick does without"):
        group.main(["flda"], standalone_mode=False)


def test_ci_runs_them_all() -> None:
    rules = (ROOT / "Makefile").read_text("utf-8").split("\n\n")
    (rule,) = [rule for rule in rules if "\nbench-quick:" in rule]
    assert rule.splitlines()[-1] == "\t$(BIN)/python benchmarks/all_quick.py"
    assert "make bench-quick" in (ROOT / ".ci/run").read_text("utf-8").splitlines()


def test_a_quick_run_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = module("quick")
    monkeypatch.setattr(quick, "QUICK", tmp_path)
    assert quick.results_of("lda", quick=False) == ROOT / "benchmarks" / "results"
    folder = quick.results_of("lda", quick=True)
    assert folder == tmp_path / "lda"
    (folder / "lda.md").touch()
    assert list(quick.results_of("lda", quick=True).iterdir()) == [], "begins anew"
