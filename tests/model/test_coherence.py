"""Federated coherence and word sums are those of the pooled documents."""

from itertools import combinations_with_replacement
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedtopics import Corpus, train
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of
from fedtopics.methods.core.final_model import ALL, CHOOSING, SCORED, draw_halves
from fedtopics.methods.core.plan import ClientContext, Secret
from fedtopics.metrics import WINDOWS
from fedtopics.model.coherence import count_pairs, federated_coherence, federated_npmi
from fedtopics.model.shown_words import (
    CANDIDATES,
    DEFAULT_RANKING,
    WORD_RANKINGS,
    WORDS_SHOWN,
    choose,
)
from fedtopics.text.rounding import steps_of
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words, tokens
from tests.helpers.federation import embedded, study, subjects, tokens_of
from tests.helpers.gensim_scores import gensim_scores

SIZES = {"east": 60, "north": 40, "south": 25}
SIZES_OF_WINDOWS = [0, 10, 110]  # documents, and the windows of NPMI and c_v
LONGER = 10_000  # than any document


def site(name: str, corpus: Corpus, least: int = 1) -> Any:
    """What of a client decides which documents are in which half; the study's seed is 0."""
    return SimpleNamespace(corpus=corpus, secret=Secret.from_seed(0, name), min_persons=least)


def half_of(corpora: dict[str, Corpus], part: int, least: int = 1) -> dict[str, Corpus]:
    """The clients of a study whose seed is 0."""
    return {
        name: corpus.take(draw_halves(site(name, corpus, least))[part])
        for name, corpus in corpora.items()
    }


def pooled_texts(corpora: dict[str, Corpus], text: TextRules) -> list[list[str]]:
    return [list(words) for batch in tokens(Corpus.pool(corpora.values()), text) for words in batch]


@pytest.mark.parametrize(
    ("network", "within"), [("prodlda", "windows"), ("zeroshottm", "documents")]
)
def test_coherence_is_gensims_of_documents_that_did_not_choose(network: str, within: str) -> None:
    corpora = embedded(subjects(SIZES))
    plan = study(network=network, coherence=within, max_rounds=20)
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    texts = pooled_texts(half_of(corpora, SCORED), plan.text)
    assert list(model.coherence) == ["c_v", "npmi", "u_mass"]
    for measure, window in WINDOWS.items():
        size = LONGER if within == "documents" and window else window
        expected = gensim_scores(model.topics(WORDS_SHOWN), texts, measure, size)
        np.testing.assert_allclose(model.coherence[measure], expected, rtol=0, atol=1e-9)


def test_the_reading_is_the_one_that_the_pooled_documents_would_choose() -> None:
    corpora = subjects(SIZES)
    plan = study(max_rounds=20)
    model = train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    pooled = Corpus.pool(half_of(corpora, CHOOSING).values())

    def ask(**payload: Any) -> dict[str, Any]:
        return count_pairs(count_words(pooled, plan.text), **payload)

    columns = [model.columns(reading, CANDIDATES) for reading in WORD_RANKINGS]
    words = [[model.vocabulary.words[i] for i in row] for shown in columns for row in shown]
    npmi: Any = federated_npmi(ask, words, "windows")
    assert model.word_ranking == choose(WORD_RANKINGS, columns, np.split(npmi, len(WORD_RANKINGS)))
    assert model.word_ranking.first


def test_documents_that_are_scored_do_not_choose() -> None:
    """Sorted by word they train the same model, and other words of it are near each other."""
    corpora = subjects(SIZES)
    others = {}
    for name, corpus in corpora.items():
        texts = tokens_of(corpus)
        for row in draw_halves(site(name, corpus))[SCORED]:
            texts[row].sort()
        others[name] = Corpus.of(texts)
    plan = study(max_rounds=20)
    policies = dict.fromkeys(SIZES, OPEN_POLICY)
    one, other = (train(plan, documents, policies=policies) for documents in (corpora, others))
    np.testing.assert_array_equal(one.beta, other.beta)
    assert one.word_ranking == other.word_ranking
    assert one.coherence["npmi"].mean() != other.coherence["npmi"].mean()


