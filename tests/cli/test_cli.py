"""What a user types, right and wrong: one sentence and the documented exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

from fedtopics import cli
from fedtopics.cli.display import program_name
from fedtopics.extras import VERSION
from fedtopics.federation.study import Study, example_study
from fedtopics.methods.registry import METHODS
from tests.helpers.command_line import CANARY, STUDY, fedtopics, one_line, refused


def test_from_study_to_theta(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out") == 0
    printed = capsys.readouterr()
    assert "agreed on 52 words; 100 documents" in printed.out
    assert printed.err == ""
    assert (folder / "out/report.html").exists()
    assert (folder / "out/report.md").exists()

    assert fedtopics(monkeypatch, "topics", "out/model", "--json", "--words", 4) == 0
    topics = json.loads(capsys.readouterr().out)
    assert [len(row["words"]) for row in topics] == [4, 4, 4]
    assert sum(row["share"] for row in topics) == pytest.approx(1)
    assert {name for row in topics for name in row["clients"]} == {"north", "south"}

    (folder / "new.csv").write_text("id,text\na,northa northb\nb,\nc,unheard of\n")
    assert fedtopics(monkeypatch, "transform", "out/model", "new.csv", "-o", "theta.parquet") == 0
    assert "3 documents to theta.parquet; 2 have nothing that the model" in capsys.readouterr().out
    table = pq.read_table("theta.parquet").to_pydict()
    assert table["id"] == ["a", "b", "c"]
    assert table["known_words"] == [2, 0, 0]
    assert table["topic"][1:] == [None, None]
    assert [table[f"theta_{k}"][1] for k in range(3)] == pytest.approx([1 / 3] * 3)

    (folder / "own.toml").write_text('own_stop_words = ["northa"]\n')
    own = ["new.csv", "-o", "theta.parquet", "--rules", "own.toml"]
    assert fedtopics(monkeypatch, "transform", "out/model", *own) == 0
    assert pq.read_table("theta.parquet")["known_words"].to_pylist() == [1, 0, 0]
    capsys.readouterr()

    assert fedtopics(monkeypatch, "audit", "log", "out", "--json") == 0
    ledger = json.loads(capsys.readouterr().out)
    assert set(ledger) == {"north", "south"}
    replies = {row["function"]: row["replies"] for row in ledger["north"]}
    assert replies == {
        "vocabulary": 1, "counted": 1, "forward": 24, "loss": 12, "backward": 24, "shares": 1,
        "word_sums": 1, "pairs": 2,
    }  # fmt: skip
    assert min(row["documents"] for row in ledger["north"]) >= 10


def test_a_rare_word_is_found_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fedtopics(monkeypatch, "train", "study.toml", "--out", "out")
    fedtopics(monkeypatch, "audit", "log", "out")
    fedtopics(monkeypatch, "topics", "out/model", "--words", 52)
    printed = capsys.readouterr()
    files = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert len(files) > 8
    everything = b"".join(path.read_bytes() for path in files)
    assert b"northa" in everything
    assert CANARY.encode() not in everything
    assert CANARY not in printed.out + printed.err


WRONG = {
    "missing file": ('data = "north.csv"', 'data = "nowhere.csv"', "There is no file or folder"),
    "missing column": (
        'data = "north.csv"', 'data = "north.csv"\ntext = "abstract"', "no column 'abstract'"
    ),
    "empty corpus": ('data = "north.csv"', 'data = "empty.csv"', "is empty"),
    "rare words": (
        "[clients.north]",
        "[vocabulary]\nmin_document_frequency = 50\n[clients.north]",
        "No word occurs in 50 or more of the 50 documents",
    ),
    "one topic": ("n_components = 3", "n_components = 1", "greater than or equal to 2"),
    "few words": ("n_components = 3", "n_components = 53", "fewer than n_components = 53"),
    "unknown key": ("max_rounds = 12", "rounds = 12", "there is no key 'method.rounds'"),
    "no TOML": ("[method]", "[method", "cannot be used"),
    "unknown method": ("n_components = 3", 'norm = "batch"', "'sync', 'server' or 'local'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_studies(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.csv").write_text("id,text\n")
    old, new, message = WRONG[case]
    assert old in STUDY
    (folder / "study.toml").write_text(STUDY.replace(old, new))
    assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out") == 2
    said = one_line(capsys.readouterr().err)
    assert message in said
    assert said.count("\n") == 1
    assert "Traceback" not in said

    if case == "rare words":
        (folder / "study.toml").write_text(STUDY)
        assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out") == 0, "the retry works"


def test_damaged_models_and_checkpoints(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "study.toml").write_text("checkpoint_every = 5\n" + STUDY)
    assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out") == 0
    capsys.readouterr()

    config = folder / "out/model/config.json"
    config.write_text(config.read_text().replace('"format": 3', '"format": 99'))
    assert fedtopics(monkeypatch, "topics", "out/model") == 2
    assert "has format 99" in capsys.readouterr().err

    newest = sorted((folder / "out/checkpoints").glob("*.safetensors"))[-1]
    assert newest.name == "00000010.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out", "--resume") == 2
    said = capsys.readouterr().err
    assert "00000010.safetensors is damaged" in said
    newest.unlink()
    newest.with_suffix(".sha256").unlink()
    assert fedtopics(monkeypatch, "train", "study.toml", "--out", "out", "--resume") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "There is no command 'nope'; choose from: demo, init, "),
        (["train"], "Missing argument 'STUDY'."),
        (["train", "nowhere.toml"], "No such file or directory."),
        (["train", "study.toml", "--resume"], "no run in runs/study to resume"),
        (["demo", "--clients", "1"], "Invalid value for '--clients'"),
        (["topics", "nowhere"], "There is no model in nowhere"),
        (["audit", "log", "nowhere"], "There is no ledger in nowhere"),
        (
            ["transform", "nowhere", "north.csv"],
            "Name what to write with --out, or what to show with --by.",
        ),
    ],
)
def test_wrong_arguments(
    arguments: list[str], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert message in refused(monkeypatch, capsys, *arguments)


def test_every_method_has_an_example() -> None:
    for method in METHODS.names:
        lines = example_study(method).splitlines()
        assert f'name = "{method}"  # the method' in lines
        assert not any(line.endswith("# None") for line in lines)


def test_the_example_is_a_study(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedtopics(monkeypatch, "init", "study", "-", "--all") == 0
    example = capsys.readouterr().out
    Study.make(**tomllib.loads(example))
    short, changed = re.subn(r"^# max_rounds = \d+", "max_rounds = 3", example, flags=re.MULTILINE)
    assert changed == 1
    (folder / "study.toml").write_text(short)
    assert fedtopics(monkeypatch, "train", "study.toml") == 0


def test_every_command_and_option_has_help() -> None:
    def check(name: str, command: click.Command) -> None:
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"
        for inner, of_group in getattr(command, "commands", {}).items():
            check(f"{name} {inner}", of_group)

    check("fedtopics", cli.app)


STARTS_AT_ONCE = """
import sys
from fedtopics.cli import main

