"""Files that a user names to be written: nothing is lost, and the format follows the suffix."""

import codecs
import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedtopics import NMF, Corpus, Study, TopicModel, train
from fedtopics.errors import InputError, ModelError, RunError
from fedtopics.files import write_output
from fedtopics.methods.flda.labelled_pairs import COLUMNS
from tests.helpers.command_line import STUDY, Done, Refused, Typed
from tests.helpers.models import made

MINE = "what nobody else has\n"
RUN = {"name": "nmf", "n_components": 2, "max_rounds": 2}
TEXTS = ["oak and beech and fir grow here", "a ketch and a sloop and a yawl sail"] * 10
OF_EAST: dict[str, Any] = {
    "documents": {"east": 40},
    "shares": {"east": np.array([0.5, 0.25, 0.25])},
}
PAIRS = "".join(f"oak,elm,0.{10 + i},{i // 10}\n" for i in range(20))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    train(Study(method=RUN), {"north": TEXTS, "south": TEXTS}, out=run)
    return run


@pytest.fixture
def folder(here: Path, trained: Path) -> Path:
    made().save_pretrained("model")
    Path("run").symlink_to(trained)
    Path("letters.csv").write_text("id,text\na,oak elm\n=1+1,flu tea\nc,\n")
    Path("pairs.csv").write_text(",".join(COLUMNS) + "\n" + PAIRS)
    Path("study.toml").write_text(STUDY)
    return here


WRITERS = [  # arguments, and suffixes
    (["transform", "model", "letters.csv", "-o"], [".parquet", ".csv", ".jsonl"]),
    (["topics", "model", "-o"], [".md", ".csv", ".json", ".txt"]),
    (["report", "run", "-o"], [".html"]),
    (["audit", "dpia", "run", "-o"], [".md", ".html"]),
    (["audit", "dossier", "run", "-o"], [".md", ".html"]),
]


@pytest.mark.parametrize(("arguments", "suffixes"), WRITERS, ids=lambda each: each[0])
@pytest.mark.usefixtures("folder")
def test_what_is_not_ours_stays(
    arguments: list[str], suffixes: list[str], typed: Typed, refused: Refused
) -> None:
    for suffix in suffixes:
        path = Path(f"mine{suffix}")
        path.write_text(MINE)
        assert f"{path} already exists, and fedtopics did not write it" in refused(*arguments, path)
        assert path.read_text() == MINE
        path.unlink()
        assert typed(*arguments, path)[0] == 0
        written = path.read_bytes()
        assert typed(*arguments, path)[0] == 0  # ours: it is written again
        assert len(path.read_bytes()) == len(written)
        if suffix in (".md", ".html"):  # people's changes are kept
            path.write_bytes(written.replace(b"fedtopics", b"fedtopicz", 1) + b"\n")
            assert typed(*arguments, path)[0] == 2
    err = refused(*arguments, "new.docx")
    assert not Path("new.docx").exists()
    assert f"new.docx has to end in {' or '.join(suffixes)}" in err or suffixes == [".csv"]


@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_an_input_stays(link: Callable[..., None] | None, folder: Path, typed: Typed) -> None:
    """Also under another name; and where it looks as what is written does."""
    table = Path("theta.csv")
    table.write_text('"id","known_words","topic","text"\na,1,0,oak\nb,1,0,elm\n')
    before = table.read_bytes()
    out = Path("other.csv")
    if link is None:
        out = table
    else:
        link(table, out)
    code, _, err = typed("transform", "model", table, "-o", out, "--columns", "text=text")
    assert (code, table.read_bytes()) == (2, before)
    assert f"{out} is an input of this command; name another file" in err


def test_other_inputs_stay(folder: Path, typed: Typed) -> None:
    """Of commands that do not write such tables, inputs are not ours anyway."""
    ours = ("model/config.json", "model/topics.json")
    for name in ("study.toml", "letters.csv", *ours, "pairs.csv"):
        before = Path(name).read_bytes()
        for arguments, _ in WRITERS:
            assert typed(*arguments, name)[0] == 2
        assert typed("topics", "model", "--format", "json", "-o", name)[0] == 2
        assert Path(name).read_bytes() == before


def test_beside_a_report_nothing_is_lost(folder: Path, typed: Typed) -> None:
    Path("notes.md").write_text(MINE)
    assert typed("report", "run", "-o", "notes.html")[0] == 2
    assert (Path("notes.md").read_text(), Path("notes.html").exists()) == (MINE, False)