def test_where_no_client_has_enough_documents_for_halves_all_score() -> None:
    """60, 40 and 25 documents, where a sum has to be over 31 or as many as there are."""
    corpora = subjects(SIZES)
    policies = {name: Policy(min_persons=min(size, 31)) for name, size in SIZES.items()}
    model = train(study(max_rounds=3), corpora, policies=policies)
    assert model.word_ranking == DEFAULT_RANKING
    assert set(model.coherence) == set(WINDOWS)
    some = train(study(max_rounds=3), corpora, policies=policies | {"east": Policy()})
    assert some.word_ranking != DEFAULT_RANKING


TEA = [["tea", "with", "milk"], ["tea"], []]
SAND = [["sand", "tea"], ["milk", "tea"]]


def test_counts_of_a_client_by_hand() -> None:
    """Windows of two words: tea with, with milk; tea; the empty one."""
    pairs = np.array([[0, 0], [0, 1], [1, 1], [0, 2]])
    reply = count_pairs(
        count_words(Corpus.of(TEA), TextRules()), ["tea", "milk", "sand"], pairs, windows=[0, 2]
    )
    assert reply["0"]["windows"] == 3
    assert reply["0"]["pairs"].tolist() == [2, 1, 1, 0]
    assert reply["2"]["windows"] == 4
    assert reply["2"]["pairs"].tolist() == [2, 0, 1, 0]


def counting(asked: list[dict[str, Any]]) -> Any:
    def ask(**payload: Any) -> dict[str, Any]:
        asked.append(payload)
        counted = (count_words(Corpus.of(texts), TextRules()) for texts in (TEA, SAND))
        tea, sand = (count_pairs(word_counts, **payload) for word_counts in counted)
        return {size: {n: of[n] + sand[size][n] for n in of} for size, of in tea.items()}

    return ask


def test_topics_are_scored_in_one_question_and_a_pair_counted_once() -> None:
    """Documents: tea in 4 of 5, milk in 2, both in 2."""
    asked: list[dict[str, Any]] = []
    scores = federated_coherence(counting(asked), [["tea", "milk"], ["milk", "tea"]], "documents")
    assert len(asked) == 1
    assert asked[0]["words"] == ["tea", "milk"]
    assert asked[0]["pairs"].tolist() == [[0, 0], [0, 1], [1, 1]]
    assert asked[0]["windows"] == [0]
    npmi = np.log((2 / 5) / (4 / 5 * 2 / 5)) / -np.log(2 / 5)
    assert scores["npmi"] == pytest.approx([npmi, npmi])
    assert scores["u_mass"] == pytest.approx([np.log(2 / 4), np.log(2 / 2)], abs=1e-9)


@pytest.mark.parametrize("expected_share", [0.0, 20.0])
def test_words_that_were_hardly_counted_are_left_out_of_a_score(expected_share: float) -> None:
    """Those in no document, and here milk: in 2 of 5 documents, and known to be in 100."""
    topics = [["tea", "oak", "milk"], ["tea", "oak", "elm"]]
    counted = federated_coherence(
        counting([]), topics, "documents", np.full((2, 3), expected_share)
    )
    both = np.log((2 / 5) / (4 / 5 * 2 / 5)) / -np.log(2 / 5)
    assert counted["npmi"] == pytest.approx(
        [np.nan if expected_share else both, np.nan], nan_ok=True
    )


WORDS = ["oak", "elm", "ash", "yew"]
PAIRS = np.array(list(combinations_with_replacement(range(4), 2)))


def client(texts: list[list[str]], **policy: int) -> Any:
    half: Any = client_of(
        study(), ClientContext("a", Corpus.of(texts), Policy(**{"min_persons": 1, **policy}))
    )
    half.adopt(WORDS, len(texts), 3.0)
    return half


def counts(half: Any, part: int) -> dict[tuple[str, str], int]:
    """How many documents hold two words, and how many there are under a pair of nothing."""
    reply = half.function("word_pairs")(WORDS, pairs=PAIRS, windows=SIZES_OF_WINDOWS, parts=[part])
    counted = reply[f"{part}/0"]["pairs"].tolist()
    pairs = {(WORDS[i], WORDS[k]): n for (i, k), n in zip(PAIRS, counted, strict=True)}
    return pairs | {("", ""): reply["documents"]}


