"""Commands that read the records of a run, whoever wrote them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.helpers.command_line import Done, Typed
from tests.helpers.records import written


@pytest.fixture
def recorded(folder: Path) -> None:
    written(folder / "run")


def test_an_ended_run(trained: Path, done: Done) -> None:
    out = done("status", trained)
    first, second, *_ = out.splitlines()
    assert first == "study: finished: the model is there"
    assert second.startswith("round 12 of 12, ")
    assert "left" not in second
    assert "Topics\n    0  " in out
    status = json.loads(done("status", trained, "--json"))
    assert (status["state"], status["running"], status["round"]) == ("finished", False, 12)
    assert {name: c["rounds"] for name, c in status["clients"].items()} == {
        "north": 12,
        "south": 12,
    }
    assert len(status["topics"]) == 3


def test_the_status_of_no_run_and_of_half_of_one(trained: Path, typed: Typed) -> None:
    assert "There is no run in nowhere; name the folder of a" in typed("status", "nowhere")[2]
    shutil.rmtree(trained / "model")
    assert typed("status", trained)[0] == 0


@pytest.mark.usefixtures("recorded")
def test_verify(typed: Typed, done: Done) -> None:
    assert [line.split()[:2] for line in done("audit", "verify", "run").splitlines()] == [
        ["ok", "lines"],
        ["ok", "end"],
        ["--", "signature"],
        ["ok", "study"],
        ["ok", "file"],
        ["ok", "file"],
        ["ok", "data"],
        ["--", "privacy"],
    ]
    ledger = Path("run/ledger.jsonl")
    ledger.write_bytes(ledger.read_bytes().replace(b'"turn"', b'"turm"').replace(b"20,", b"21,", 1))
    code, out, err = typed("audit", "verify", "run")
    assert code == 2
    assert "FAIL lines      Line 4 of run/ledger.jsonl does not follow the one before" in out
    assert err == "error: A check of the files in run failed; see the lines above.\n"
    code, out, _ = typed("audit", "verify", "run", "--json", "--head", "5ha")
    assert code == 2
    assert [row["what"] for row in json.loads(out) if row["holds"] is False] == ["lines", "head"]


@pytest.mark.usefixtures("recorded")
def test_dpia(done: Done) -> None:
    assert done("audit", "dpia", "run", "-o", "papers/dpia.html").startswith(
        "The draft is in papers/dpia.html; "
    )
