"""The notebook of three languages: no stop word, tag or ending is among its words."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.notebooks import EXAMPLES, outputs, run_notebook

pytest.importorskip("icu4py")

THREE_LANGUAGES = EXAMPLES / "three_languages.ipynb"
CHECKED = """
import json

mains = {town: model.get_document_info(clients[town])["Topic"].tolist() for town in TOWNS}
names = {town: [int(id_.split(".")[0]) for id_ in clients[town].ids.to_pylist()] for town in TOWNS}
of_subject = {}
for town in TOWNS:
    for number, main in zip(names[town], mains[town]):
        of_subject.setdefault("-".join(subject[town, number]), []).append(main)
read = model.get_document_info(new)["Topic"].tolist()
print(json.dumps({
    "of_subject": of_subject, "words": model.vocabulary_, "topics": model.topics_, "new": read,
}))
"""
TAGS = {"html", "style", "body", "br", "div", "href", "mailto", "nbsp", "amp", "red", "color"}
ADDRESSES = {"https", "www", "example", "org", "id", "letters"}
STOP_WORDS = {"die", "der", "und", "ist", "las", "los", "el", "de", "para", "en", "我们", "没有"}
ENDINGS = {"leitungen", "busse", "schulen", "tuberías", "sótanos", "paradas", "escuelas"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_notebook(THREE_LANGUAGES, CHECKED, tmp_path_factory.mktemp("notebook"))


def test_no_stop_word_tag_or_ending_is_a_word(printed: Any) -> None:
    words = {*printed["words"]}
    assert not words & (TAGS | ADDRESSES | STOP_WORDS | ENDINGS)
    assert {"leitung", "bus", "schule", "tubería", "parada", "escuela", "水管", "车站"} <= words
    assert not [word for word in words if any(mark in word for mark in "<>&/@")]


def test_each_subject_of_each_language_is_a_topic(printed: Any) -> None:
    main = {
        name: max(set(topics), key=topics.count) for name, topics in printed["of_subject"].items()
    }
    assert len(main) == len({*main.values()}) == 9
    right = [
        topics.count(main[name]) / len(topics) for name, topics in printed["of_subject"].items()
    ]
    assert min(right) > 0.95
    assert printed["new"] == [main["de-bus"], -1, main["zh-school"]]


def test_it_is_kept_without_outputs() -> None:
    assert outputs(Path(THREE_LANGUAGES)) == []
