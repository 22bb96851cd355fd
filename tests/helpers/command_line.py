"""Commands, typed in this process."""

import sys
from collections.abc import Callable, Iterator

import click
import pytest

from fedtopics import cli

STUDY = """
[method]
name = "gfedntm"
n_components = 3
max_rounds = 12
[vocabulary]
min_clients_per_word = 1
[clients.north]
data = "north.csv"
[clients.south]
data = "south.csv"
"""
CANARY = "zanzibarfigs"
Typed = Callable[..., tuple[int, str, str]]
Done = Callable[..., str]
Refused = Callable[..., str]


def one_line(error: str) -> str:
    """Return an error and its hint as one line."""
    return error.replace(".\nhint: ", "; ")


def find_command(
    words: list[str], command: click.Command = cli.app
) -> tuple[click.Command, list[str]]:
    """Return the command that words begin with, and the other words."""
    while isinstance(command, click.Group) and words:
        if (subcommand := command.get_command(click.Context(command), words[0])) is None:
            break
        command = subcommand
        words = words[1:]
    return command, words


def commands(
    command: click.Command = cli.app, name: str = "fedtopics"
) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(inner, f"{name} {inner.name}")


def fedtopics(
    monkeypatch: pytest.MonkeyPatch, *arguments: object, command: click.Command = cli.app
) -> int:
    monkeypatch.setattr(sys, "argv", ["fedtopics", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main(command)
    return int(stop.value.code or 0)


def typist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """What types a command and returns its exit code and what it said."""

    def type_in(*arguments: object, **how: click.Command) -> tuple[int, str, str]:
        code = fedtopics(monkeypatch, *arguments, **how)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert not code or err.startswith("error: ")
        err = one_line(err)
        assert err.count("\n") == (1 if code else 0)
        return code, out, err

    return type_in
