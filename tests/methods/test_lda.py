"""Federated LDA is the LDA of the pooled documents, and finds the topics."""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls
from scipy.special import digamma

from fedtopics.errors import StudyError
from fedtopics.estimators import LDA, NMF
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.inference.nmf import rarities, weigh
from fedtopics.inference.variational import solve
from fedtopics.methods.core.plan import Plan, Site, WarmStart
from fedtopics.methods.lda.client import LONGEST, LDAClient
from fedtopics.methods.nmf.client import NMFClient
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.federation import subjects, tokens_of
from tests.helpers.lda import e_step

SIZES = {"east": 400, "north": 150, "south": 60, "tiny": 20, "west": 90}
OPEN = dict.fromkeys(SIZES, OPEN_POLICY)
Drawn = dict[int, list[sparse.csr_array]]


def lda_study(**method: Any) -> Study:
    small: dict[str, Any] = {"name": "lda", "n_components": 6, "batch_size": 64, "max_rounds": 10}
    small["initialisation"] = "random"
    return Study.make(
        method=small | method, vocabulary={"min_document_frequency": 1}, checkpoint_every=3,
        secure=False,
    )  # fmt: skip


def pooled(plan: Study, drawn: Drawn, n_words: int, documents: int) -> NDArray[np.float64]:
    """Hoffman, Blei and Bach's algorithm on the united minibatches."""
    method = plan.method
    k = method.n_components
    topics = np.random.default_rng(plan.seed).gamma(100, 0.01, (n_words, k))
    for number in sorted(drawn):
        x = sparse.vstack(drawn[number]).toarray()
        weights = np.exp(digamma(topics) - digamma(topics.sum(0)))
        _, counts, _ = e_step(x, weights, 1 / k, method.inner_steps)
        new = 1 / k + documents / len(x) * counts
        rho = 1.0 if method.learning == "batch" else (10 + number) ** -0.6
        topics = (1 - rho) * topics + rho * new
    return topics


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """The minibatches that the clients draw, by round."""
    seen: Drawn = {}
    some, every = LDAClient.expected_counts, LDAClient.all_expected_counts

    @wraps(some)
    def asked(self: LDAClient, vocabulary: str, round: int, pseudo_counts: Any) -> Any:  # noqa: A002
        rows = self.minibatch(vocabulary, round)
        seen.setdefault(round, []).append(self.bag[rows])
        return some(self, vocabulary, round, pseudo_counts)

    @wraps(every)
    def asked_all(self: LDAClient, vocabulary: str, round: int, pseudo_counts: Any) -> Any:  # noqa: A002
        seen.setdefault(round, []).append(self.bag[self.usable])
        return every(self, vocabulary, round, pseudo_counts)

    monkeypatch.setattr(LDAClient, "expected_counts", asked)
    monkeypatch.setattr(LDAClient, "all_expected_counts", asked_all)
    return seen


@pytest.mark.parametrize("learning", ["batch", "stochastic"])
def test_ten_passes_equal_one_process(learning: str, drawn: Drawn) -> None:
    plan = lda_study(learning=learning)
    model = train(plan, subjects(SIZES), policies=OPEN)
    assert {len(parts) for parts in drawn.values()} == {5}
    assert len(drawn) == 10
    expected = pooled(plan, drawn, len(model.vocabulary), sum(SIZES.values()))
    found = model.weights["pseudo_counts"]
    assert np.linalg.norm(found - expected) / np.linalg.norm(expected) < 1e-10


def test_batch_learning_does_not_depend_on_whose_documents_they_are() -> None:
    corpora = subjects(SIZES)
    documents = [document for corpus in corpora.values() for document in tokens_of(corpus)]
    order = np.random.default_rng(0).permutation(len(documents))
    mixed = {
        name: Corpus.of([documents[i] for i in part])
        for name, part in zip("abc", np.array_split(order, 3), strict=True)
    }
    plan = lda_study(learning="batch", initialisation="anchors", coherence="nothing")
    one, other, alone = (
        train(plan, clients, policies=dict.fromkeys(clients, OPEN_POLICY))
        for clients in (corpora, mixed, {"all": Corpus.of(documents)})
    )
    for model in (other, alone):
        assert model.vocabulary.words == one.vocabulary.words
        np.testing.assert_allclose(
            model.weights["pseudo_counts"], one.weights["pseudo_counts"], rtol=1e-9
        )


