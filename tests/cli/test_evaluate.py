"""Scores of a model on documents, from Python and from the command line."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from fedtopics import Corpus, TopicModel, train
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.model.evaluation import evaluate
from tests.helpers.command_line import Refused, Typed
from tests.helpers.federation import study, subjects

SIZES = {"north": 60, "south": 60}


@pytest.fixture(scope="module")
def documents() -> Corpus:
    return Corpus.pool(subjects(SIZES).values())


@pytest.fixture(scope="module")
def model() -> TopicModel:
    corpora = subjects(SIZES)
    return train(
        study(n_components=3, max_rounds=20, relevance=0.6),
        corpora,
        policies=dict.fromkeys(corpora, OPEN_POLICY),
    )


def test_coherence_is_that_of_the_training(model: TopicModel, documents: Corpus) -> None:
    scores = evaluate(model, documents)
    for measure, values in model.coherence.items():
        assert scores[measure] == pytest.approx(values.mean())
        assert scores[f"{measure}_in_training"] == pytest.approx(values.mean())
    assert (scores["documents"], scores["topics"], scores["by"]) == (120, 3, "windows")
    assert scores["relevance"] == model.word_ranking.relevance
    assert "purity" not in scores
    assert scores["absent"] == 0
    assert "npmi_in_training" not in evaluate(model, documents, relevance=1.0)


def test_topics_whose_words_do_not_occur_are_counted(model: TopicModel) -> None:
    first, *others = model.topics()
    assert (
        evaluate(model, [first[:6], first[4:]] * 3)["absent"]
        == sum(len({*first} & {*topic}) < 5 for topic in others)
        > 0
    )


def test_labels_are_scored_over_persons(model: TopicModel, documents: Corpus) -> None:
    labels = ["north"] * 50 + ["south"] * 70
    scores = evaluate(model, replace(documents, labels=pa.chunked_array([labels])))
    binomial = 1.96 * (scores["purity"] * (1 - scores["purity"]) / 120) ** 0.5
    assert scores["purity_margin"] == pytest.approx(binomial, rel=0.5)
    assert scores["unique_words_margin"] is None, "it is exact"


@pytest.fixture
def folder(model: TopicModel, documents: Corpus, here: Path) -> Path:
    model.save_pretrained(here / "model")
    owners = np.repeat(list(SIZES), 60)
    pq.write_table(
        pa.table({"words": documents.documents, "label": owners, "owner": owners}),
        here / "documents.parquet",
    )
    (here / "texts").mkdir()
    (here / "texts/one.txt").write_text("north1 north2")
    return here


DATA = ("--data", "documents.parquet", "--columns", "tokens=words")


def test_the_command(folder: Path, model: TopicModel, documents: Corpus, typed: Typed) -> None:
    printed = typed("evaluate", "model", *DATA, "--columns", "label=owner")[1]
    assert "model: 3 topics on 120 documents" in printed
    assert "purity of the largest topics" in printed
    assert "Nearness is not measured, as it needs embeddings of enough documents." in printed
    npmi = model.coherence["npmi"]
    high = stats.t.interval(0.95, 2, 0, stats.sem(npmi))[1]
    assert f" {npmi.mean():.3f} ± {high:.3f} " in printed
    assert f"compared with {npmi.mean():.3f} in training" in printed
    assert "+0.000 ± 0.000 (not beyond chance)" in printed
    assert "3 topics on 240 documents" in typed("evaluate", "model", *DATA, *DATA[:2])[1]
    assert "Labels: 120 documents were scored, leaving out 0 that have no label and 0 in" in printed
    scores = json.loads(typed("evaluate", "model", *DATA, "--by", "documents", "--json")[1])
    assert scores == pytest.approx(evaluate(model, documents, by="documents"))
    assert "purity" not in scores, "a column that is called label was not asked for"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", *DATA), "There is no model in nowhere"),
        (("model", "--data", "nowhere.csv"), "There is no file or folder nowhere.csv"),
        (
            ("model", *DATA, "--columns", "label=field"),
            "There is no column 'field' in documents.parq",
        ),
        (("model", "--data", "texts", "--columns", "label=a"), "Not all of texts have labels"),
        (("model", *DATA, "--relevance", "2"), "Invalid value for '--relevance'"),
        (("model",), "Missing option '--data'"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str, refused: Refused) -> None:
    assert message in refused("evaluate", *arguments)
