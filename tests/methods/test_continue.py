"""A model that training begins with: its own words kept, or words agreed on anew."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtopics import Corpus, Study, TopicModel, train
from fedtopics.errors import DataError, PolicyError, RunError, StudyError
from fedtopics.federation.finished_model import privacy_summary
from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.run_folder import RunFolder
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.plan import Plan, WarmStart, Words, fingerprint_of
from fedtopics.methods.gfedntm.method import GFedNTM
from fedtopics.methods.gfedntm.state import AVERAGES
from fedtopics.networks import register
from fedtopics.networks.base import Tensors
from fedtopics.networks.topic_networks import NeuralLDA
from fedtopics.report.run import LedgerFacts
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary, VocabularyLimits
from tests.helpers.federation import (
    DIMENSION,
    NETWORKS,
    assert_same_bits,
    embedded,
    study,
    subjects,
    train_and_note,
    train_until_killed,
)
from tests.helpers.grpc_federation import federated

SIZES = {"east": 80, "north": 60}


@register
class Embedded(NeuralLDA):
    """One of somebody's own, without beta_logits."""

    name = "of-ones-own"

    def draw_decoder(self, generator: torch.Generator) -> Tensors:
        k = self.settings.n_components
        n_words = self.n_words
        return {
            "topic_embeddings": self.uniform(generator, 1.0, k, 5),
            "word_embeddings": self.uniform(generator, 1.0, n_words, 5),
        }

    def rows(self, weights: Tensors) -> torch.Tensor:
        return weights["topic_embeddings"] @ weights["word_embeddings"].T


ALL = (*NETWORKS, Embedded.name)
GOING_ON = ("prodlda", "combinedtm", Embedded.name)


def loaded(model: TopicModel, folder: Path) -> TopicModel:
    return TopicModel.from_pretrained(model.save_pretrained(folder))


NORMS = {
    "local": {"norm": "local"},
    "server": {"norm": "server"},
    "fedavg": {"norm": "server", "local_steps": 2, "optimizer": "fedavg"},
}


@pytest.mark.parametrize(
    ("network", "norm"),
    [*((network, "sync") for network in ALL), *(("prodlda", norm) for norm in NORMS)],
)
def test_twelve_rounds_are_six_and_six(network: str, norm: str, tmp_path: Path) -> None:
    """To the bit, where the server's optimiser has no memory: minibatches and noise go on."""
    corpora = embedded(subjects(SIZES))
    given = {"optimizer": "sgd", "learning_rate": 0.02, "network": network} | NORMS.get(norm, {})
    whole = train(study(max_rounds=12, **given), corpora)
    half = loaded(train(study(max_rounds=6, **given), corpora), tmp_path)
    more, events = train_and_note(
        study(max_rounds=6, **given), corpora, start=half, vocabulary="keep"
    )
    assert_same_bits(more, whole)
    for stage, total in whole.shared[AVERAGES].items():
        assert torch.equal(more.shared[AVERAGES][stage], total)
    assert [event["round"] for event in events.of("round")] == [7, 8, 9, 10, 11, 12]
    origin = {
        "model": fingerprint_of(half),
        "method": "gfedntm",
        "rounds": 6,
        "vocabulary": "keep",
    }
    assert more.info == {**whole.info, "continued": origin}
    assert [{key: event[key] for key in origin} for event in events.of("continued")] == [origin]


@pytest.mark.parametrize("learning", ["stochastic", "batch"])
def test_twelve_rounds_of_lda_are_six_and_six(learning: str, tmp_path: Path) -> None:
    corpora = subjects({"east": 80})  # whose counts of words are not rounded

    def plan(rounds: int) -> Study:
        return Study.make(
            method={"name": "lda", "n_components": 4, "learning": learning, "batch_size": 32}
            | {"max_rounds": rounds}
        )

    whole = train(plan(12), corpora)
    more = train(
        plan(6), corpora, start=loaded(train(plan(6), corpora), tmp_path), vocabulary="keep"
    )
    assert_same_bits(more, whole)
    assert {key: more.info[key] for key in whole.info} == whole.info


