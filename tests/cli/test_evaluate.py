"""Scores of a model on documents, from Python and from the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtopics import TopicModel
from fedtopics.cli import display
from fedtopics.cli.evaluate import _print_scores
from fedtopics.errors import DataError, StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.metrics import METRICS, Metric, coherence_of, register, unique_words
from fedtopics.model.evaluation import evaluate
from fedtopics.text.corpus import Corpus
from tests.helpers.command_line import fedtopics, refused
from tests.helpers.federation import study, subjects

SIZES = {"north": 60, "south": 60}


@pytest.fixture(scope="module")
def documents() -> Corpus:
    return Corpus.pool(subjects(SIZES).values())


@pytest.fixture(scope="module")
def model() -> TopicModel:
    corpora = subjects(SIZES)
    plan = study(n_components=3, max_rounds=20, relevance=0.6)
    return train(plan, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY))


def labelled(documents: Corpus, labels: object) -> Corpus:
    return replace(documents, labels=pa.chunked_array([pa.array(labels)]))


def test_coherence_is_that_of_the_training(model: TopicModel, documents: Corpus) -> None:
    scores = evaluate(model, documents)
    for measure, values in model.coherence.items():
        assert scores[measure] == pytest.approx(values.mean())
    assert (scores["documents"], scores["topics"], scores["by"]) == (120, 3, "windows")
    assert scores["lambda"] == model.reading.lambda_
    assert "purity" not in scores


def test_coherence_by_documents_under_another_reading(model: TopicModel, documents: Corpus) -> None:
    scores = evaluate(model, documents, by="documents", lambda_=1.0)
    words = model.topics(10, 1.0)
    texts = documents.documents.to_pylist()
    for measure in ("c_v", "npmi", "u_mass"):
        expected = coherence_of(words, texts, measure, None).mean()
        assert scores[measure] == pytest.approx(expected)
    assert scores["unique_words"] == unique_words(model.topics(25, 1.0), 25)
    assert scores["lambda"] == 1.0
    assert 0 < scores["inverted_rbo"] <= 1
    assert 0 < scores["cosine_dissimilarity"] < 1


def test_labels_that_are_the_topics(model: TopicModel, documents: Corpus) -> None:
    topics = model.main_topics(documents)
    assert set(topics) <= {0, 1, 2}
    scores = evaluate(model, labelled(documents, topics))
    assert scores["purity"] == 1
    assert scores["nmi"] == pytest.approx(1)
    assert (scores["labelled"], scores["without_label"], scores["unseen"]) == (120, 0, 0)


def test_documents_without_label_or_known_word_are_counted(model: TopicModel) -> None:
    texts = [["north1", "north2"], ["unheard"], [], ["south1"], ["south1"], ["south2"]]
    corpus = labelled(Corpus.of(texts), ["a", "a", "a", None, " ", "a"])
    assert model.main_topics(corpus)[[1, 2]].tolist() == [-1, -1]
    scores = evaluate(model, corpus)
    assert (scores["labelled"], scores["without_label"], scores["unseen"]) == (2, 2, 2)
    assert scores["purity"] == 1


def test_what_cannot_be_scored(model: TopicModel, documents: Corpus) -> None:
    with pytest.raises(StudyError, match="by='sentences' is unknown"):
        evaluate(model, documents, by="sentences")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"The labels are list<.*>; give strings or numbers"):
        evaluate(model, labelled(documents, [["a"]] * 120))


@pytest.fixture
def folder(
    model: TopicModel, documents: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    model.save_pretrained(tmp_path / "model")
    owners = np.repeat(list(SIZES), 60)
    table = pa.table({"words": documents.documents, "label": owners, "owner": owners})
    pq.write_table(table, tmp_path / "documents.parquet")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/one.txt").write_text("north1 north2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedtopics.cli.evaluate.console", display.Terminal(width=100))
    return tmp_path


DATA = ("--data", "documents.parquet", "--tokens", "words")


def test_the_command(
    folder: Path,
    model: TopicModel,
    documents: Corpus,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fedtopics(monkeypatch, "evaluate", "model", *DATA, "--label", "owner") == 0
    printed = capsys.readouterr().out
    assert "model: 3 topics, read with lambda" in printed
    assert "purity of the largest topics" in printed
    assert "Labels: 120 documents count; left out are 0 without a label and 0 of" in printed

    assert fedtopics(monkeypatch, "evaluate", "model", *DATA, "--by", "documents", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == pytest.approx(evaluate(model, documents, by="documents"))
    assert "purity" not in found, "a column that is called label was not asked for"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", *DATA), "There is no model in nowhere"),
        (("model", "--data", "nowhere.csv"), "There is no file or folder nowhere.csv"),
        (("model", *DATA, "--label", "field"), "There is no column 'field' in documents.parquet"),
        (("model", "--data", "texts", "--label", "a"), "texts has no columns, so no labels 'a'"),
        (("model", *DATA, "--lambda", "2"), "Invalid value for '--lambda'"),
        (("model",), "Missing option '--data'"),
    ],
)
def test_wrong_arguments(
    arguments: tuple[str, ...],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in refused(monkeypatch, capsys, "evaluate", *arguments)


def test_a_registered_metric_is_in_the_table_and_in_json(
    model: TopicModel,
    documents: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def largest(theta: np.ndarray) -> float:
        return float(theta.max())

    def wrong(labels: np.ndarray, counts: np.ndarray) -> float:
        return counts.shape[0] + len(set(labels)) / 10

    monkeypatch.setattr(METRICS, "_items", dict(METRICS._items))
    register(Metric("largest", "largest theta", "Mine", largest, ("theta",)))
    register(Metric("mine", "documents.labels", "Mine", wrong, ("labels", "counts")))
    scores = evaluate(model, documents)
    assert scores["largest"] == model.transform(documents).max()
    assert "mine" not in scores
    scores = evaluate(model, labelled(documents, [["x", "y", None][i % 3] for i in range(120)]))
    assert scores["mine"] == scores["labelled"] + 0.2
    model.save_pretrained(tmp_path / "model")
    _print_scores(tmp_path / "model", scores)
    assert re.search(r"Mine\s+largest theta\s+\d\.\d{3}", capsys.readouterr().out)
