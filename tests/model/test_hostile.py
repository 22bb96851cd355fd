"""Models whose words, names and labels others wrote to do harm: what is read, and what is shown."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import ModelError
from fedtopics.harmless import for_csv, visible
from fedtopics.model.card import card
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.model.topic_model import TopicModel
from tests.helpers.hostile import HOSTILE_LABEL, HOSTILE_WORDS, NO_WORDS, hostile, unchecked
from tests.helpers.models import made


def write(folder: Path, file: str, **changes: Any) -> Path:
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(content | changes))
    return folder


def refused(folder: Path) -> str:
    """What is said of a folder that cannot be used: a sentence that prints."""
    with pytest.raises(ModelError) as error:
        TopicModel.from_pretrained(folder)
    said = str(error.value)
    assert visible(said) == said
    assert len(said) < 600
    return said


# What is read


def test_words_that_only_look_wicked_are_read_as_they_were_written(tmp_path: Path) -> None:
    model = hostile(coherence={})
    back = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    assert back.vocabulary.words == HOSTILE_WORDS
    assert back.labels == {1: HOSTILE_LABEL}


@pytest.mark.parametrize("word", [*NO_WORDS, 7, None, ["oak"]], ids=repr)
def test_words_of_a_file_that_are_none(word: Any, tmp_path: Path) -> None:
    model = made()
    folder = model.save_pretrained(tmp_path)
    words = [*model.vocabulary.words[:-1], word]
    assert str(folder) in refused(write(folder, "vocabulary.json", words=words))


PAST: dict[str, Any] = {"round": 1, "documents": 3, "topics": [], "new": [], "vanished": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"shares": {"no\x1b[2Jrth": [0.5, 0.25, 0.25]}},
        {"documents": {"<b>north": 3}},
        {"documents": {"x" * 65: 3}},
        {"coherence": {"np\x9bmi": [0.5, 0.25, 0.25]}},
        {"info": {"method": "lda\x1b]0;title\x07"}},
        {"info": {"method": "x" * 10**6}},
        {"info": {"history": [PAST | {"new_ones": ["oak", "\u202eelm"]}]}},
        {"info": {"a": {"b\nc": 1}}},
        {"info": {"method": "e" + 50 * "\u0301"}},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_names_of_a_file_that_are_none(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = made().save_pretrained(tmp_path)
    assert re.search(
        "cannot be used: (its config.json says|.* cannot name a client)",
        refused(write(folder, "config.json", **changes)),
    )


@pytest.mark.parametrize(
    "label", ["\ufffe", "zero\u200bwidth", "\u061c", "e" + 7 * "\u0301", "\u0301"], ids=ascii
)
def test_labels_that_turn_hide_or_are_piled_up(label: str, tmp_path: Path) -> None:
    folder = made().save_pretrained(tmp_path)
    (folder / "topics.json").write_text(json.dumps([{"topic": 1, "label": label}]))
    assert "label of topic 1" in refused(folder)


def test_labels_of_all_scripts_and_written_in_one_way() -> None:
    labels = {0: "\u0645\u06cc\u200c\u062e", 1: "👩\u200d🔬 cafe\u0301", 2: "R&D\u00a01"}
    assert made().with_labels(labels).labels == labels | {1: "👩\u200d🔬 caf\u00e9"}


# What is shown, whatever was read


def outputs(model: TopicModel) -> dict[str, str]:
    rows = model.get_topic_info()
    return {
        "card": card(model),
        "markdown": as_markdown(rows),
        "csv": as_csv(rows),
        "notebook": model._repr_html_(),
        "repr": repr(model),
    }


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_lines_and_characters(model: TopicModel) -> None:
    for name, text in outputs(model).items():
        for line in text.split("\n"):
            assert visible(line) == line, name
    assert "\n" not in repr(model)


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_tables_have_their_cells(model: TopicModel) -> None:
    shown, rows = outputs(model), model.get_topic_info()
    columns = 5 + len(model.coherence) + len(model.shares)
    for line in shown["markdown"].splitlines():
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == columns + 1
    tables = [line for line in shown["card"].splitlines() if line.startswith("|")]
    assert len(tables) == 2 + len(model.documents) + 2 + model.n_topics
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`$]", shown["card"] + shown["markdown"])
    table = list(csv.reader(io.StringIO(shown["csv"])))
    assert {len(line) for line in table} == {columns}
    assert [line[1] for line in table[1:]] == [for_csv(row["label"]) for row in rows]
    assert not [cell for line in table for cell in line if re.match(r"\s*[=+@]|-[^\d]", cell)]


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_notebooks_have_a_table_and_no_other_tag(model: TopicModel) -> None:
    tags = {*re.findall(r"<([^>\s]*)", model._repr_html_())}
    assert {tag.strip("/") for tag in tags} == {
        "table", "caption", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip


def test_pyldavis_gets_words_that_do_not_end_its_script() -> None:
    given = unchecked().to_pyldavis()
    assert "<" not in json.dumps(given["vocab"])
    assert made().to_pyldavis()["vocab"] == [*made().vocabulary.words]
