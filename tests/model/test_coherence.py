"""Federated coherence and word sums are those of the pooled documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gensim.corpora import Dictionary
from gensim.models import CoherenceModel

from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.methods.plan import Site
from fedtopics.metrics import WINDOWS
from fedtopics.model.coherence import count_pairs, federated_coherence
from fedtopics.model.shown_words import READINGS, SHOWN, Reading, choose
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import TextRules, fingerprint, tokens
from tests.helpers.federation import embedded, study, subjects, tokens_of

SIZES = {"east": 60, "north": 40, "south": 25}
USUAL = [0, 10, 110]  # documents, and the windows of NPMI and c_v
LONGER = 10_000  # than any document
GENSIM = {"c_v": "c_v", "npmi": "c_npmi", "u_mass": "u_mass"}


def gensim_scores(
    topics: list[list[str]], texts: list[list[str]], measure: str, window: int | None
) -> list[float]:
    model = CoherenceModel(
        topics=topics,
        texts=texts,
        dictionary=Dictionary(texts),
        coherence=GENSIM[measure],
        window_size=window,
        topn=SHOWN,
        processes=1,
    )
    scores: list[float] = model.get_coherence_per_topic()
    return scores


def with_text(corpora: dict[str, Corpus]) -> dict[str, Corpus]:
    """The same documents as texts, with stop words between; one of them empty."""
    return {
        name: Corpus.of(["", *(" and the ".join(words) for words in corpus.documents.to_pylist())])
        for name, corpus in corpora.items()
    }


def pooled_texts(corpora: dict[str, Corpus], text: TextRules) -> list[list[str]]:
    return [list(words) for batch in tokens(Corpus.pool(corpora.values()), text) for words in batch]


@pytest.mark.parametrize("within", ["windows", "documents"])
@pytest.mark.parametrize("network", ["prodlda", "neurallda", "zeroshottm"])
def test_coherence_is_gensims_of_the_pooled_documents(network: str, within: str) -> None:
    corpora = embedded(subjects(SIZES))
    plan = study(network=network, coherence=within, max_rounds=20)
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    texts = pooled_texts(corpora, plan.text)
    assert list(model.coherence) == ["c_v", "npmi", "u_mass"]
    for measure, usual in WINDOWS.items():
        window = LONGER if within == "documents" and usual else usual
        expected = gensim_scores(model.topics(SHOWN), texts, measure, window)
        np.testing.assert_allclose(model.coherence[measure], expected, rtol=0, atol=1e-9)


def test_coherence_of_texts_is_that_of_their_words() -> None:
    corpora = with_text(subjects(SIZES))
    pattern = TextRules(token_pattern=r"\w+")  # noqa: S106
    plan = study(max_rounds=5).model_copy(update={"text": pattern})
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    texts = pooled_texts(corpora, pattern)
    assert texts[0] == []
    expected = gensim_scores(model.topics(SHOWN), texts, "npmi", WINDOWS["npmi"])
    np.testing.assert_allclose(model.coherence["npmi"], expected, rtol=0, atol=1e-9)


def test_the_reading_is_the_one_that_the_pooled_documents_would_choose() -> None:
    corpora = subjects(SIZES)
    plan = study(max_rounds=20)
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    texts = pooled_texts(corpora, plan.text)
    shown = [model.read(reading, SHOWN) for reading in READINGS]
    scores = [{"npmi": np.array(gensim_scores(t, texts, "npmi", WINDOWS["npmi"]))} for t in shown]
    assert model.reading == READINGS[choose(shown, scores)]


def test_what_the_study_says_is_how_topics_are_read() -> None:
    corpora = subjects(SIZES)
    model = train(study(max_rounds=3, relevance=0.3), corpora)
    assert model.reading == Reading(0.3)
    assert set(model.coherence) == set(WINDOWS)


def test_without_coherence_nothing_is_counted() -> None:
    events: list[dict[str, Any]] = []
    plan = study(max_rounds=3, coherence="nothing")
    model = train(plan, subjects(SIZES), on_event=events.append)
    assert model.coherence == {}
    assert model.reading == Reading(0.6)
    assert "pairs" not in GFedNTMClient.schedule(plan.method)
    told = train(study(max_rounds=3, coherence="nothing", relevance=1.0), subjects(SIZES))
    assert told.reading == Reading(1.0)


# By hand

TEA = [["tea", "with", "milk"], ["tea"], []]
SAND = [["sand", "tea"], ["milk", "tea"]]


def test_counts_of_a_client_by_hand() -> None:
    """Windows of two words: tea with, with milk; tea; the empty one."""
    topics = np.array([[0, 1], [2, 0]])
    words = ["tea", "milk", "sand"]
    reply = count_pairs(Corpus.of(TEA), TextRules(), words, topics, [0, 2])
    assert reply["0"]["windows"] == 3
    assert reply["0"]["pairs"].tolist() == [[[2, 1], [1, 1]], [[0, 0], [0, 2]]]
    assert reply["2"]["windows"] == 4
    assert reply["2"]["pairs"].tolist() == [[[2, 0], [0, 1]], [[0, 0], [0, 2]]]


def test_several_readings_are_scored_in_one_question() -> None:
    """Documents: tea in 4 of 5, milk in 2, both in 2."""
    asked: list[dict[str, Any]] = []

    def ask(template: Any, **payload: Any) -> dict[str, Any]:
        asked.append(payload)
        replies = [count_pairs(Corpus.of(c), TextRules(), **payload) for c in (TEA, SAND)]
        return {
            size: {field: replies[0][size][field] + replies[1][size][field] for field in fields}
            for size, fields in template.items()
        }

    one, other = federated_coherence(ask, [[["tea", "milk"]], [["milk", "tea"]]], "documents")
    assert len(asked) == 1
    assert asked[0]["words"] == ["tea", "milk"]
    assert asked[0]["windows"] == [0]
    assert one["npmi"] == pytest.approx([np.log((2 / 5) / (4 / 5 * 2 / 5)) / -np.log(2 / 5)])
    assert one["u_mass"] == pytest.approx([np.log(2 / 4)])
    assert other["u_mass"] == pytest.approx([np.log(2 / 2)], abs=1e-9)


# What a client counts


def client(**method: Any) -> tuple[GFedNTMClient, str]:
    plan = study(**method)
    corpus = subjects({"a": 30})["a"]
    half: Any = plan.client_half(Site("a", corpus, OPEN_POLICY))
    words = ["a0", "a1", "a2", "common0", "common1", "common2"]
    half.adopt(words, 30, 17.0)
    return half, fingerprint(words)


def test_pairs_of_words_that_a_client_has_hardly_ever_are_none() -> None:
    """Which of the agreed words one document has is nobody's business, nor is it with which."""
    texts = [["oak", "elm", "ash"] for _ in range(20)] + [["oak", "yew"]] * 4
    plan = study()
    half: Any = plan.client_half(Site("a", Corpus.of(texts), Policy(min_documents=1)))
    words = ["oak", "elm", "ash", "yew"]
    half.adopt(words, 24, 3.0)
    reply = half.pairs(fingerprint(words), words, np.array([[0, 1, 3], [3, 2, 1]]), USUAL)
    for size in map(str, USUAL):
        pairs = reply[size]["pairs"]
        assert pairs[0, 0, 1] == 20 and pairs[1, 1, 2] == 20
        assert not pairs[0, 2].any() and not pairs[0, :, 2].any()
        assert not pairs[1, 0].any() and not pairs[1, :, 0].any()


