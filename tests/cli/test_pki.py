"""The commands for certificates: which file goes to whom, and one line an error."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from fedtopics import cli, pki
from fedtopics.cli import display

FINGERPRINT = re.compile(r"^(?:[0-9A-F]{2}:){31}[0-9A-F]{2}$", re.MULTILINE)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", display.Terminal(width=40))


class Fedtopics:
    """Types `fedtopics pki ...`; returns what it printed."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch, self._captured = patch, captured

    def __call__(self, *arguments: str) -> str:
        code, out, err = self.result(*arguments)
        assert (code, err) == (0, "")
        return out

    def fails(self, *arguments: str) -> str:
        code, out, err = self.result(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("fedtopics: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    def result(self, *arguments: str) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["fedtopics", "pki", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *self._captured.readouterr()


@pytest.fixture
def fedtopics(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fedtopics:
    return Fedtopics(monkeypatch, capsys)


def test_create_and_issue(fedtopics: Fedtopics) -> None:
    said = fedtopics("create", "--server", "localhost", "--server", "10.0.0.7")
    ends = pki.Identity.load("pki/server").not_after
    assert said.startswith(
        "The authority is in pki, the identity of the server in pki/server, for localhost, "
        f"10.0.0.7, until {ends:%Y-%m-%d}.\n"
    )
    assert "\npki/ca.key stays with you and goes to nobody" in said
    assert "\npki/server goes to the machine that runs the server, over a safe way" in said
    assert "fedtopics pki issue NAME\n" in said

    said = fedtopics("issue", "north", "--days", "30")
    north = pki.Identity.load("pki/clients/north")
    assert said.startswith(
        f'The identity of client "north" is in pki/clients/north, until {north.not_after:%Y-%m-%d}.'
    )
    assert '\npki/clients/north goes to the organisation "north", over a safe way' in said
    assert "\npki/ca.key stays with you and goes to nobody.\n" in said

    said = fedtopics("issue", "north", "--renew")
    assert '\npki/clients/north/client.crt goes to the organisation "north", to replace' in said
    assert pki.Identity.load("pki/clients/north").key == north.key


def test_request_sign_show(fedtopics: Fedtopics) -> None:
    fedtopics("create", "--server", "localhost")
    said = fedtopics("request", "east")
    assert "\neast/client.key stays here and goes to nobody.\n" in said
    assert "\neast/request.csr goes to who runs the server." in said
    (key,) = FINGERPRINT.findall(said)

    waiting = json.loads(fedtopics("show", "east", "--json"))
    assert waiting["problem"] == "It has no certificate yet."
    assert waiting["sha256"] == {"public_key": key}
    assert json.loads(fedtopics("show", "east/request.csr", "--json")) == waiting

    said = fedtopics("sign", "east/request.csr")
    assert 'The certificate of client "east" is in pki/signed/east, until' in said
    signed_key, authority = FINGERPRINT.findall(said)
    assert signed_key == key
    assert 'call the organisation "east" and compare' in said
    assert "\npki/signed/east/ca.crt and pki/signed/east/client.crt go to the" in said

    for path in Path("pki/signed/east").iterdir():
        shutil.copy(path, "east")
    shown = json.loads(fedtopics("show", "east", "--json"))
    identity = pki.Identity.load("east")
    assert shown == {
        "name": "east",
        "role": "client",
        "hosts": [],
        "valid_until": f"{identity.not_after:%Y-%m-%d %H:%M} UTC",
        "problem": None,
        "sha256": identity.fingerprints,
    }
    assert (shown["sha256"]["public_key"], shown["sha256"]["authority"]) == (key, authority)
    assert fedtopics("show", "east").startswith("name         east\nrole         client\n")


def test_errors_are_one_line(fedtopics: Fedtopics) -> None:
    assert "at least one host" in fedtopics.fails("create")
    assert "'a:1' is no DNS name" in fedtopics.fails("create", "--server", "a:1")
    assert "There is no authority in pki; make one" in fedtopics.fails("issue", "north")
    assert "There is no authority in pki; make one" in fedtopics.fails("create", "--renew")
    fedtopics("create", "--server", "localhost")
    assert "There is an authority in pki already" in fedtopics.fails("create")
    assert "'../a' cannot name a client" in fedtopics.fails("issue", "../a")
    assert "'a/b' cannot name a client" in fedtopics.fails("request", "a/b")
    assert 'no client "north" in pki to renew' in fedtopics.fails("issue", "north", "--renew")
    assert "Invalid value for '--days'" in fedtopics.fails("issue", "north", "--days", "4000")
    assert "Missing argument 'NAME'" in fedtopics.fails("issue")
    assert "nowhere.csr cannot be read" in fedtopics.fails("sign", "nowhere.csr")
    assert "is no request" in fedtopics.fails("sign", "pki/ca.crt")
    assert "pki is an authority, not an identity" in fedtopics.fails("show", "pki")
    assert "There is no folder nowhere" in fedtopics.fails("show", "nowhere")
    assert "No such command 'nope'" in fedtopics.fails("nope")
    fedtopics("request", "east")
    assert "a private key east/client.key already" in fedtopics.fails("request", "east")
    assert not Path("pki/clients").exists()
