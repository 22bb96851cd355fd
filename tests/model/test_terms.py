"""Topics beside the terms of an ontology: the nearest, by words and by what they mean."""

from pathlib import Path

import numpy as np
import pytest

from fedtopics.errors import DataError, StudyError
from fedtopics.model import search
from fedtopics.model.search import read_terms
from tests.helpers.command_line import Done, Refused
from tests.helpers.models import made

TERMS = {"X1": ["elm", "the oak"], "X2": ["flu"], "X3": ["birch"]}


def test_by_words() -> None:
    """Of "oak", 2 of 3 are in the first topic, which has it a third as often as its first word."""
    first, second, _ = made().match_terms(TERMS)
    assert first["terms"] == [("X1", pytest.approx(np.sqrt(2 / 3 * 2 / 6)))]
    assert second["terms"] == [("X1", pytest.approx(1)), ("X2", pytest.approx(1))]
    assert (first["topic"], first["label"], second["label"]) == (0, "Trees | shrubs", "")
    assert first["words"] == made().topics()[0]
    assert [len(row["terms"]) for row in made().match_terms(TERMS, top_n=1)] == [1, 1, 0]


def test_by_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def encoder(name: str) -> object:
        return lambda texts: np.array([[1.0, 0] if "oak" in text else [0.6, 0.8] for text in texts])

    monkeypatch.setattr(search, "sentence_encoder", encoder)
    rows = made().match_terms({"A": ["an oak tree"], "B": ["else"]}, by="meaning")
    assert rows[0]["terms"] == [("A", pytest.approx(1)), ("B", pytest.approx(0.6))]


@pytest.mark.parametrize("terms", [{}, {"A": []}])
def test_no_terms(terms: dict[str, list[str]]) -> None:
    with pytest.raises(StudyError, match="There are no terms, or one has no synonym"):
        made().match_terms(terms)
    with pytest.raises(StudyError, match="by='sound' is unknown"):
        made().match_terms(TERMS, by="sound")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("terms.toml", '"J45" = ["asthma", "wheezing"]\nA00 = ["cholera"]\n'),
        ("terms.csv", "term,synonym\nJ45,asthma\nA00,cholera\nJ45,wheezing\n"),
        ("TERMS.CSV", "term,synonym\nJ45,asthma\nA00,cholera\nJ45,wheezing\n"),
        ("terms.csv", "\ufeffsynonym;term\r\nasthma;J45\r\ncholera;A00\r\nwheezing;J45\r\n;\r\n"),
    ],
)
def test_files(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, "utf-8", newline="")
    assert read_terms(tmp_path / name) == {"J45": ["asthma", "wheezing"], "A00": ["cholera"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("terms.toml", "J45 = 'asthma'"),
        ("terms.toml", "J45 = [1]"),
        ("terms.toml", ""),
        ("terms.csv", "term,synonym\n"),
        ("terms.toml", "\0"),
        ("terms.toml", "J45 = " + 5000 * "["),
        ("terms.toml", "J45 = " + 5000 * "1"),
    ],
)
def test_what_is_no_file_of_terms(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(StudyError, match="has no terms; write TOML"):
        read_terms(tmp_path / name)
    with pytest.raises(StudyError, match="has no terms; write TOML"):
        read_terms(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"There is no column 'term' in .*terms\.csv"),
        ("term,synonym\nJ45,x\nJ45\n", r"terms\.csv cannot be read: row 2 has 1 field,"),
    ],
)
def test_what_is_no_table_of_terms(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "terms.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_terms(tmp_path / "terms.csv")


def test_the_command(tmp_path: Path, done: Done, refused: Refused) -> None:
    made().save_pretrained(tmp_path / "model")
    (tmp_path / "t.toml").write_text('"Ulmus" = ["elm"]\n')
    out = done("topics", tmp_path / "model", "--match", tmp_path / "t.toml")
    assert "Ulmus 1.00" in out
    assert "no term has a word in common with it" in out
    refused("topics", tmp_path / "model", "--match", tmp_path / "no.toml")
