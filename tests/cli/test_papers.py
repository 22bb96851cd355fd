"""Commands for who answers for personal data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedtopics.cli import display
from fedtopics.cli.display import Terminal
from tests.helpers.command_line import Typed, typist
from tests.helpers.records import written


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Typed:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(display, "console", Terminal(width=100))
    written(tmp_path / "run")
    return typist(monkeypatch, capsys)


def test_verify(typed: Typed) -> None:
    code, out, _ = typed("verify", "run")
    marks = [line.split()[:2] for line in out.splitlines()]
    assert marks == [
        ["ok", "lines"], ["ok", "end"], ["--", "signature"], ["ok", "study"], ["ok", "file"],
        ["ok", "file"], ["--", "clear"], ["--", "privacy"],
    ]  # fmt: skip
    assert code == 0
    ledger = Path("run/ledger.jsonl")
    ledger.write_bytes(ledger.read_bytes().replace(b'"turn"', b'"turm"').replace(b"20,", b"21,", 1))
    code, out, err = typed("verify", "run")
    assert code == 2
    assert "FAIL lines      Line 4 of run/ledger.jsonl does not follow the one before" in out
    assert err == (
        "fedtopics: What is in run is not what was written there; see the lines above.\n"
    )
    code, out, _ = typed("verify", "run", "--json", "--head", "5ha")
    assert code == 2
    assert [row["what"] for row in json.loads(out) if row["holds"] is False] == ["lines", "kept"]


def test_dpia(typed: Typed) -> None:
    code, out, _ = typed("dpia", "run", "-o", "papers/dpia.html")
    assert code == 0
    assert out.startswith("The form is papers/dpia.html; ")
    code, _, err = typed("dpia", "run", "-o", "dpia.docx")
    assert code == 2
    assert err == "fedtopics: dpia.docx ends in neither .md nor .html; name a file that does.\n"
