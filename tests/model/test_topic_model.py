"""The result of a study, read, saved and loaded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import fedtopics
from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import DataError, StudyError
from fedtopics.model.evaluation import evaluate
from fedtopics.text.words import RULES
from fedtopics.versions import MODEL
from tests.helpers.clients import BOATS, TREES, documents
from tests.helpers.federation import assert_same_bits
from tests.helpers.models import edit_config, refused

CANARY = "quetzalcoatl"


def trained(out: Path | None = None, **method: Any) -> TopicModel:
    corpora = {"trees": documents(TREES, 0), "boats": documents(BOATS, 1)}
    corpora["trees"][17] += f" {CANARY}"
    small = {"n_components": 3, "hidden": [8, 8], "max_rounds": 6, "embedding": {"dimension": 5}}
    small |= {"name": "gfedntm"} | method
    study = Study.make(method=small, vocabulary={"min_clients_per_word": 1}, checkpoint_every=2)
    return train(study, {name: seen(texts) for name, texts in corpora.items()}, out=out)


def seen(texts: list[str]) -> Corpus:
    """Documents with embeddings, zero where they are empty, for the networks that look at them."""
    vectors = np.random.default_rng(len(texts)).normal(size=(len(texts), 5))
    filled = np.array([bool(text) for text in texts])
    return Corpus.of(texts).with_embeddings((vectors * filled[:, None]).astype(np.float32))


@pytest.fixture(scope="module")
def model() -> TopicModel:
    return trained()


@pytest.fixture
def saved(model: TopicModel, tmp_path: Path) -> Path:
    return model.save_pretrained(tmp_path / "deep" / "model")


def edit(path: Path, **changes: Any) -> None:
    """Change a file of a model's folder, whose digest then fits."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    edit_config(path.parent, **(changes if path.name == "config.json" else {}))


def test_documents_without_a_word_of_the_model_score_nothing(model: TopicModel) -> None:
    with pytest.raises(DataError, match="No document has a word that the model knows"):
        evaluate(model, ["zebra lion", ""])
    assert evaluate(model, ["zebra oak elm", ""])["documents"] == 2


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_lambda_that_is_none(model: TopicModel, value: float) -> None:
    with pytest.raises(StudyError, match="give a number from 0"):
        model.topics(relevance=value)


def test_shares_are_the_mean_theta_of_a_clients_documents(model: TopicModel) -> None:
    mean = model.transform(documents(BOATS, 1)).mean(0)
    np.testing.assert_allclose(model.shares["boats"], mean, atol=5.1e-4)  # three digits
    assert model.documents == {"boats": 40, "trees": 40}


