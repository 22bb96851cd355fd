"""What people call clients is wherever clients are shown, and is kept."""

from pathlib import Path
from typing import Any

import pytest

from fedtopics import Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.model.exports import as_csv, as_markdown
from fedtopics.report import find_run, summarise, write_report
from tests.helpers.clients import TEXTS
from tests.helpers.models import edit_config, made, refused

NAME = "Büro | Nord"
ESCAPED = "Büro \\| Nord"


def named() -> TopicModel:
    return made().with_client_names({"north": NAME})


def test_where_it_is_shown() -> None:
    model = named()
    assert model.client_name("north") == NAME
    assert model.client_name("south") == "south"
    rows = model.get_topic_info()
    assert rows[0]["clients"].keys() == {NAME, "south"}
    assert f"Share_{NAME}" in model.to_pandas()
    assert f"share_{NAME}" in as_csv(rows)
    assert ESCAPED in as_markdown(rows)
    assert "north" not in summarise(model)["clients"][0].values()
    assert summarise(model)["topics"][0]["clients"].keys() == {NAME, "south"}
    assert model.documents.keys() == model.shares.keys() == {"north", "south"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"west": "West"}, "no client 'west'; choose from: north, south"),
        ({"north": "x" * 101}, "name of client north has 101 characters"),
        ({"north": "a\nb"}, "name of client north contains a control character"),
        ({"north": 3}, "name of client north is not a text"),
        ({"north": "south"}, "'north' and 'south' have the same name, 'south'; give each"),
        ({"north": "x", "south": "x"}, "clients 'north' and 'south' have the same name, 'x'"),
    ],
)
def test_names_that_cannot_be(names: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=message):
        made().with_client_names(names)
    folder = made().save_pretrained(tmp_path)
    edit_config(folder, client_names=names)
    refused(folder)


def test_a_study_names_its_clients(tmp_path: Path) -> None:
    method = {"name": "lda", "n_components": 2, "max_rounds": 2}
    limits = {"min_clients_per_word": 1}
    plain = Study.make(method=method, vocabulary=limits)
    study = Study.make(
        method=method, vocabulary=limits, clients={"trees": {"name": "Forest <office>"}}
    )
    assert study.with_clients(TEXTS).fingerprint == plain.with_clients(TEXTS).fingerprint
    model = train(study, TEXTS, out=tmp_path)
    assert model.client_names == {"trees": "Forest <office>"}
    _, run = find_run(tmp_path)
    write_report(summarise(model, run), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Forest &lt;office&gt;" in page
    assert "Forest <office>" not in page
    with pytest.raises(StudyError, match="The clients 'a' and 'b' have the same name, 'b'"):
        Study.make(clients={"a": {"name": "b"}, "b": {}})
    with pytest.raises(StudyError, match="write one line of printable characters"):
        Study.make(clients={"a": {"name": "a\tb"}})
