"""What a user types to take part without a server, right and wrong."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from fedtopics import cli, pki
from fedtopics.cli import display
from tests.helpers.background import HOST, Background
from tests.helpers.command_line import Typed
from tests.helpers.peers import quickly

__all__ = ["quickly"]
NAMES = ("east", "north", "south")
pytestmark = pytest.mark.usefixtures("quickly")
METHOD = """
[method]
name = "lda"
n_components = 3
max_rounds = 4
[federation]
gather = 20
"""


def study(addresses: dict[str, str]) -> str:
    tables = (f'[clients.{name}]\naddress = "{place}"\n' for name, place in addresses.items())
    return METHOD + "".join(tables)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Studies, an authority, documents; somebody else listens at north's address of `taken`."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        words = np.array([f"{name}{chr(97 + i)}" for i in range(26)])
        rows = [f"{i},{' '.join(rng.choice(words, 8))}\n" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("id,text\n" + "".join(rows))
    pki.create(tmp_path / "pki", ["localhost"])
    pki.issue(tmp_path / "pki", "north", peer=True)
    for name in ("south", "stranger"):
        pki.issue(tmp_path / "pki", name)
    studies = {
        "study": study(dict.fromkeys(NAMES, f"{HOST}:1")),
        "abroad": study(dict.fromkeys(NAMES, f"{HOST}:1") | {"north": "192.0.2.7:7557"}),
        "none": METHOD + "[clients.north]\n",
        "hidden": study({"north": f"{HOST}:1"}) + "[clients.south]\n",
    }
    for name, content in studies.items():
        (tmp_path / f"{name}.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", display.Terminal(width=100))
    return tmp_path


DATA = ["--data", "north.csv"]
NORTH, SOUTH = (["--identity", f"pki/clients/{name}"] for name in ("north", "south"))
INSECURE = ["--insecure", "--name", "north"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["study.toml"], 2, "Missing option '--data'."),
        (["study.toml", *DATA], 2, "Give --identity DIR, or --insecure with --name on one machine"),
        (["none.toml", *DATA, *NORTH], 2, "The study has no addresses, so it needs a server; for"),
        (["study.toml", *DATA, "--identity", "pki/clients/stranger"], 2,
         "The study has no participant 'stranger', only east, north, south; each is a table"),
        (["study.toml", *DATA, *SOUTH], 2, "fedtopics pki issue south --renew --peer"),
        (["study.toml", *DATA, "--identity", "pki/server"], 2, "holds the identity of a server"),
        (["hidden.toml", *DATA, *SOUTH, "--listen", f"{HOST}:2"], 2, "no address of 'south', so"),
        (["study.toml", *DATA, *NORTH, "--listen", "a:b"], 4, "'a:b' is no address; write HOST:"),
        (["abroad.toml", *DATA, *NORTH], 4, "This machine cannot listen on 192.0.2.7:7557: the po"),
        (["abroad.toml", *DATA, *INSECURE], 4, "works on this machine alone, not with 192.0.2.7"),
    ],
)  # fmt: skip
def test_wrong_input(
    arguments: list[str], code: int, message: str, folder: Path, typed: Typed
) -> None:
    found, _, err = typed("peer", *arguments)
    assert found == code
    assert message in err


def test_a_study_without_a_server(
    folder: Path, typed: Typed, capsys: pytest.CaptureFixture[str]
) -> None:
    listening = {name: socket.create_server((HOST, 0)) for name in NAMES}
    places = {name: f"{HOST}:{each.getsockname()[1]}" for name, each in listening.items()}
    Path("study.toml").write_text(study(places))
    for each in listening.values():
        each.close()
    more = {"north": ["--secret-from-seed"], "south": ["--json"], "east": []}
    typing = [
        ["peer", "study.toml", "--insecure", "--name", name, "--data", f"{name}.csv", "--out", name]
        for name in NAMES
    ]
    working = [
        Background(lambda line=line: cli.app(line, standalone_mode=False))
        for line in ([*line, *more[name]] for name, line in zip(NAMES, typing, strict=True))
    ]
    for work in working:
        work.result()
    heard = capsys.readouterr().out
    events = [json.loads(line) for line in heard.splitlines() if line.startswith("{")]
    (adder,) = {event["client"] for event in events if event["event"] == "adds"}
    assert f"{adder} adds up what all send" in heard
    assert "waits for a majority: 1 of 3 are linked, 2 are needed" in heard
    assert "round 4 of 4" in heard
    for name in ("east", "north"):
        assert f"{name}: the model is in {name}/model; the topics of 40 documents" in heard
        assert f"The run is in {name}, the model in {name}/model." in heard
    models = [(folder / name / "model/model.safetensors").read_bytes() for name in NAMES]
    assert models[0] == models[1] == models[2]
    reports = {name: (folder / name / "report.md").read_text() for name in NAMES}
    assert ["--secret-from-seed" in reports[name] for name in NAMES] == [False, True, False]
    assert "of north followed from the study's seed" in typed("ledger", "north")[1]
    assert "seed" not in typed("ledger", "south")[1]
