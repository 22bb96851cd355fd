"""Where a client's documents are: the tables [clients.NAME]."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.errors import DataError, StudyError
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus
from tests.helpers.studies import read, written


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies").mkdir()
    north = '[clients.a]\ndata = "../data/a.csv"\npolicy = "p.toml"\n'
    written(tmp_path / "studies", north + '[clients.b]\ndata = "/data/b.csv"\n')
    monkeypatch.chdir(tmp_path)
    study = Study.read("studies/study.toml")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("text\none\n")
    (tmp_path / "studies" / "p.toml").write_text("min_documents = 2\n")
    monkeypatch.chdir("/")
    a = study.clients["a"]
    assert a.read("a").documents.to_pylist() == ["one"]
    assert a.data.resolve() == tmp_path / "data" / "a.csv"
    assert study.clients["b"].data == Path("/data/b.csv")
    assert study.policies() == {"a": Policy(min_documents=2), "b": Policy()}


def test_documents_of_the_clients(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body,title\none,no\ntwo,no\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1.txt").write_text("three")
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\ntext = "title"\n[clients.b]\ndata = "b"\n')
    corpora = study.corpora()
    assert {name: corpus.documents.to_pylist() for name, corpus in corpora.items()} == {
        "a": ["no", "no"],
        "b": ["three"],
    }
    assert all(isinstance(corpus, Corpus) for corpus in corpora.values())


def test_errors_name_the_client(tmp_path: Path) -> None:
    study = read(tmp_path, '[clients.north]\ndata = "a.csv"\n')
    with pytest.raises(DataError, match=r"Client 'north': There is no file .*a\.csv"):
        study.corpora()


def test_rules_of_a_clients_own_make_lists_of_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\nx,"<p>Die Wälder</p>"\ny,\n', encoding="utf-8")
    (tmp_path / "own.toml").write_text('languages = "de"\nlemmas = true\n', encoding="utf-8")
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\nrules = "own.toml"\n')
    corpus = study.clients["a"].read("a")
    assert corpus.documents.to_pylist() == [["wald"], []]
    assert corpus.raw is not None
    assert corpus.raw.to_pylist() == ["<p>Die Wälder</p>", ""]
    assert corpus.ids.to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("lemmas = true", "needs languages"),
        ("lemma = true", "there is no key 'lemma'"),
        ("lemmas", "cannot be used: "),
        ("lemmas = " + 5000 * "[", "nested too deeply"),
        ("lemmas = " + 5000 * "1", "cannot be used: "),
        ("", "No such file"),
    ],
)
def test_rules_that_cannot_be_used(tmp_path: Path, rules: str, says: str) -> None:
    (tmp_path / "a.csv").write_text("text\noak\n")
    if rules:
        (tmp_path / "own.toml").write_text(rules)
    study = read(tmp_path, '[clients.a]\ndata = "a.csv"\nrules = "own.toml"\n')
    with pytest.raises(StudyError, match=rf"The rules .*own\.toml cannot be used: .*{says}|{says}"):
        study.clients["a"].read("a")