def test_new_documents_in_the_words_there_are(tmp_path: Path) -> None:
    """No word leaves, whatever the new documents have; a client may be new."""
    model = train(study(max_rounds=5), subjects(SIZES))
    new = subjects({"east": 50, "west": 30}, seed=1)
    more = train(study(max_rounds=3), new, out=tmp_path, start=model, vocabulary="keep")
    assert more.vocabulary.words == model.vocabulary.words
    assert not any(word.startswith("west") for word in more.vocabulary.words)
    assert more.info["rounds"] == 8
    assert more.documents.keys() == {"east", "west"}
    for name in new:
        ledger = tmp_path / "clients" / name / "ledger.jsonl"
        asked = {row["function"]: row["fields"] for row in LedgerFacts.read(ledger).rows}
        assert asked["known_words"] == ["clients", "documents"]
        assert "vocabulary" not in asked


def test_kept_words_are_subject_to_the_policy() -> None:
    plan = study(max_rounds=2)
    model = train(plan, subjects(SIZES))
    corpora = subjects({"east": 30, "north": 5})

    def gone_on(**policy: int) -> TopicModel:
        policies = dict.fromkeys(SIZES, Policy(**policy))
        return train(plan, corpora, start=model, vocabulary="keep", policies=policies)

    with pytest.raises(PolicyError, match="at least 10 persons, but its documents are of 5"):
        gone_on(min_persons=10)
    with pytest.raises(PolicyError, match="has 2 rounds, but the policy of client 'east' allows"):
        gone_on(min_persons=1, max_rounds=1)
    assert gone_on(min_persons=1, max_rounds=2).info["rounds"] == 4, (
        "those of the model do not count"
    )
    with pytest.raises(DataError, match="no document contains a word of the agreed vocabulary"):
        gone_on(min_persons=1, min_persons_per_word=31)


@pytest.mark.parametrize("vocabulary", ["keep", "agree"])
def test_a_run_that_began_with_a_model_resumes_with_it(vocabulary: Words, tmp_path: Path) -> None:
    corpora = subjects(SIZES)
    plan = study(max_rounds=9).model_copy(update={"checkpoint_every": 4})
    models = [train(study(max_rounds=n), corpora) for n in (5, 6)]
    whole = train(plan, corpora, start=models[0], vocabulary=vocabulary, at_once=False)
    last = 12 if vocabulary == "keep" else 7
    train_until_killed(last, plan, corpora, out=tmp_path, start=models[0], vocabulary=vocabulary)
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines[:3]] == ["started", "study", "continued"]
    assert lines[2]["model"] == fingerprint_of(models[0])

    other: Words = "agree" if vocabulary == "keep" else "keep"
    for start, words in ((models[1], vocabulary), (models[0], other), (None, vocabulary)):
        with pytest.raises(RunError, match="with the model that the run started"):
            train(plan, corpora, out=tmp_path, resume=True, start=start, vocabulary=words)
    how: Any = {"start": models[0], "vocabulary": vocabulary}
    again, events = train_and_note(plan, corpora, out=tmp_path, resume=True, **how)
    assert_same_bits(again, whole)
    assert again.info == whole.info
    assert not events.of("continued")
    assert len(events.of("round")) < 9


THEMES = {name: [f"{name}{i}" for i in range(12)] for name in ("apple", "bread", "cloud")}
SOME = range(8), range(4, 12)  # of a theme's words: before, and after