@pytest.mark.parametrize("learning", ["batch", "stochastic"])
def test_permuted_clients_have_the_same_bits(learning: str) -> None:
    corpora, plan = subjects(SIZES), lda_study(learning=learning, initialisation="anchors")
    forth = train(plan, corpora, policies=OPEN)
    back = train(plan, dict(reversed(corpora.items())), policies=OPEN)
    assert same(back, forth)
    assert back.topics() == forth.topics()
    assert back.info == forth.info


def same(one: TopicModel, other: TopicModel) -> bool:
    first, second = (model.weights["pseudo_counts"] for model in (one, other))
    return first.tobytes() == second.tobytes()


def test_starting_with_topics_aligns_them_by_word() -> None:
    start = WarmStart.of((np.array([[3.0, 1.0], [0.0, 4.0]]), ["b", "a"]))
    np.testing.assert_allclose(start.on(["a", "new", "b"]), [[1 / 8, 0, 3 / 8], [4 / 8, 0, 0]])


@pytest.mark.parametrize("given", [3, ([[1.0]], ["a", "b"]), ([[-1.0]], ["a"]), ([1.0], ["a"])])
def test_topics_that_cannot_be_begun_with(given: Any) -> None:
    with pytest.raises(StudyError, match="a pair of beta"):
        LDA(2, start=given).fit([["a", "b"]] * 20)
    with pytest.raises(StudyError, match="3 topics to begin with, the study asks for 2"):
        LDA(2, start=(np.ones((3, 2)), ["a", "b"])).fit([["a", "b"]] * 20)


def test_partial_fit_counts_each_new_document_once() -> None:
    corpora = subjects({"a": 200, "b": 200})
    new = subjects({"a": 130, "c": 30}, seed=1)  # c has not been there before
    model = LDA(
        4, max_rounds=20, batch_size=100, coherence="nothing", min_document_frequency=1
    ).fit_clients(corpora)
    words, before = model.vocabulary_, model.model_
    model.partial_fit_clients(new, policies=dict.fromkeys(new, OPEN_POLICY))
    assert model.vocabulary_ == words
    # Of c's words only those in common are known; a document without any counts nothing.
    used = sum(bool({*doc} & {*words}) for corpus in new.values() for doc in tokens_of(corpus))
    info = {**before.info, "rounds": 21, "seen": before.info["seen"] + used}
    info["continued"] = WarmStart.of(before, "keep").origin
    assert model.model_.info == info
    learned = model.model_.weights["pseudo_counts"] - before.weights["pseudo_counts"]
    known = set(words)
    for column, word in enumerate(words[:30]):
        occurrences = sum(doc.count(word) for corpus in new.values() for doc in tokens_of(corpus))
        assert learned[column].sum().item() == pytest.approx(occurrences), word
    total = sum(w in known for corpus in new.values() for doc in tokens_of(corpus) for w in doc)
    assert learned.sum().item() == pytest.approx(total)


def test_one_document_of_a_million_words_is_not_most_of_the_model() -> None:
    """Of any length beyond the bound, documents say the same: their words' shares."""

    def counted(times: int) -> Any:
        texts = [["oak", "elm"], ["ash", "elm"], ["oak"] * times + ["yew"] * times]
        half = lda_study().client_half(Site("north", Corpus.of(texts), OPEN_POLICY))
        half.vocabulary(places=9)
        half.adopt(["ash", "elm", "oak", "yew"], 3, 2.0)
        weights = np.random.default_rng(0).gamma(1.0, size=(4, 6))
        asked: dict[str, Any] = {"vocabulary": fingerprint(["ash", "elm", "oak", "yew"])}
        return half.all_expected_counts(**asked, round=1, pseudo_counts=weights)["counts"]

    far = counted(500_000)
    assert far.values.sum() == pytest.approx(4 + LONGEST * 2.0)
    np.testing.assert_allclose(far.values, counted(5_000).values, rtol=1e-5)
    assert counted(20).values.sum() == pytest.approx(44.0)


