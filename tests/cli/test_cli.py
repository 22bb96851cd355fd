"""What a user types, right and wrong: one sentence and the documented exit code."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest

from fedtopics import Study
from fedtopics.federation.study import example_study
from fedtopics.methods.registry import METHODS
from fedtopics.terminal.display import program_name
from fedtopics.versions import VERSION
from tests.helpers.command_line import CANARY, STUDY, Done, Refused, Typed, commands


def test_from_study_to_theta_and_a_rare_word_is_nowhere(
    folder: Path, typed: Typed, done: Done
) -> None:
    out = done("train", "study.toml", "--out", "out")
    assert "agreed on 52 words; 100 documents" in out
    assert (folder / "out/report.html").exists()
    assert (folder / "out/report.md").exists()

    topics = json.loads(typed("topics", "out/model", "--json", "--words", 4)[1])
    assert [len(row["words"]) for row in topics] == [4, 4, 4]
    assert sum(row["share"] for row in topics) == pytest.approx(1)
    assert {name for row in topics for name in row["clients"]} == {"north", "south"}

    (folder / "new.csv").write_text("id,text\na,northa northb\nb,\nc,unheard of\n")
    transform = ["transform", "out/model", "new.csv", "-o", "theta.parquet"]
    assert (
        "3 documents are in theta.parquet. In 2 of them the model knows no" in typed(*transform)[1]
    )
    table = pq.read_table("theta.parquet").to_pydict()
    assert table["id"] == ["a", "b", "c"]
    assert table["known_words"] == [2, 0, 0]
    assert table["topic"][1:] == [None, None]
    assert [table[f"theta_{k}"][1] for k in range(3)] == pytest.approx([1 / 3] * 3)

    (folder / "own.toml").write_text('own_stop_words = ["northa"]\n')
    assert typed(*transform, "--text-rules", "own.toml")[0] == 0
    assert pq.read_table("theta.parquet")["known_words"].to_pylist() == [1, 0, 0]

    ledger = json.loads(typed("audit", "log", "out", "--json")[1])
    assert set(ledger) == {"north", "south"}
    assert {row["function"]: row["replies"] for row in ledger["north"]} == {
        "vocabulary": 1,
        "document_counts": 1,
        "batch_sums": 24,
        "topic_gradients": 12,
        "weight_gradients": 24,
        "topic_shares": 1,
        "word_sums": 1,
        "word_pairs": 1,
    }
    assert min(row["documents"] for row in ledger["north"]) >= 10

    said = (
        out + str(typed("audit", "log", "out")) + str(typed("topics", "out/model", "--words", 52))
    )
    files = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert len(files) > 8
    everything = b"".join(path.read_bytes() for path in files)
    assert b"northa" in everything
    assert CANARY.encode() not in everything
    assert CANARY not in said


WRONG = {
    "missing file": ('data = "north.csv"', 'data = "nowhere.csv"', "There is no file or folder"),
    "missing column": (
        'data = "north.csv"',
        'data = "north.csv"\ntext = "abstract"',
        "no column 'abstract'",
    ),
    "empty corpus": ('data = "north.csv"', 'data = "empty.csv"', "and no rows"),
    "rare words": (
        "[vocabulary]",
        "[vocabulary]\nmin_persons_per_word = 50",
        "No word is in the documents of 50 or more persons",
    ),
    "few words": ("n_components = 3", "n_components = 53", "fewer than n_components = 53"),
    "no TOML": ("[method]", "[method", "cannot be used"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_studies(case: str, folder: Path, typed: Typed, refused: Refused) -> None:
    (folder / "empty.csv").write_text("id,text\n")
    old, new, message = WRONG[case]
    assert old in STUDY
    (folder / "study.toml").write_text(STUDY.replace(old, new))
    assert message in refused("train", "study.toml", "--out", "out")
    if case == "rare words":
        (folder / "study.toml").write_text(STUDY)
        assert typed("train", "study.toml", "--out", "out")[0] == 0, "the retry works"


def test_damaged_checkpoints(folder: Path, typed: Typed, refused: Refused) -> None:
    (folder / "study.toml").write_text("checkpoint_every = 5\n" + STUDY)
    assert typed("train", "study.toml", "--out", "out")[0] == 0
    newest = sorted((folder / "out/checkpoints").glob("*.safetensors"))[-1]
    assert newest.name == "00000010.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    resume = ["train", "study.toml", "--out", "out", "--resume"]
    assert "00000010.safetensors is damaged" in refused(*resume)
    newest.unlink()
    newest.with_suffix(".sha256").unlink()
    assert typed(*resume)[0] == 0


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "There is no command 'nope'; choose from: demo, init, "),
        (["trnasform"], "There is no command 'trnasform'; did you mean 'transform'?"),
        (["train"], "Missing argument 'STUDY'."),
        (["train", "nowhere.toml"], "there is no such file."),
        (["train", "study.toml", "--resume"], "no run in runs/study to resume"),
        (["demo", "--clients", "1"], "Invalid value for '--clients'"),
        (["topics", "nowhere"], "There is no model in nowhere"),
        (["audit", "log", "nowhere"], "There is no ledger in nowhere"),
        (["audit", "verify", "nowhere"], "There is no ledger in nowhere"),
        (["transform", "nowhere", "north.csv"], "There is nothing to do; add --out, --by or"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, refused: Refused) -> None:
    assert message in refused(*arguments)


def test_every_method_has_an_example() -> None:
    for method in METHODS.names:
        lines = example_study(method).splitlines()
        assert f'name = "{method}"  # the method' in lines
        assert not any(line.endswith("# None") for line in lines)


def test_the_example_is_a_study(folder: Path, typed: Typed) -> None:
    example = typed("init", "study", "-", "--all")[1]
    Study.make(**tomllib.loads(example))
    for name, value in (("max_rounds", 3), ("min_clients_per_word", 1)):
        pattern = re.compile(rf"^# {name} = \d+", re.MULTILINE)
        example, changed = pattern.subn(f"{name} = {value}", example)
        assert changed == 1
    (folder / "study.toml").write_text(example)
    assert typed("train", "study.toml")[0] == 0


def test_every_command_and_option_has_help() -> None:
    for name, command in commands():
        assert command.help, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts}"


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
        (["serve", "study.toml", "--key", "nowhere"], 2),
        (["join", "study.toml", "--key", "nowhere", "--data", "study.toml"], 2),
    ],
)
def test_what_answers_at_once(arguments: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/ledger.jsonl").touch()
    (tmp_path / "study.toml").write_text('[method]\nname = "gfedntm"\n')
    done = subprocess.run(
        [sys.executable, "-c", STARTS_AT_ONCE, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f"{code} False", "torch takes seconds to load"


@pytest.mark.usefixtures("folder")
def test_a_defect_is_one_line(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError(CANARY)

    monkeypatch.setattr("fedtopics.federation.simulation.train", broken)
    code, _, said = typed("train", "study.toml")
    assert code == 70
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
    done = subprocess.run(
        [sys.executable, "-m", "fedtopics", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"fedtopics, version {VERSION}\n"
