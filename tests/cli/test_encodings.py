"""Commands on terminals, and in pipes, that are not UTF-8: nothing fails, and JSON stays exact."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedtopics.text.vocabulary import Vocabulary
from tests.helpers.command_line import fedtopics
from tests.helpers.models import made

WORDS = ("größe", "elm", "naïve", "日本", "😀")
LABEL = "Größe, 日本 😀"
STUDY = """
name = "größe"
[method]
name = "nmf"
n_components = 2
max_rounds = 3
[clients.north]
name = "Köln Süd"
data = "größe.csv"
[clients.south]
data = "größe.csv"
"""
ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "posix": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("encodings")
    made(
        vocabulary=Vocabulary(WORDS, np.full(5, 9), np.array([30, 25, 20, 15, 10])),
        labels={0: LABEL},
    ).save_pretrained(place / "model")
    (place / "größe.csv").write_text("text\n" + "größe naïve\nölig süß grün\n" * 20, "utf-8")
    (place / "study.toml").write_text(STUDY, "utf-8")
    return place


Done = subprocess.CompletedProcess[bytes]


def typed_in(folder: Path, encoding: str, *arguments: str, code: int = 0) -> Done:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUTF8"}
    command = [sys.executable, "-m", "fedtopics", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment | ENCODINGS[encoding], capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_topics(folder: Path, encoding: str) -> None:
    coding = "cp1252" if encoding == "cp1252" else "ascii"
    shown = typed_in(folder, encoding, "topics", "model").stdout.decode(coding)
    assert "elm" in shown
    assert ("größe" in shown) == (coding == "cp1252")
    assert r"\u65e5\u672c" in shown
    rows = json.loads(typed_in(folder, encoding, "topics", "model", "--json").stdout.decode(coding))
    assert rows[1]["label"] == LABEL
    assert set(WORDS) == {word for row in rows for word in row["words"]}


def test_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, names and paths, in all that a run and its folder show."""
    monkeypatch.chdir(folder)
    for arguments in (
        ("train", "study.toml", "--out", "run-ü"),
        ("status", "run-ü", "--json"),
        ("audit", "log", "run-ü"),
        ("report", "run-ü"),
        ("models", "compare", "model", "run-ü/model"),
        ("transform", "model", "größe.csv", "--by", "text", "--min-documents", "1"),
        ("evaluate", "model", "--data", "größe.csv"),
        ("sweep", "study.toml", "--topics", "2", "--seeds", "1", "--json"),
        ("audit", "dpia", "run-ü", "-o", "ü.md"),
        ("topics", "model", "--format", "csv"),
        ("--help",),
    ):
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BytesIO(), "ascii"))
        assert fedtopics(monkeypatch, *arguments) == 0, arguments
    assert "größe" in (folder / "run-ü" / "report.md").read_text("utf-8")


def test_an_error(folder: Path) -> None:
    said = typed_in(folder, "ascii", "topics", "größe", code=2).stderr.decode("ascii")
    assert r"There is no model in gr\u00f6" in said.replace(r"\xf6", r"\u00f6")