def themed(part: range, seed: int = 0, size: int = 120) -> dict[str, Corpus]:
    """Two clients whose documents are of one theme each, which its embedding tells."""
    rng = np.random.default_rng(seed)
    names = list(THEMES)
    corpora = {}
    for client in ("east", "north"):
        chosen = rng.integers(len(names), size=size)
        words = [np.array([THEMES[names[k]][i] for i in part]) for k in chosen]
        corpus = Corpus.of([rng.choice(some, 10).tolist() for some in words])
        vectors = np.eye(DIMENSION)[chosen] + rng.normal(size=(size, DIMENSION)) / 20
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        corpora[client] = corpus.with_embeddings(vectors.astype(np.float32))
    return corpora


def on_themes(network: str, rounds: int, **more: Any) -> Study:
    given: Any = {"n_components": 3, "learning_rate": 0.02, "relevance": 1.0}
    given |= {"max_rounds": rounds, "initialisation": "anchors", "network": network}
    return study(**given | more).model_copy(update={"seed": 1})


def themes_of(model: TopicModel) -> list[str]:
    """What each topic is about, by most of its first words."""
    topics = [[word.rstrip("0123456789") for word in words] for words in model.topics(5)]
    return [max(THEMES, key=names.count) for names in topics]


@pytest.fixture(scope="module")
def trained() -> dict[str, TopicModel]:
    """A model of each network, whose topics are the themes."""
    at_random = {Embedded.name: {"initialisation": "random"}}
    models = {n: train(on_themes(n, 80, **at_random.get(n, {})), themed(SOME[0])) for n in GOING_ON}
    for name, model in models.items():
        assert set(themes_of(model)) == set(THEMES), name
    return models


@pytest.mark.parametrize("network", GOING_ON)
def test_topics_stay_when_words_come_and_go(network: str, trained: dict[str, TopicModel]) -> None:
    model = trained[network]
    more = train(on_themes(network, 60), themed(SOME[1], seed=1), start=model)
    assert themes_of(more) == themes_of(model)
    assert {*more.vocabulary.words} == {THEMES[name][i] for name in THEMES for i in SOME[1]}
    for topic, name in zip(more.topics(8), themes_of(model), strict=True):
        assert {*THEMES[name][8:]} <= {*topic}, "what is new is in its topic"
    assert more.info["rounds"] == 60
    assert more.info["continued"]["vocabulary"] == "agree"


def carried(network: str, words: list[str]) -> tuple[Tensors, TopicModel]:
    """First weights in some words, after a model of a to f."""
    corpora = embedded({"a": Corpus.of([list("abc"), list("bde"), list("fac"), ["f"]] * 10)})
    settings = study(network=network, n_components=3, max_rounds=2, coherence="nothing")
    model = train(settings, corpora, policies={"a": OPEN_POLICY})
    counts = np.ones(len(words), np.int64)
    agreement = Agreement(
        clients=LocalClients({}),
        settings=settings.method,
        vocabulary=Vocabulary(tuple(words), document_frequency=counts, occurrences=counts),
        documents=0,
        training=0,
        length=1.0,
    )
    plan = Plan(
        settings=settings.method,
        text=TextRules(),
        limits=VocabularyLimits(),
        seed=1,
        start=WarmStart.of(model),
    )
    return GFedNTM(plan).first_state(agreement, RunFolder(None, "")).weights, model


@pytest.mark.parametrize("network", ALL)
def test_numbers_go_with_their_words(network: str) -> None:
    weights, model = carried(network, ["new", "f", "a", "other", "c"])
    old_rows = [model.vocabulary.index[word] for word in "fac"]
    by_word = {"encoder_words": 0, "beta_logits": 1, "word_embeddings": 0, "word_bias": 0}
    for name, weight in weights.items():
        old = model.weights[name]
        if name not in by_word:
            assert torch.equal(weight, old), name
            continue
        rows = weight.movedim(by_word[name], 0)
        before = old.movedim(by_word[name], 0)
        assert torch.equal(rows[[1, 2, 4]], before[old_rows]), name
        new = before.mean() if name == "word_bias" else torch.zeros(())
        assert torch.equal(rows[[0, 3]], new.expand_as(rows[[0, 3]])), name


