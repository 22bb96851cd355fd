"""What a study says that it is for."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedtopics.errors import RunError, StudyError
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, example_study
from fedtopics.text.corpus import Corpus

ABOUT = {
    "purpose": "To find what letters are about",
    "operator": "City of Elms, archive",
    "recipients": ["the council", "two universities"],
    "retention": "until the end of 2028",
    "contact": "archive@example.org",
}
CORPORA = {name: Corpus.of(["oak elm fir"] * 30) for name in ("north", "south")}


def about(**changes: Any) -> Study:
    method = {"name": "lda", "n_components": 2, "max_rounds": 1, "coherence": "nothing"}
    limits = {"max_document_share": 1.0}
    clients: dict[str, Any] = {"north": {}, "south": {}}
    told = {"about": ABOUT | changes} if changes.get("purpose", "x") else {}
    return Study.make(method=method, vocabulary=limits, clients=clients, **told)


def test_it_is_part_of_what_is_agreed() -> None:
    study = about()
    assert study.agreed["about"] == ABOUT
    again = Study.of_agreed(study.agreed)
    assert (again.about, again.fingerprint) == (study.about, study.fingerprint)
    assert [*study.about.rows()] == [
        ("purpose", "To find what letters are about"), ("operator", "City of Elms, archive"),
        ("recipients", "the council; two universities"), ("retention", "until the end of 2028"),
        ("contact", "archive@example.org"),
    ]  # fmt: skip
    others = {about(**{name: "" if name != "recipients" else []}).fingerprint for name in ABOUT}
    others |= {about(recipients=ABOUT["recipients"][::-1]).fingerprint}
    assert len(others | {study.fingerprint}) == 7, "each of it counts"


def test_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(about().to_toml())
    assert tomllib.loads(path.read_text())["about"] == ABOUT
    assert Study.read(path).fingerprint == about().fingerprint
    assert "[about]\n# purpose = " in example_study()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("purpose", "two\nlines"),
        ("purpose", "\x1b[2Jhidden"),
        ("operator", "turned \u202eround"),
        ("contact", "e" + 7 * "\u0301"),
        ("purpose", "x" * 501),
        ("operator", "x" * 201),
        ("retention", "x" * 501),
        ("contact", "x" * 201),
        ("recipients", ["x"] * 21),
        ("recipients", [""]),
        ("recipients", ["x" * 201]),
        ("recipients", "the council"),
        ("recipients", ["a\nb"]),
        ("why", "because"),
    ],
)
def test_what_it_cannot_say(name: str, value: Any) -> None:
    with pytest.raises(StudyError, match=rf"The study cannot be used: .*'about\.{name}"):
        about(**{name: value})


def test_who_has_begun_notices_another_purpose(tmp_path: Path) -> None:
    train(about(), CORPORA, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"resume with the study\.toml in the run's folder"):
        train(about(purpose="Another"), CORPORA, out=tmp_path / "run", resume=True)
    part = Participation("north", CORPORA["north"], OPEN_POLICY, tmp_path / "north")
    part.consider(about(), b"run")
    part.close()
    for study in (about(purpose="Another"), about(recipients=[])):
        with pytest.raises(RunError, match="holds what this client did in another study"):
            part.consider(study, b"run")