# Word sums


@pytest.mark.parametrize("network", ["prodlda", "combinedtm"])
def test_word_sums_are_theta_times_words_of_the_pooled_documents(network: str) -> None:
    """With the rule that a client speaks only of words that enough of its documents have."""
    corpora = embedded(subjects(SIZES))
    least = {"east": 4, "north": 3, "south": 1}
    policies = {
        name: Policy(min_documents=1, min_document_frequency=n) for name, n in least.items()
    }
    plan = study(network=network, max_rounds=20, precision="float64")
    limits = plan.vocabulary.model_copy(update={"min_document_frequency": 2})
    plan = plan.model_copy(update={"vocabulary": limits})
    model = train(plan, corpora, policies=policies)
    expected = np.zeros((6, len(model.vocabulary)))
    silent = 0
    for name, corpus in corpora.items():
        counts = model.count(corpus).toarray()
        documents = (counts > 0).sum(0)
        rare = documents < max(2, least[name])
        silent += int((rare & (documents > 0)).sum())
        named = {word for word, left_out in zip(model.vocabulary.words, rare, strict=True)
                 if not left_out}  # fmt: skip
        known = Corpus.of([[w for w in text if w in named] for text in tokens_of(corpus)])
        theta = model.transform(known.with_embeddings(corpus.embeddings))
        expected += theta.T @ np.where(rare, 0, counts)
    assert silent > 0, "some words are left out at a client that has them"
    np.testing.assert_allclose(model.word_sums, expected, rtol=1e-5, atol=1e-9)
    assert ((model.word_sums == 0) == (expected == 0)).all()