try:
    main()
except SystemExit as ended:
    print(ended.code, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["audit", "log", "out", "--json"], 0),
        (["train", "nowhere.toml"], 2),
        (["serve", "network.toml", "--key", "nowhere"], 2),
        (["join", "network.toml", "--key", "nowhere", "--data", "network.toml"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_answers_at_once(arguments: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/ledger.jsonl").touch()
    (tmp_path / "network.toml").write_text('[method]\nname = "gfedntm"\n')
    done = subprocess.run(
        [sys.executable, "-c", STARTS_AT_ONCE, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{code} False", "torch takes seconds to load"


def test_a_defect_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError(CANARY)

    monkeypatch.setattr("fedtopics.federation.simulation.train", broken)
    assert fedtopics(monkeypatch, "train", "study.toml") == 70
    said = capsys.readouterr().err
    assert said.startswith("error: A defect of fedtopics: KeyError.")
    assert CANARY not in said


@pytest.mark.parametrize(
    ("typed", "found", "name"),
    [
        ("bin/fedtopics", None, "bin/fedtopics"),
        ("bin/fedtopics", "other/fedtopics", "bin/fedtopics"),
        ("bin/fedtopics", "bin/fedtopics", "fedtopics"),
        ("bin/pytest", None, "fedtopics"),
    ],
)
def test_commands_are_shown_as_they_can_be_typed(
    typed: str, found: str | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("bin", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "fedtopics").touch()
    monkeypatch.setattr("sys.argv", [typed])
    monkeypatch.setattr("shutil.which", lambda _: found)
    assert program_name() == name


def test_python_runs_the_package() -> None:
    command = [sys.executable, "-m", "fedtopics", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"fedtopics, version {VERSION}\n"