def test_pairs_of_words_that_a_client_has_hardly_ever_are_none() -> None:
    """Which of the agreed words one document has is nobody's business, nor is it with which."""
    counted = counts(client([["oak", "elm", "ash"] for _ in range(20)] + [["oak", "yew"]] * 4), ALL)
    assert counted["oak", "elm"] == counted["ash", "ash"] == 20
    assert [n for pair, n in counted.items() if "yew" in pair] == [0] * 4


def test_the_halves_are_all_documents_and_the_same_each_time() -> None:
    half = client([["oak", "elm"]] * 30 + [["ash"]] * 31)
    chosen, scored, everything = (counts(half, part) for part in (CHOOSING, SCORED, ALL))
    assert {pair: chosen[pair] + scored[pair] for pair in chosen} == everything
    assert (chosen["", ""], scored["", ""]) == (30, 31)
    half.attempt = 2
    assert counts(half, CHOOSING) == chosen
    drawn = draw_halves(half)
    assert sorted([*drawn[0], *drawn[1]]) == list(range(61))


def test_a_client_of_too_few_documents_for_halves_only_scores() -> None:
    """A half of nine documents, where ten are asked for: it would be a sum over fewer."""
    half = client([["oak", "elm"]] * 19, min_persons=10)
    assert not any(counts(half, CHOOSING).values())
    assert counts(half, SCORED) == counts(half, ALL)
    assert counts(client([["oak", "elm"]] * 20, min_persons=10), CHOOSING)["oak", "elm"] == 10


@pytest.mark.parametrize("seed", range(8))
def test_a_word_counts_in_halves_if_each_has_enough_documents_with_it(seed: int) -> None:
    """Else a half's counts were of fewer, or those of all less the other half's."""
    rng = np.random.default_rng(seed)
    share = [1.0, 0.2, 0.12, 0.08]  # of 60 documents: some halves have too few of the last
    texts = [
        [word for word, p in zip(WORDS, share, strict=True) if rng.random() < p] for _ in range(60)
    ]
    half = client(texts)
    everything = {word: sum(word in text for text in texts) for word in WORDS}
    for part in (CHOOSING, SCORED):
        counted = counts(half, part)
        for word in WORDS:
            here = counted[word, word]
            assert here == 0 or (here >= 5 and everything[word] - here >= 5)
            if not here:
                assert not any(n for pair, n in counted.items() if word in pair)
    assert counts(half, CHOOSING)["oak", "oak"] == 30


@pytest.mark.parametrize("network", ["prodlda", "combinedtm"])
def test_word_sums_are_theta_times_words_of_the_pooled_documents(network: str) -> None:
    """With the rule that a client speaks only of words that enough of its documents have."""
    corpora = embedded(subjects(SIZES))
    least = {"east": 4, "north": 3, "south": 1}
    open_ = Policy(min_persons=1)
    policies = {n: open_.model_copy(update={"min_persons_per_word": m}) for n, m in least.items()}
    plan = study(network=network, max_rounds=20, precision="float64")
    plan = plan.model_copy(
        update={"vocabulary": plan.vocabulary.model_copy(update={"min_persons_per_word": 2})}
    )
    model = train(plan, corpora, policies=policies)
    expected = np.zeros((6, len(model.vocabulary)))
    silent = 0
    for name, corpus in corpora.items():
        counts = model.count_words(corpus).toarray()
        documents = (counts > 0).sum(0)
        rare = documents < max(2, least[name])
        silent += int((rare & (documents > 0)).sum())
        named = {*np.array(model.vocabulary.words)[~rare]}
        frequent = Corpus.of([[w for w in text if w in named] for text in tokens_of(corpus)])
        theta = model.transform(frequent.with_embeddings(corpus.embeddings))
        expected += theta.T @ np.where(rare, 0, counts)
    assert silent > 0, "some words are left out at a client that has them"
    totals = expected.sum(0)
    rounded = model.word_sums.sum(0)
    assert (np.abs(rounded - totals) < 2 * steps_of(totals)).all()
    expected *= rounded / np.maximum(totals, 1)
    assert np.corrcoef(model.word_sums.ravel(), expected.ravel())[0, 1] > 0.85, "rounded by lot"