def test_formats_of_theta(folder: Path, done: Done) -> None:
    for suffix in ("parquet", "csv", "jsonl"):
        assert done("transform", "model", "letters.csv", "-o", f"new/theta.{suffix}").startswith(
            "3 documents are in new/theta."
        )
    table = pq.read_table("new/theta.parquet").to_pylist()
    assert Path("new/theta.csv").read_bytes()[:3] == codecs.BOM_UTF8, "for Excel"
    rows = [*csv.DictReader(Path("new/theta.csv").read_text("utf-8-sig").splitlines())]
    assert [json.loads(line) for line in Path("new/theta.jsonl").read_text().splitlines()] == table
    assert [row["id"] for row in rows] == ["a", "'=1+1", "c"]  # which no spreadsheet computes
    assert [row["topic"] for row in rows] == ["0", "1", ""]
    for row, expected in zip(rows, table, strict=True):
        assert [float(row[f"theta_{k}"]) for k in range(3)] == pytest.approx(
            [expected[f"theta_{k}"] for k in range(3)], rel=1e-6
        )


def test_a_format_that_is_not_that_of_the_name(folder: Path, refused: Refused) -> None:
    assert "topics.md has to end in .csv; name another file" in refused(
        "topics", "model", "--format", "csv", "-o", "topics.md"
    )
    assert not Path("topics.md").exists()


def test_folders(folder: Path, refused: Refused) -> None:
    """A model or a run does not replace what has the name of one of its files."""
    Path("mine").mkdir()
    Path("mine/README.md").write_text(MINE)
    Path("mine/study.toml").write_text(MINE)
    made(**OF_EAST).save_pretrained("east")
    assert "The README.md in mine is not a model's; choose another folder." in refused(
        "models", "merge", "model", "east", "-o", "mine"
    )
    assert Path("mine/README.md").read_text() == MINE
    for name in ("north", "south"):
        Path(f"{name}.csv").write_text("text\n" + "oak elm\n" * 20)
    assert "a study.toml that no run wrote" in refused("train", "study.toml", "--out", ".")
    assert Path("study.toml").read_text() == STUDY


def test_in_python(folder: Path) -> None:
    model = TopicModel.from_pretrained("model")
    with pytest.raises(InputError, match=r"letters.csv is an input of this command|did not write"):
        model.write_theta("letters.csv", "letters.csv")
    for save in (model.plot_topics().save, model.document_map(Corpus.of(TEXTS)).save):
        with pytest.raises(InputError, match=r"mine.txt has to end in .html"):
            save("mine.txt")
        save("new.html")
        save("new.html")
        Path("new.html").write_text(MINE)
        with pytest.raises(InputError, match="fedtopics did not write it"):
            save("new.html")
        Path("new.html").unlink()
    with pytest.raises(ModelError, match=r"The README.md in .* is not a model's"):
        Path("README.md").write_text(MINE)
        NMF(2, max_rounds=2).fit(TEXTS).save(".")
    with pytest.raises(RunError, match="toml that no run wrote"):
        train(Study(method=RUN), {"north": TEXTS}, out=".")


@pytest.mark.parametrize(
    "name", ["config.json", "README.md", "topics.json", "vocabulary.json", "model.safetensors"]
)
def test_a_model_replaces_only_files_of_a_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(MINE)
    with pytest.raises(ModelError, match=f"The {name} in .* is not a model's; choose another"):
        made().save_pretrained(tmp_path)
    assert ([path.name for path in tmp_path.iterdir()], (tmp_path / name).read_text()) == (
        [name],
        MINE,
    )
    for _ in range(2):
        made().save_pretrained(tmp_path / "own")


def test_a_folder_or_a_pipe_is_no_file(folder: Path) -> None:
    how: dict[str, Any] = {"suffixes": [".csv"], "names": ["id"]}
    Path("folder.csv").mkdir()
    os.mkfifo("pipe.csv")
    for name in ("folder.csv", "pipe.csv"):
        with pytest.raises(InputError):
            write_output(name, b"id\n", **how)
    Path("empty.csv").write_bytes(b"")
    with pytest.raises(InputError, match="did not write it"):
        write_output("empty.csv", b"id\n", **how)


def test_lost_labels_are_said(folder: Path, done: Done) -> None:
    made(**OF_EAST).with_labels({0: "Wood"}).save_pretrained("east")
    out = done("models", "merge", "model", "east", "-o", "merged")
    assert "Merging drops these labels, because a topic has one: Trees | shrubs." in out
    assert "Wood: " in out