def test_the_same_documents_are_read_once(
    model: TopicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = documents(TREES, 8)
    first = model.transform(texts)
    expected = first.copy()
    first[:] = 0  # what a caller does with its array is its own matter
    renamed = model.with_labels({0: "trees"})
    monkeypatch.setattr(type(model.inference), "infer", None)  # a second reading would fail
    for of in (model, renamed):
        np.testing.assert_array_equal(of.transform(list(texts)), expected)
    assert len(renamed.suggest_labels(texts)) == 2
    with pytest.raises(TypeError):
        model.transform([*texts, "oak"])
    with pytest.raises(TypeError):  # other embeddings of the same texts
        model.transform(seen(texts))


def test_topics_that_repeat_the_words_of_others() -> None:
    words = [f"word{letter}{number}" for letter in "abcde" for number in "1234567890"]
    beta = np.full((4, 50), 0.001)
    for topic, start in enumerate((0, 10, 2, 13)):  # 8 and 7 words are those of an earlier topic
        beta[topic, start : start + 10] = np.arange(20, 10, -1)
    assert TopicModel.from_matrix(beta, words).repeated == [2]
    assert TopicModel.from_matrix(beta[:, :40], words[:40]).repeated == []


def test_many_documents_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TopicModel.from_matrix(np.eye(2), ["oak", "ketch"])
    monkeypatch.setattr("fedtopics.model.finding.MOST_RECALLED", 2)
    model.transform(["oak"] * 3)
    monkeypatch.setattr(type(model.inference), "infer", None)
    with pytest.raises(TypeError):
        model.transform(["oak"] * 3)


def test_theta_of_a_document_does_not_depend_on_the_others(model: TopicModel) -> None:
    texts = documents(TREES, 7)
    together = model.transform([texts[0], "", *texts[1:]])
    np.testing.assert_allclose(together[:1], model.transform(texts[:1]), atol=1e-6)
    np.testing.assert_array_equal(together[1], np.full(3, 1 / 3, np.float32))


@pytest.mark.parametrize(
    ("network", "nothing_seen"), [("prodlda", [1, 2]), ("combinedtm", [1]), ("zeroshottm", [1])]
)
def test_what_a_network_does_not_see_has_an_even_theta(
    network: str, nothing_seen: list[int], tmp_path: Path
) -> None:
    """An empty document, and one without a known word, which has an embedding."""
    model = trained(network=network)
    corpus = seen(["oak fir", "", "unheard of", "ketch"])
    theta = model.transform(corpus)
    assert [row for row in range(4) if (theta[row] == np.float32(1 / 3)).all()] == nothing_seen
    assert model.write_theta(corpus, tmp_path / "theta.parquet") == len(nothing_seen)
    table = pq.read_table(tmp_path / "theta.parquet").to_pydict()
    assert [row for row in range(4) if table["topic"][row] is None] == nothing_seen
    assert table["known_words"] == [2, 0, 0, 1]


@pytest.mark.parametrize(
    "method",
    [
        {},
        {"preset": "paper", "norm": "local"},
        {"norm": "server", "precision": "float64"},
        {"norm": "server", "optimizer": "fedavg", "local_steps": 2},
        {"network": "neurallda"},
        {"network": "neurallda", "layer_norm": True, "learn_prior": True},
        {"network": "combinedtm", "coherence": "nothing"},
        {"network": "zeroshottm", "relevance": 0.5},
    ],
)
def test_a_saved_model_comes_back_to_the_bit(tmp_path: Path, method: dict[str, Any]) -> None:
    model = trained(**method)
    back = TopicModel.from_pretrained(model.save_pretrained(tmp_path))
    texts = seen([*documents(TREES, 5), "", *documents(BOATS, 6)])
    assert back.inference.name == method.get("network", "prodlda")
    np.testing.assert_array_equal(back.transform(texts), model.transform(texts))
    assert_same_bits(back, model)
    assert back.topics() == model.topics()
    assert (back.vocabulary.plain(), back.text, back.info) == (
        model.vocabulary.plain(),
        model.text,
        model.info,
    )
    assert back.get_topic_info() == model.get_topic_info()


def test_card(model: TopicModel, saved: Path) -> None:
    text = (saved / "README.md").read_text()
    assert "| boats | 40 |\n| trees | 40 |" in text
    assert "gfedntm, network prodlda, 6 rounds, seed 0" in text
    assert f"16 words, fingerprint {model.vocabulary.fingerprint[:16]}" in text


@pytest.mark.parametrize("written", [MODEL + 1, None, "1"])
def test_another_format(saved: Path, written: Any) -> None:
    edit(saved / "config.json", format=written, fedtopics="9.9")
    reads = f"not the fields of format {MODEL}, which fedtopics {fedtopics.__version__} reads"
    assert f"has format {written} (written by fedtopics 9.9), and {reads}" in refused(saved)


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json"])
def test_missing_file(saved: Path, name: str) -> None:
    (saved / name).unlink()
    assert "copy" in refused(saved)


def test_edited_vocabulary(model: TopicModel, saved: Path) -> None:
    words = list(model.vocabulary.words)
    path = saved / "vocabulary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"words": words[::-1]}))
    assert f"needs the vocabulary {model.vocabulary.fingerprint}, but its" in refused(saved)


@pytest.mark.parametrize(
    "change",
    [
        {"inference": "other"},
        {"precision": "float7"},
        {"settings": {"n_components": 1}},
        {"shares": None},
        {"text": {"stop_words": "klingon"}},
        {"precision": "load"},
        {"info": [1]},
        *("{", "[]", "3", "{}", '{"format": 1}'),
    ],
)
def test_config_that_does_not_fit(saved: Path, change: Any) -> None:
    if isinstance(change, str):
        (saved / "config.json").write_text(change)
    else:
        edit(saved / "config.json", **change)
    refused(saved)


def test_a_model_of_earlier_rules_of_words_says_so(model: TopicModel, saved: Path) -> None:
    """Its words may be others than those that texts become now; the first rules had no number."""
    config = json.loads((saved / "config.json").read_text())
    assert config["text"].pop("version") == RULES
    edit(saved / "config.json", text=config["text"])
    old = TopicModel.from_pretrained(saved)
    assert old.text.version == 1
    says = f"version 1 of the rules for words, .* has version {RULES}, .* again"
    with pytest.warns(UserWarning, match=says):
        theta = old.transform(["oak elm"])
    np.testing.assert_array_equal(theta, model.transform(["oak elm"]))
    old.save_pretrained(saved)
    assert TopicModel.from_pretrained(saved).text.version == 1


def test_a_word_of_one_document_is_in_no_file(tmp_path: Path) -> None:
    trained(tmp_path / "run", validation_share=0.25, validate_every=2).save_pretrained(
        tmp_path / "model"
    )
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"events.jsonl", "study.toml", "ledger.jsonl", "00000006.safetensors"} <= names
    assert {"model.safetensors", "vocabulary.json", "topics.json", "README.md"} <= names
    assert [path for path in files if CANARY.encode() in path.read_bytes().lower()] == []
    assert [path for path in files if b"oak" in path.read_bytes()] != []  # the search finds words