# Federated NMF is the factorisation of the pooled documents, and finds the topics


TOPICS = 4
Floats = NDArray[np.float64]


def nmf_study(**method: Any) -> Study:
    small = {"name": "nmf", "n_components": TOPICS, "max_rounds": 5, "coherence": "nothing"}
    return Study.make(method=small | method, vocabulary={"min_document_frequency": 1})


def trained(study: Study, corpora: dict[str, Corpus], **more: Any) -> TopicModel:
    return train(study, corpora, policies=dict.fromkeys(corpora, OPEN_POLICY), **more)


@pytest.fixture(scope="module")
def documents() -> list[list[str]]:
    return [document for corpus in subjects(SIZES).values() for document in tokens_of(corpus)]


@pytest.fixture(scope="module")
def of_all(documents: list[list[str]]) -> TopicModel:
    return trained(nmf_study(), {"all": Corpus.of(documents)})


def split(documents: list[list[str]], seed: int, n: int) -> dict[str, Corpus]:
    order = np.random.default_rng(seed).permutation(len(documents))
    parts = np.array_split(order, n)
    return {f"c{i}": Corpus.of([documents[j] for j in part]) for i, part in enumerate(parts)}


@pytest.mark.parametrize(("seed", "n"), [(0, 2), (1, 5), (2, 9)])
def test_the_topics_do_not_depend_on_whose_documents_they_are(
    documents: list[list[str]], of_all: TopicModel, seed: int, n: int
) -> None:
    model = trained(nmf_study(), split(documents, seed, n))
    assert model.vocabulary.words == of_all.vocabulary.words
    for name in ("topics", "rarity"):
        np.testing.assert_allclose(model.weights[name], of_all.weights[name], rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.transform(documents), of_all.transform(documents), atol=1e-6)


def plain(x: Floats, rounds: int, topics: Floats) -> Floats:
    """Alternate exact non-negative least squares of documents, and two sweeps of the topics."""
    h = topics.T.copy()
    for _ in range(rounds):
        w = np.array([nnls(h.T, row)[0] for row in x])
        sums, products = w.T @ x, w.T @ w
        for _ in range(2):
            for k in range(len(h)):
                h[k] = np.maximum(0, h[k] + (sums[k] - products[k] @ h) / products[k, k])
        h /= np.linalg.norm(h, axis=1, keepdims=True)
    return h.T


def test_rounds_are_those_of_a_plain_factorisation(
    documents: list[list[str]], of_all: TopicModel
) -> None:
    begun = trained(nmf_study(max_rounds=1), {"all": Corpus.of(documents)})
    x = weigh(begun.count(Corpus.of(documents)), begun.weights["rarity"], "log").toarray()
    expected = plain(x, 4, begun.weights["topics"])
    np.testing.assert_allclose(of_all.weights["topics"], expected, atol=1e-5)


def test_a_documents_shares_are_the_least_squares() -> None:
    rng = np.random.default_rng(0)
    topics = rng.gamma(0.3, size=(30, 5))
    topics /= np.linalg.norm(topics, axis=0)
    x = sparse.csr_array(rng.poisson(0.3, (40, 30)).astype(np.float64))
    points = weigh(x, np.ones(30), "binary")
    found = solve(points, topics)
    expected = np.array([nnls(topics, row)[0] for row in points.toarray()])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (np.linalg.norm(found, axis=1) <= 1 + 1e-12).all()


# What leaves


def half_of(texts: list[list[str]], least: int) -> tuple[NMFClient, Floats, str]:
    study = nmf_study(n_components=2)
    policy = Policy(min_documents=least, min_document_frequency=1)
    plan = Plan(study.method, study.text, study.vocabulary, 0)
    half = NMFClient(plan, Site("a", Corpus.of(texts), policy))
    words = sorted({word for text in texts for word in text})
    half.adopt(words, total=len(texts), length=3.0)
    frequency = np.array([sum(word in text for text in texts) for word in words])
    return half, rarities(frequency, len(texts) + 1, 1.5), half._fingerprint