@pytest.mark.parametrize("other", ["combinedtm", "lda", "pair"])
def test_topics_of_another_model(other: str, trained: dict[str, TopicModel]) -> None:
    model = trained["combinedtm"]
    if other == "lda":
        plan = Study.make(method={"name": "lda", "n_components": 3, "max_rounds": 30})
        model = train(plan, themed(SOME[0]))
    start: Any = (model.beta, model.vocabulary.words) if other == "pair" else model
    more = train(on_themes("prodlda", 40), themed(SOME[0], seed=1), start=start)
    assert themes_of(more) == themes_of(model)
    assert more.info["rounds"] == 40


def test_labels_stay_with_their_topics() -> None:
    model = train(study(max_rounds=2), subjects(SIZES)).with_labels({1: "harbours", 4: "trees"})
    for vocabulary in ("keep", "agree"):
        assert (
            train(study(max_rounds=1), subjects(SIZES), start=model, vocabulary=vocabulary).labels
            == model.labels
        )


ANEW = 'set vocabulary to "agree" to begin with the model\'s topics.'


def refusal(plan: Study, start: Any, vocabulary: Words) -> str:
    with pytest.raises(StudyError) as error:
        train(plan, subjects(SIZES), start=start, vocabulary=vocabulary)
    return str(error.value)


@pytest.fixture(scope="module")
def small() -> TopicModel:
    return train(study(max_rounds=1, coherence="nothing"), subjects(SIZES))


def test_a_network_that_cannot_go_on_as_it_is(small: TopicModel) -> None:
    ending = f", so it cannot be trained further; change the study's settings to these, or {ANEW}"
    for given, what in (
        ({"network": "neurallda"}, "network = 'prodlda', the study's 'neurallda'"),
        ({"precision": "float64"}, "precision = 'float32', the study's 'float64'"),
        ({"hidden": [16, 13]}, "hidden = (16, 12), the study's (16, 13)"),
        ({"word_bias": False}, "word_bias = True, the study's False"),
        ({"posterior_gain": 2.0}, "posterior_gain = None, the study's 'learned'"),
        (
            {"encoder_input": "counts", "layer_norm": True},
            "encoder_input = 'log', the study's 'counts'; layer_norm = False, the study's True",
        ),
    ):
        assert refusal(study(**given), small, "keep") == f"The model has {what}{ending}"
    assert (
        train(study(dropout=0.5, max_rounds=1), subjects(SIZES), start=small).info["rounds"] == 1
    ), "what changes no shape may change"


def test_a_method_that_cannot_go_on_as_it_is(small: TopicModel) -> None:
    plan = Study.make(method={"name": "lda", "n_components": 6})
    assert (
        refusal(plan, small, "keep")
        == "The model was trained by gfedntm and the study trains lda; " + ANEW
    )


def test_a_server_begins_with_a_model(tmp_path: Path) -> None:
    plan = study(max_rounds=4)
    corpora = subjects(SIZES)
    model = loaded(train(plan, subjects(SIZES, seed=1)), tmp_path / "before")
    outcome = federated(plan, corpora, tmp_path, start=model)
    policies: dict[str, Policy] = dict.fromkeys(SIZES, OPEN_POLICY)
    how: Any = {"start": model, "vocabulary": "keep", "at_once": False}
    alone = train(plan, corpora, policies=policies, **how)
    assert_same_bits(outcome.model, alone)
    assert outcome.model.info == alone.info | privacy_summary(plan.with_clients(SIZES))
    assert outcome.events.of("continued")[0]["model"] == fingerprint_of(model)
    for name in SIZES:
        asked = {row["function"] for row in LedgerFacts.read(tmp_path / name / "ledger.jsonl").rows}
        assert ("known_words" in asked, "vocabulary" in asked) == (True, False)
        offered = outcome.partners[name].events.of("offer")[0]["data_sent"]
        assert asked <= {row["function"] for row in offered}, "what is asked for was said before"
