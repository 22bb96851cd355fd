"""The units of server and clients: they are sound, and what they start is started again."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.command_line import Typed, typist
from tests.helpers.services import NAMES, Service, assert_survives, free_port, write_letters

ANALYZE = shutil.which("systemd-analyze")
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_letters(tmp_path)
    return tmp_path


def test_a_server_that_dies_is_started_again_by_the_same_unit(folder: Path, typed: Typed) -> None:
    address = f"localhost:{free_port()}"

    def service(*words: str) -> Service:
        unit = typed("unit", *words)[1]
        (place,) = lines(unit, "WorkingDirectory")
        return started(unit), Path(place)

    where = "--listen", address, "--out", "run"
    clients = [
        service(
            "client", "--server", address, "--identity", f"pki/clients/{name}", "--data",
            f"{name}.csv",
        )
        for name in NAMES
    ]  # fmt: skip
    server = service("server", "study.toml", "--pki", "pki", *where)
    assert_survives(server, clients, folder / "run")
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
