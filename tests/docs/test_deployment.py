"""The example federation, the README's commands and docs/deployment.md say the same as the code."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import click
import pytest

from fedtopics import cli, errors
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.methods.core.events import Event, RoundEnded, RoundReport, StatusChange

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / "examples" / name for name in ("federation.sh", "peers.sh")]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DEPLOYMENT = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")

Command = tuple[str, ...]


def commands(text: str) -> list[Command]:
    """The commands of fedtopics in a shell's text, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    found = (re.match(r"\s*(?:run |start )?(fedtopics .*)", line) for line in lines)
    split = (shlex.split(match[1], comments=True) for match in found if match)
    return [tuple(words[: words.index(">")] if ">" in words else words) for words in split]


def plain(command: Command) -> Command:
    """A command without what differs from place to place: names, addresses, hosts."""
    text = " ".join(command)
    text = re.sub(r"\b(north|south|west|networkx|scipy|sklearn)\b|\$name", "NAME", text)
    text = re.sub(r"--server (topics\.example\.org|localhost)", "--server HOST", text)
    return tuple(re.sub(r"HOST:(7557|\$port)", "HOST:PORT", text).split())


SHOWN = commands(README.partition("## Real deployment")[2].partition("\n## ")[0])
PLAYED = [each for script in SCRIPTS for each in commands(script.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_bash(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    bash = shutil.which("bash")
    assert bash
    for each in (script, script.with_name("steps.sh")):
        subprocess.run([bash, "-n", str(each)], check=True)


def test_the_scripts_show_everything() -> None:
    begun = {" ".join(command[1:3]) for command in PLAYED}
    assert {"pki create", "pki issue", "pki request", "pki sign"} <= begun
    assert {words[1] for words in PLAYED} >= {
        "doctor", "client", "server", "peer", "ledger", "topics",
    }  # fmt: skip
    assert "--dry-run" in {word for words in PLAYED for word in words}


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_a_script_plays_the_readme(command: Command) -> None:
    wanted = plain(command)
    assert any(plain(played)[: len(wanted)] == wanted for played in PLAYED)


@pytest.mark.parametrize("command", sorted({*SHOWN, *PLAYED}), ids=" ".join)
def test_commands_and_options_exist(command: Command) -> None:
    place: click.Command = cli.app
    words = list(command[1:])
    while isinstance(place, click.Group):
        found = place.get_command(click.Context(place), words.pop(0))
        assert found is not None
        place = found
    options = {name for parameter in place.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


def test_every_key_of_the_federation_is_explained() -> None:
    table = DEPLOYMENT.partition("## How patient")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert rows.keys() == FederationSettings.model_fields.keys()
    for key, shown in rows.items():
        default = FederationSettings.model_fields[key].default
        number = re.sub(r"[, s]", "", shown)
        assert default in (None, shown) or float(number) == default, key


def events(kind: type[Event]) -> Iterator[type[Event]]:
    for event in kind.__subclasses__():
        yield event
        yield from events(event)


def kinds_and_keys() -> Iterator[tuple[str, set[str]]]:
    """Each kind of event, with its keys."""
    for event in events(Event):
        keys = set(get_type_hints(event)) - {"kind"}
        if event is StatusChange:
            for kind in get_args(get_type_hints(event)["status"]):
                yield kind, {"client"}
        elif event is RoundEnded:
            yield event.kind, {"round", *RoundReport.__annotations__, "loss", "documents"}
        else:
            yield event.kind, keys


def test_every_event_is_explained() -> None:
    section = DEPLOYMENT.partition("## Events")[2].partition("\n## ")[0]
    explained = set(re.findall(r"`([a-z ]+)`", section))
    words = set(re.findall(r"\w+", section))
    for kind, keys in kinds_and_keys():
        assert kind in explained, kind
        assert keys <= words, (kind, keys - words)


def test_every_exit_code_is_explained() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.FedTopicsError)}
    section = DEPLOYMENT.partition("## Exit codes")[2].partition("\n## ")[0]
    assert codes | {0, 70, 130, 143} == {int(n) for n in re.findall(r"^\| (\d+) \|", section, re.M)}
