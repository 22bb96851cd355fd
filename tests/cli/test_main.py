"""The package as a module that Python runs."""

from __future__ import annotations

import subprocess
import sys

from fedtopics import __version__


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "fedtopics", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"fedtopics, version {__version__}\n"
    wrong = subprocess.run([*command[:3], "nope"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (2, "fedtopics: No such command 'nope'.\n")
