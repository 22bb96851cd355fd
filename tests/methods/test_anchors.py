"""First topics from anchors: sums of clients, hand-made and drawn."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fedtopics import Corpus, Study, train
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.program import client_of
from fedtopics.methods.core.plan import ClientContext
from fedtopics.methods.lda.first_topics import WIDTH, anchor_topics, project
from tests.helpers.clusters import overheard
from tests.helpers.federation import ANY_WORDS, assert_same, embedded, study, subjects, tokens_of
from tests.helpers.methods import METHODS


def summed(parts: list[sparse.csr_array]) -> dict[str, Any]:
    sums = [project(part, 0) for part in parts]
    return {field: sum(one[field] for one in sums) for field in sums[0]}


def test_projections_are_those_of_the_co_occurrence() -> None:
    x = np.random.default_rng(0).poisson(0.7, (40, 9)).astype(float)
    x[3] = 0  # no word, so no pair
    x[4] = np.eye(9)[2]  # one word
    x[5, 1:] = 0  # perhaps one word
    expected = np.zeros((9, 9))
    mass = np.zeros(9)
    for row in x:
        n = row.sum()
        if n > 1:
            expected += (np.outer(row, row) - np.diag(row)) / (n * (n - 1))
            mass += row / n
    directions = np.random.default_rng([0, WIDTH]).standard_normal((9, WIDTH)) / np.sqrt(WIDTH)
    sums = project(sparse.csr_array(x), 0)
    np.testing.assert_allclose(sums["projections"], expected @ directions, atol=1e-12)
    np.testing.assert_allclose(sums["mass"], mass)
    np.testing.assert_allclose(sums["mass"], expected.sum(1))
    np.testing.assert_array_equal(sums["frequency"], (x[x.sum(1) > 1] > 0).sum(0))


def test_topics_with_a_word_of_their_own_are_recovered() -> None:
    """Two topics: each has an anchor, and they share the other words in known parts."""
    rng = np.random.default_rng(0)
    beta = np.array([[0.3, 0.0, 0.4, 0.2, 0.1], [0.0, 0.2, 0.1, 0.2, 0.5]])
    theta = rng.dirichlet(np.full(2, 0.3), 20_000)
    x = sparse.csr_array(rng.multinomial(30, theta @ beta).astype(float))
    topics = anchor_topics(summed([x]), 2, 20_000)
    np.testing.assert_allclose(topics.sum(1), 1)
    np.testing.assert_allclose(topics[np.argsort(-topics[:, 0])], beta, atol=0.02)


def test_rare_words_are_no_anchors_where_there_are_others() -> None:
    x = np.random.default_rng(0).multinomial(20, np.full(12, 1 / 12), 500).astype(float)
    odd = np.zeros((500, 3))
    odd[[0, 1, 2], [0, 1, 2]] = 5  # each in one document: as far from all others as can be
    rows = anchor_topics(summed([sparse.csr_array(np.hstack([x, odd]))]), 2, 500)
    assert (rows[:, 12:].sum(1) < 0.05).all()


def test_rare_words_of_a_client_are_left_out() -> None:
    plan = study(initialisation="anchors")
    policy = Policy(min_persons=1, min_persons_per_word=20)
    half: Any = client_of(plan, ClientContext("a", subjects({"a": 60})["a"], policy))
    half.adopt(sorted({*half.counts.words}), 60, 10.0)
    reply = half.function("projections")()
    frequency = np.bincount(half.bag.indices, minlength=half.bag.shape[1])
    rare = frequency < 20
    assert rare.any() and not rare.all()
    assert reply["documents"] == 60
    np.testing.assert_array_equal(reply["frequency"], np.where(rare, 0, frequency))
    assert not reply["projections"][rare].any() and not reply["mass"][rare].any()


@pytest.mark.parametrize("network", ["prodlda", "neurallda"])
def test_networks_begin_with_them(network: str) -> None:
    corpora = subjects(dict.fromkeys("abc", 200))
    plan = study(
        network=network,
        initialisation="anchors",
        n_components=3,
        max_rounds=1,
        learning_rate=1e-9,
        normalise_topics=False,
        word_bias=False,
        coherence="nothing",
    )
    model = train(plan, corpora, policies=dict.fromkeys("abc", OPEN_POLICY))
    logits = model.weights["beta_logits"].double().numpy()
    np.testing.assert_allclose(logits.mean(1), 0, atol=1e-6)
    topics = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    names = np.array([word.rstrip("0123456789") for word in model.vocabulary.words])
    shares = np.array([topics[:, names == name].sum(1) for name in "abc"])
    assert sorted(shares.argmax(0)) == [0, 1, 2], "a topic a client: each has words of its own"


# No reply says anything of a word that a client did not name itself, whoever made it agreed


RARE = "quetzalcoatl"
CASES = METHODS | {
    "gfedntm, own statistics": {"norm": "local"},
    "gfedntm, from anchors": {"initialisation": "anchors"},
    "gfedntm, from a mixture": {"initialisation": "mixture", "network": "combinedtm"},
    "gfedntm, validated": {"validation_share": 0.2, "validate_every": 1},
    "k-fed": {"name": "kmeans", "algorithm": "k-fed", "representation": "tfidf"},
    "kmeans of words": {"name": "kmeans", "representation": "bow", "max_rounds": 4},
    "flda": {"name": "flda", "max_rounds": 1, "min_new_documents": 10},
}


def study_of(case: str) -> Study:
    method: dict[str, Any] = {"n_components": 4, "coherence": "documents"}
    if "name" not in CASES[case]:
        method |= {
            "name": "gfedntm",
            "hidden": [8, 8],
            "embedding": {"dimension": 7},
            "max_rounds": 3,
        }
    method |= CASES[case]
    if method["name"] in ("gfedntm", "lda"):
        method["batch_size"] = 300  # all documents are in each
    return Study.make(method=method, vocabulary=ANY_WORDS)


def corpora_of(documents_with_it: int) -> dict[str, Corpus]:
    """Three clients; two have the word often, and the first one in so many documents."""
    corpora = embedded(subjects(dict.fromkeys("abc", 90)))
    for name, number in {"a": documents_with_it, "b": 40, "c": 40}.items():
        texts = [
            [*text, RARE] if row < number else text
            for row, text in enumerate(tokens_of(corpora[name]))
        ]
        corpora[name] = replace(corpora[name], documents=Corpus.of(texts).documents)
    return corpora


def said(case: str, documents_with_it: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """What the first client says, and the model."""
    with monkeypatch.context() as patch:
        messages = overheard(patch)
        model = train(study_of(case), corpora_of(documents_with_it))
    return [(function, reply) for name, function, _, reply in messages.calls if name == "a"], model


@pytest.mark.parametrize("case", CASES)
def test_a_rare_word_of_a_document_changes_no_bit_of_a_reply(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the word in none, one or four of its documents; in five it may speak of it."""
    if case == "flda":
        pytest.importorskip("tomotopy")
    without, model = said(case, 0, monkeypatch)
    assert RARE in model.vocabulary.words, "the others made it agreed"
    for number in (1, 4):
        replies, _ = said(case, number, monkeypatch)
        assert [function for function, _ in replies] == [function for function, _ in without]
        for (_, reply), (_, expected) in zip(replies, without, strict=True):
            assert_same(reply, expected)
    aloud, _ = said(case, 5, monkeypatch)
    assert repr(aloud) != repr(without)
