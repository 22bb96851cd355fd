"""Models whose words, names and labels others wrote to do harm: what is read, and what is shown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fedtopics.model.topic_model import TopicModel
from tests.helpers.hostile import NO_WORDS, hostile, unchecked
from tests.helpers.models import made, refused


def write(folder: Path, file: str, **changes: Any) -> Path:
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | changes))
    return folder


@pytest.mark.parametrize("word", [*NO_WORDS, 7, None, ["oak"]], ids=repr)
def test_words_of_a_file_that_are_none(word: Any, tmp_path: Path) -> None:
    model = made()
    folder = model.save_pretrained(tmp_path)
    said = refused(write(folder, "vocabulary.json", words=[*model.vocabulary.words[:-1], word]))
    assert str(folder) in said
    if isinstance(word, str):
        assert "1 of 5 words are invalid: words have at most 100 char" in said
        assert len(word) < 3 or word not in said


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
    said = refused(write(made().save_pretrained(tmp_path), "config.json", **changes))
    assert re.search("cannot be used: (its config.json contains|.* cannot name a client)", said)


def test_labels_of_all_scripts_and_written_in_one_way() -> None:
    labels = {0: "\u0645\u06cc\u200c\u062e", 1: "👩\u200d🔬 cafe\u0301", 2: "R&D\u00a01"}
    assert made().with_labels(labels).labels == labels | {1: "👩\u200d🔬 caf\u00e9"}


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_notebooks_have_a_table_and_no_other_tag(model: TopicModel) -> None:
    assert {tag.strip("/") for tag in re.findall(r"<([^>\s]*)", model._repr_html_())} == {
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }


def test_a_notebook_shows_words_and_labels_as_they_are() -> None:
    model = hostile(("<img src=x onerror=alert(1)>", "&amp;", "oak"), labels={1: "<b>ships</b>"})
    html = model._repr_html_()
    assert html.count("<tr>") == 1 + 3
    for part in (
        "&lt;img src=x onerror=alert(1)&gt;",
        "&amp;amp;",  # a word that is an entity is shown as it is
        ">&lt;b&gt;ships&lt;/b&gt;</td>",
        f"<td>{model.share[0]:.1%}</td>",
        "topics: 3, words: 3, clients: 2)</caption>",
    ):
        assert part in html


def test_pyldavis_gets_words_that_do_not_end_its_script() -> None:
    assert "<" not in json.dumps(unchecked().to_pyldavis()["vocab"])
    assert made().to_pyldavis()["vocab"] == [*made().vocabulary.words]
