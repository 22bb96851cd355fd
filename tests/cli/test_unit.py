"""The units of server and clients: they are sound, and what they start is started again."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.background import until
from tests.helpers.command_line import Typed, typist

ANALYZE = shutil.which("systemd-analyze")
NAMES = ("north", "south")
STUDY = """
name = "letters"
[method]
name = "lda"
n_components = 2
max_rounds = 60
tolerance = 0
initialisation = "random"
coherence = "nothing"
[vocabulary]
min_document_frequency = 2
[federation]
min_clients = 2
[clients.north]
[clients.south]
"""
ROUND = '"event": "round"'
ODD = 'a "quoted" 100% $HOME\\'


def lines(unit: str, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def started(unit: str) -> list[str]:
    """The command that systemd makes of a unit's line: its words, as `man systemd.service` says."""
    (line,) = lines(unit, "ExecStart")
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    return typist(monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed) -> Path:
    monkeypatch.chdir(tmp_path)
    rng, words = (
        np.random.default_rng(0),
        np.array([f"word{letter}" for letter in "abcdefghijklmnopqrst"]),
    )
    for name in NAMES:
        rows = [" ".join(rng.choice(words, 6)) for _ in range(300)]
        Path(f"{name}.csv").write_text("\n".join(["text", *rows]))
    Path("study.toml").write_text(STUDY)
    assert typed("pki", "create", "--server", "localhost")[0] == 0
    for name in NAMES:
        assert typed("pki", "issue", name)[0] == 0
    return tmp_path


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_server_that_dies_is_started_again_by_the_same_unit(
    folder: Path, typed: Typed, running: list[subprocess.Popen[bytes]]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def begin(unit: str) -> subprocess.Popen[bytes]:
        (place,) = lines(unit, "WorkingDirectory")
        log = (folder / "log").open("ab")
        running.append(subprocess.Popen(started(unit), cwd=place, stdout=log, stderr=log))
        return running[-1]

    where = "--listen", f"localhost:{port}", "--out", "run"
    _, serving, _ = typed("unit", "server", "study.toml", "--pki", "pki", *where)
    server = begin(serving)
    clients = []
    for name in NAMES:
        where = "--identity", f"pki/clients/{name}", "--data", f"{name}.csv"
        clients.append(begin(typed("unit", "client", "--server", f"localhost:{port}", *where)[1]))
    events = folder / "run/events.jsonl"
    until(
        lambda: server.poll() is not None or (events.exists() and ROUND in events.read_text()), 60
    )
    server.send_signal(signal.SIGKILL)
    server.wait()
    again = begin(serving)
    codes = [process.wait(60) for process in (again, *clients)]
    assert codes == [0, 0, 0], (folder / "log").read_text()
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert (kinds.count("started"), kinds.count("resumed")) == (1, 1)
    assert (folder / "runs/north/letters/theta.parquet").is_file()


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not here")
@pytest.mark.parametrize("out", ["run", ODD, f"/srv/{ODD}"])
def test_systemd_takes_them(out: str, folder: Path, typed: Typed) -> None:
    place = folder / "of this study"
    place.mkdir()
    given = "--user", "root", "--folder", place
    _, unit, _ = typed("unit", *given, "server", "study.toml", "--pki", "pki", "--out", out)
    file = folder / "fedtopics.service"
    file.write_text(unit)
    done = subprocess.run([str(ANALYZE), "verify", file], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert started(unit)[-2:] == [out, "--go-on"]
    assert lines(unit, "WorkingDirectory") == [str(place)]
    kept = [word.replace("%%", "%") for word in shlex.split(lines(unit, "ReadWritePaths")[0])]
    assert kept == [str(place), out] if out.startswith("/") else [str(place)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo"], "'demo' is no service; name one of server, client, peer."),
        (["server"], "Missing argument 'STUDY'."),
        (["client", "--server", "h:1", "--data", "x", "--nope"], "No such option '--nope'"),
        (["server", "a\nb"], "A path or an option has a character that does not print."),
    ],
)
def test_what_is_no_unit(arguments: list[str], message: str, typed: Typed) -> None:
    code, out, err = typed("unit", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_it_begins_by_whom_it_is_typed(folder: Path, typed: Typed) -> None:
    _, unit, _ = typed("unit", "peer", "study.toml", "--data", "north.csv", "--insecure")
    assert lines(unit, "User") == [getpass.getuser()]
    assert lines(unit, "WorkingDirectory") == [os.fspath(folder)]
    assert "--go-on" not in unit
