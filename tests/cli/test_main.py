"""The package as a module that Python runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedtopics import __version__, cli


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "fedtopics", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"fedtopics, version {__version__}\n"
    wrong = subprocess.run([*command[:3], "nope"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (2, "fedtopics: No such command 'nope'.\n")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [([], "--help"), (["flda", "--data", "a b"], "flda --data 'a b'"), (["-h"], "-h")],
)
def test_where_the_papers_experiments_went(
    arguments: list[str], command: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["fedtopics", "reproduce", *arguments])
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main()
    where = "The papers' experiments are in the repository: python -m experiments"
    assert capsys.readouterr().err == f"fedtopics: {where} {command}\n"