def sums_of(texts: list[list[str]], topics: Floats, least: int) -> dict[str, Any]:
    half, rarity, fingerprint = half_of(texts, least)
    return half.factor_sums(fingerprint, 1, rarity, topics)


TEXTS = [["ash", "oak"]] * 8 + [["brig", "yawl"]] * 2 + [["ash", "brig"]]
UNIT = np.sqrt(0.5)
OWN = np.array([[UNIT, 0], [0, UNIT], [UNIT, 0], [0, UNIT]])  # ash, brig, oak, yawl


def test_a_topic_that_too_few_documents_are_in_leaves_nothing() -> None:
    all_, few = (sums_of(TEXTS, OWN, least) for least in (1, 5))
    assert (np.diag(all_["products"]) > 0).all()
    np.testing.assert_array_equal(few["sums"][:, 0], all_["sums"][:, 0])
    assert few["products"][0, 0] == all_["products"][0, 0]
    assert not few["sums"][:, 1].any()
    assert not few["products"][1].any()
    assert not few["products"][:, 1].any()


def test_documents_that_hardly_have_a_topic_hide_nobody() -> None:
    """One document has the topic; thirty others have a trace of it, which does not make a crowd."""
    trace = ["ash", "oak", "elm", "fir", "yew"] * 20 + ["brig"]
    reply = sums_of([["brig", "yawl"], *[trace] * 30], topics_of_two(), least=5)
    assert reply["sums"][:, 0].any()
    assert not reply["sums"][:, 1].any()


def topics_of_two() -> Floats:
    """Trees, and ships: ash, brig, elm, fir, oak, yawl, yew."""
    topics = np.array([[1, 0, 1, 1, 1, 0, 1], [0, 1, 0, 0, 0, 1, 0]], np.float64)
    return np.ascontiguousarray((topics / np.linalg.norm(topics, axis=1, keepdims=True)).T)


@pytest.mark.parametrize("repeats", [1, 1000])
def test_a_document_moves_no_sum_by_more_than_one(repeats: int) -> None:
    """However long it is: its words have length 1, and so have its shares, at most."""
    own = ["ash", "brig", "oak", "yawl"] + ["brig"] * repeats
    # Rarity follows from all documents; here the same is told to both.
    half, rarity, fingerprint = half_of([*TEXTS, own], 1)
    with_it = half.factor_sums(fingerprint, 1, rarity, OWN)
    half, _, fingerprint = half_of([*TEXTS, []], 1)
    without = half.factor_sums(fingerprint, 1, rarity, OWN)
    for name in ("sums", "products"):
        moved = np.linalg.norm(with_it[name] - without[name])
        assert 0 < moved <= 1 + 1e-9


# Starts


def test_given_words_make_the_first_topics(documents: list[list[str]], of_all: TopicModel) -> None:
    words = of_all.topics(3)
    seeds = [words[2][:2], words[0][:2]]
    model = NMF(TOPICS, seed_topics=seeds, coherence="nothing", max_rounds=5, random_state=3).fit(
        documents
    )
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
    trees, own = ["ash", "elm", "fir", "oak", "yew"], ["brig", "yawl"]
    half, rarity, fingerprint = half_of([own * 3, *[trees] * 30], 5)
    weights = {"topics": topics_of_two(), "rarity": rarity}
    sums = half.word_sums(fingerprint, weights=weights)["sums"]
    assert sums[0].any()
    assert not sums[1].any()
    before = half.topic_words(fingerprint, rarity, weights["topics"])["sums"]
    assert not before[1].any()


def test_a_model_goes_on_with_its_own_words_on_more_documents_than_it_had() -> None:
    """What the words had before bounds no reply about other documents."""
    plan = nmf_study(n_components=4, max_rounds=5)
    few, many = (subjects(dict.fromkeys("abc", n), seed=n) for n in (30, 60))
    policies = dict.fromkeys("abc", OPEN_POLICY)
    model = train(plan, few, policies=policies)
    further = train(plan, many, policies=policies, start=model, vocabulary="keep")
    assert further.vocabulary.words == model.vocabulary.words
    assert sum(further.documents.values()) > sum(model.documents.values())
