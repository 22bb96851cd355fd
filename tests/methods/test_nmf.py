"""Federated NMF is the factorisation of the pooled documents, and finds the topics."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls

from fedtopics import NMF, Corpus, Study, TopicModel, train
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.inference.nmf import rarities, weigh
from fedtopics.inference.variational import solve
from fedtopics.methods.core.plan import ClientContext, Plan
from fedtopics.methods.nmf.client import NMFClient
from fedtopics.text import rules
from fedtopics.text.rules import TextRules
from tests.helpers.federation import ANY_WORDS, subjects, tokens_of

TOPICS = 4
SIZES = {"east": 400, "north": 150, "south": 60, "tiny": 20, "west": 90}
Floats = NDArray[np.float64]


def nmf_study(**method: Any) -> Study:
    small = {"name": "nmf", "n_components": TOPICS, "max_rounds": 5, "coherence": "nothing"}
    return Study.make(method=small | method, vocabulary=ANY_WORDS)


def trained(study: Study, corpora: dict[str, Corpus], **more: Any) -> TopicModel:
    return train(study, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), **more)


@pytest.fixture(scope="module")
def documents() -> list[list[str]]:
    return [document for corpus in subjects(SIZES).values() for document in tokens_of(corpus)]


@pytest.fixture(scope="module")
def pooled(documents: list[list[str]]) -> TopicModel:
    return trained(nmf_study(), {"all": Corpus.of(documents)})


def split(documents: list[list[str]], seed: int, n: int) -> dict[str, Corpus]:
    parts = np.array_split(np.random.default_rng(seed).permutation(len(documents)), n)
    return {f"c{i}": Corpus.of([documents[j] for j in part]) for i, part in enumerate(parts)}


@pytest.mark.parametrize(("seed", "n"), [(0, 2), (1, 5), (2, 9)])
def test_the_topics_do_not_depend_on_whose_documents_they_are(
    documents: list[list[str]], pooled: TopicModel, seed: int, n: int
) -> None:
    model = trained(nmf_study(), split(documents, seed, n))
    assert model.vocabulary.words == pooled.vocabulary.words
    for name in ("topics", "rarity"):
        np.testing.assert_allclose(model.weights[name], pooled.weights[name], rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.transform(documents), pooled.transform(documents), atol=1e-6)


def plain(x: Floats, rounds: int, topics: Floats) -> Floats:
    """Alternate exact non-negative least squares of documents, and two sweeps of the topics."""
    h = topics.T.copy()
    for _ in range(rounds):
        w = np.array([nnls(h.T, row)[0] for row in x])
        sums = w.T @ x
        products = w.T @ w
        for _ in range(2):
            for k in range(len(h)):
                h[k] = np.maximum(0, h[k] + (sums[k] - products[k] @ h) / products[k, k])
        h /= np.linalg.norm(h, axis=1, keepdims=True)
    return h.T


def test_rounds_are_a_plain_factorisation(documents: list[list[str]], pooled: TopicModel) -> None:
    begun = trained(nmf_study(max_rounds=1), {"all": Corpus.of(documents)})
    x = weigh(begun.count_words(Corpus.of(documents)), begun.weights["rarity"], "log").toarray()
    np.testing.assert_allclose(
        pooled.weights["topics"], plain(x, 4, begun.weights["topics"]), atol=1e-5
    )


def test_a_documents_shares_are_the_least_squares() -> None:
    rng = np.random.default_rng(0)
    topics = rng.gamma(0.3, size=(30, 5))
    topics /= np.linalg.norm(topics, axis=0)
    x = sparse.csr_array(rng.poisson(0.3, (40, 30)).astype(np.float64))
    points = weigh(x, np.ones(30), "binary")
    shares = solve(points, topics)
    np.testing.assert_allclose(
        shares, np.array([nnls(topics, row)[0] for row in points.toarray()]), atol=1e-6
    )
    assert (np.linalg.norm(shares, axis=1) <= 1 + 1e-12).all()


def half_of(texts: list[list[str]], least: int) -> tuple[NMFClient, Floats]:
    study = nmf_study(n_components=2)
    policy = Policy(min_persons=least, min_persons_per_word=1)
    plan = Plan(settings=study.method, text=study.text, limits=study.vocabulary, seed=0)
    half = NMFClient(plan, ClientContext("a", Corpus.of(texts), policy))
    words = sorted({word for text in texts for word in text})
    half.adopt(words, total=len(texts), length=3.0)
    frequency = np.array([sum(word in text for text in texts) for word in words])
    return half, rarities(frequency, len(texts) + 1, 1.5)


def sums_of(texts: list[list[str]], topics: Floats, least: int) -> dict[str, Any]:
    half, rarity = half_of(texts, least)
    return half.function("factor_sums")(1, rarity, topics)


TEXTS = [["ash", "oak"]] * 8 + [["brig", "yawl"]] * 2 + [["ash", "brig"]]
UNIT = np.sqrt(0.5)
OWN = np.array([[UNIT, 0], [0, UNIT], [UNIT, 0], [0, UNIT]])  # ash, brig, oak, yawl


def test_a_topic_that_too_few_documents_are_in_leaves_nothing() -> None:
    all_, few = (sums_of(TEXTS, OWN, least) for least in (1, 5))
    assert (np.diag(all_["products"]) > 0).all()
    np.testing.assert_array_equal(few["sums"][:, 0], all_["sums"][:, 0])
    assert few["products"][0, 0] == all_["products"][0, 0]
    assert not few["sums"][:, 1].any()
    assert not few["products"][1].any() and not few["products"][:, 1].any()


def test_documents_that_hardly_have_a_topic_hide_nobody() -> None:
    """One document has the topic; thirty others have a trace of it, which does not make a crowd."""
    trace = ["ash", "oak", "elm", "fir", "yew"] * 20 + ["brig"]
    reply = sums_of([["brig", "yawl"], *[trace] * 30], topics_of_two(), least=5)
    assert reply["sums"].any(0).tolist() == [True, False]


def topics_of_two() -> Floats:
    """Trees, and ships: ash, brig, elm, fir, oak, yawl, yew."""
    topics = np.array([[1, 0, 1, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1, 0]], np.float64)
    return np.ascontiguousarray((topics / np.linalg.norm(topics, axis=1, keepdims=True)).T)


@pytest.mark.parametrize("repeats", [1, 1000])
def test_a_document_moves_no_sum_by_more_than_one(repeats: int) -> None:
    """However long it is: its words have length 1, and so have its shares, at most."""
    # Rarity follows from all documents; here the same is told to both.
    half, rarity = half_of([*TEXTS, ["ash", "brig", "oak", "yawl"] + ["brig"] * repeats], 1)
    with_it = half.function("factor_sums")(1, rarity, OWN)
    half, _ = half_of([*TEXTS, []], 1)
    without = half.function("factor_sums")(1, rarity, OWN)
    for name in ("sums", "products"):
        assert 0 < np.linalg.norm(with_it[name] - without[name]) <= 1 + 1e-9


def test_given_words_make_the_first_topics(documents: list[list[str]], pooled: TopicModel) -> None:
    words = pooled.topics(3)
    seeds = [words[2][:2], words[0][:2]]
    how: Any = {"coherence": "nothing", "max_rounds": 5, "random_state": 3}
    model = NMF(TOPICS, seed_topics=seeds, **how).fit(documents)
    assert set(seeds[0]) <= set(model.model_.topics(5)[0])
    assert set(seeds[1]) <= set(model.model_.topics(5)[1])
    unknown = NMF(TOPICS, seed_topics=[["no-such-word"]], coherence="nothing")
    with pytest.raises(StudyError, match="No word of topic 0 of seed_topics"):
        unknown.fit(documents)


def test_words_that_all_documents_have_are_refused() -> None:
    with pytest.raises(StudyError, match="Every agreed word is in every document"):
        rarities(np.array([5, 5]), 5, 1.5)
    np.testing.assert_array_equal(rarities(np.array([5, 1]), 5, 0.0), 1)


def test_words_of_a_topic_that_one_document_has_do_not_leave_at_the_end() -> None:
    """What the rounds withhold, the last sums do not say either."""
    half, rarity = half_of([["brig", "yawl"] * 3, *[["ash", "elm", "fir", "oak", "yew"]] * 30], 5)
    weights = {"topics": topics_of_two(), "rarity": rarity}
    assert half.function("word_sums")(weights=weights)["sums"].any(1).tolist() == [True, False]
    assert not half.function("topic_words")(rarity, weights["topics"])["sums"][1].any()


def test_a_model_goes_on_with_its_own_words_on_more_documents_than_it_had() -> None:
    """What the words had before bounds no reply about other documents."""
    plan = nmf_study(n_components=4, max_rounds=5)
    few, many = (subjects(dict.fromkeys("abc", n), seed=n) for n in (30, 60))
    policies = dict.fromkeys("abc", OPEN_POLICY)
    model = train(plan, few, policies=policies)
    further = train(plan, many, policies=policies, start=model, vocabulary="keep")
    assert further.vocabulary.words == model.vocabulary.words
    assert sum(further.documents.values()) > sum(model.documents.values())


def test_stop_words_are_read_once_for_all_seed_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()
    monkeypatch.setattr(rules, "stop_words", lambda name: read.append(name) or ["the"])
    settings = nmf_study(n_components=300, seed_topics=[["The", f"Oak{n}"] for n in range(300)])
    seeds = settings.method.read_by(TextRules(token_pattern="words-and-digits")).seed_topics  # noqa: S106
    assert (seeds[0], seeds[299], read) == (("oak0",), ("oak299",), ["english"])
