"""Commands, typed in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from fedtopics import cli

STUDY = """
[method]
n_components = 3
max_rounds = 12
[clients.north]
data = "north.csv"
[clients.south]
data = "south.csv"
"""
CANARY = "zanzibarfigs"
Typed = Callable[..., tuple[int, str, str]]
Refused = Callable[..., str]


def fedtopics(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedtopics", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def typist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """What types a command and returns its exit code and what it said."""

    def type_in(*arguments: object) -> tuple[int, str, str]:
        code = fedtopics(monkeypatch, *arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert err.count("\n") == (1 if code else 0)
        assert not code or err.startswith("fedtopics: ")
        return code, out, err

    return type_in
