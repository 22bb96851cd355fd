"""What people call topics, in a file beside the model."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics import LDA, Corpus, TopicModel
from fedtopics.errors import StudyError
from fedtopics.model.card import card
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.model.labels import _segments
from fedtopics.model.shown_words import WordRanking
from fedtopics.text.rules import TextRules
from tests.helpers.clients import ALL
from tests.helpers.models import made, model_of, refused


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return made(labels={}, coherence={}).save_pretrained(tmp_path / "model")


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "topics.json").read_text()))


def write(folder: Path, content: Any) -> None:
    (folder / "topics.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def test_labels_that_people_wrote_are_kept(saved: Path, tmp_path: Path) -> None:
    rows = rows_of(saved)
    assert [(row["topic"], row["label"]) for row in rows] == [(1, ""), (0, ""), (2, "")]
    rows[0]["label"] = "  Häfen | ⚓ "
    # Persian, with a joiner, which is no control.
    rows[2]["label"] = "\u067e\u0631\u0646\u062f\u0647\u200c\u0647\u0627"
    write(saved, rows)
    model = TopicModel.from_pretrained(saved)
    assert model.labels == {1: "Häfen | ⚓", 2: rows[2]["label"]}
    assert [row["label"] for row in model.get_topic_info()] == ["Häfen | ⚓", "", rows[2]["label"]]
    again = model.save_pretrained(tmp_path / "again")
    assert rows_of(again)[0]["label"] == "Häfen | ⚓"
    assert "| 1 | Häfen \\| ⚓ |" in (again / "README.md").read_text(encoding="utf-8")
    back = TopicModel.from_pretrained(again)
    assert back.labels == model.labels
    assert back.get_topic_info() == model.get_topic_info()


SECRET = "quetzalcoatl"  # noqa: S105  what a message must not quote


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"topic": 0}, "is not a list of topics; correct it, or delete it"),
        ([SECRET], "is not a list of topics; correct it, or delete it"),
        ([{"label": SECRET}], "Row 1 of .* names no topic of the model; set its topic to a number"),
        ([{"topic": 1}, {"topic": 3}], "Row 2 of .* a number from 0 to 2, or delete the row"),
        *(([{"topic": odd}], "Row 1 of") for odd in (-1, True, 1.0, "1")),
        ([{"topic": 1}, {"topic": 1}], "has two rows for topic 1; delete one of them"),
        ([{"topic": 1, "label": None}], "label of topic 1 is not a text; put it in quotes"),
        ([{"topic": 1, "label": [SECRET]}], "label of topic 1 is not a text; put it in quotes"),
        ([{"topic": 1, "label": 101 * "x"}], "topic 1 has 101 characters; shorten it to at most"),
        (
            [{"topic": 1, "label": f"a\n{SECRET}"}],
            r"contains a control character \(U\+000A\); write",
        ),
        *(
            ([{"topic": 1, "label": f"a{odd}{SECRET}"}], rf"character \(U\+{ord(odd):04X}\)")
            for odd in "\x1b\u202e\u2028"
        ),
        *(
            ([{"topic": 1, "label": odd}], "label of topic 1")  # turns, hides, or is piled up
            for odd in ("\ufffe", "zero\u200bwidth", "\u061c", "e" + 7 * "\u0301", "\u0301")
        ),
        (
            b'[\n{"topic": 0,\n "label": "quetzalcoatl}\n]',
            "not valid JSON at line 3; correct it, or",
        ),
        (b"", "is not valid JSON at line 1"),
        ("[]".encode("utf-16"), "is not a list of topics"),
        (b"[" * 100_000, "is not a list of topics"),
        (b'[{"topic": 0, "label": "\\ud800"}]', r"control character \(U\+D800\)"),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_what_is_no_list_of_labelled_topics(saved: Path, content: Any, message: str) -> None:
    if isinstance(content, bytes):
        (saved / "topics.json").write_bytes(content)
    else:
        write(saved, content)
    said = refused(saved)
    assert re.search(message, said)
    assert "topics.json" in said and SECRET not in said
    (saved / "topics.json").unlink()  # as the messages say
    assert TopicModel.from_pretrained(saved).n_topics == 3


def test_with_labels() -> None:
    model = made(labels={})
    one = model.with_labels({np.int64(2): " Harbours "})
    assert model.labels == {}
    assert one.labels == {2: "Harbours"}
    assert [type(topic) for topic in one.labels] == [int]
    two = one.with_labels({0: "Trees"})
    assert list(two.labels.items()) == [(0, "Trees"), (2, "Harbours")]
    assert two.with_labels({2: "", 1: "Boats"}).labels == {0: "Trees", 1: "Boats"}
    np.testing.assert_array_equal(two.beta, model.beta)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({3: "x"}, "There is no topic 3 to label; the model has topics 0 to 2"),
        ({"1": "x"}, "There is no topic '1' to label"),
        ({True: "x"}, "There is no topic True to label"),
        ({1: None}, "The label of topic 1 is not a text"),
        ({1: 101 * "x"}, "The label of topic 1 has 101 characters"),
        ({1: "a\tb"}, "The label of topic 1 contains a control character"),
    ],
)
def test_labels_that_cannot_be(labels: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        made().with_labels(labels)
    assert made().with_labels({1: 100 * "x"}).labels[1] == 100 * "x"


def test_labels_are_first_words_that_are_no_forms_of_each_other() -> None:
    words = ("forest", "forests", "oak", "elm", "oak tree", "fir")
    beta = np.array([[6, 5, 4, 3, 2, 1], [1, 1, 1, 2, 3, 9]]) / np.array([[21], [17]])
    topics = [dict(zip(words, row, strict=True)) for row in beta]
    model = replace(model_of(topics, [0.5, 0.5]), word_ranking=WordRanking(1.0))
    assert model.suggest_labels() == {0: "Oak tree, forest, elm", 1: "Oak tree, fir, elm"}


def test_suggestions_are_marked_until_somebody_confirms_them(saved: Path, tmp_path: Path) -> None:
    model = made(labels={0: "Trees"}, coherence={}).with_suggested_labels()
    assert model.labels == {0: "Trees", 1: "__init__, flu, tea", 2: "Oak, elm, flu"}
    assert model.unconfirmed == {1, 2}
    rows = {row["topic"]: row for row in model.get_topic_info()}
    assert [rows[k]["suggested"] for k in range(3)] == ["", "__init__, flu, tea", "Oak, elm, flu"]
    assert [*model.to_pandas()["CustomName"]] == [
        "__init__, flu, tea (suggested)",
        "Trees",
        "Oak, elm, flu (suggested)",
    ]
    for text in (card(model), as_markdown(model.get_topic_info()), as_csv([*rows.values()])):
        assert text.count("(suggested)") == 2
        assert "Oak, elm, flu (suggested)" in text
    assert "Trees (suggested)" not in model._repr_html_()

    folder = model.save_pretrained(tmp_path / "marked")
    back = TopicModel.from_pretrained(folder)
    assert (back.labels, back.unconfirmed) == (model.labels, {1, 2})
    changed = rows_of(folder)
    changed[0]["label"] = "Python"  # somebody has edited this one,
    del changed[2]["suggested"]  # and confirmed that one
    write(folder, changed)
    back = TopicModel.from_pretrained(folder)
    assert back.labels == {0: "Trees", 1: "Python", 2: "Oak, elm, flu"}
    assert back.unconfirmed == frozenset()
    assert back.suggest_labels() == {}
    assert model.with_labels({2: "Shrubs"}).unconfirmed == {1}
    both = {1: "__init__, flu, tea", 2: "Oak, elm, flu"}
    assert model.with_labels({2: ""}).suggest_labels() == both


# Of the boats', twelve have one phrase and four another; all have their words near each other.
PHRASED = [
    *(f"{text}! The port authority. Port, harbour" for text in ALL[:12]),
    *(f"{text}: harbour; master mason" for text in ALL[12:16]),
    *ALL[16:],
]


@pytest.fixture(scope="module")
def estimator() -> LDA:
    return LDA(2, max_rounds=20, min_persons_per_word=4).fit(PHRASED)


def test_labels_have_phrases_of_ones_own_documents(estimator: LDA) -> None:
    """Such as enough documents have, and mostly those that have their words."""
    model = estimator.model_
    boats = int(model.main_topics(PHRASED)[0])
    first = model.topics(8)[boats]
    model = replace(model, word_ranking=replace(model.word_ranking, first=()))
    words = model.suggest_labels()
    assert words[boats] == ", ".join(first[:3]).capitalize()
    labels = model.suggest_labels(PHRASED)
    assert labels[boats] == f"Port authority, {first[0]}, {first[1]}"
    assert labels[1 - boats] == words[1 - boats]
    assert model.suggest_labels(PHRASED, min_documents=13) == words
    assert "master mason" not in model.suggest_labels(PHRASED, min_documents=1)[boats]  # not first


def test_phrases_are_of_whole_words_in_the_texts_form() -> None:
    texts = Corpus.of(["हिन्दी में, l\u2019arbre est vert. Bee\u00adch don\u2019t"])
    segments = [*_segments(texts, TextRules(stop_words="fr"))]
    assert segments == [[["हिन्दी", "में"], ["arbre", "est", "vert"], ["beech", "don't"]]]


def test_phrases_are_not_of_addresses_or_marks() -> None:
    texts = Corpus.of(["see www.old-oaks.org/tall-trees now, <b>tall oak</b> &amp; elm at sea"])
    [segments] = _segments(texts, TextRules(html=True, addresses="drop"))
    assert segments == [["see", "now"], ["tall", "oak"], ["elm", "at", "sea"]]
