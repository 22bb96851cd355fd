"""Federated LDA is the LDA of the pooled documents, and finds the topics."""

from collections import Counter
from functools import wraps
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import digamma

from fedtopics import LDA, Corpus, Study, train
from fedtopics.errors import StudyError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.program import client_of
from fedtopics.methods.core.plan import ClientContext, WarmStart
from fedtopics.methods.lda.method import LENGTH_CAP, LDAClient
from fedtopics.text.rounding import rounded_by_word, steps_of
from tests.helpers.federation import ANY_WORDS, subjects, tokens_of
from tests.helpers.lda import e_step

SIZES = {"east": 400, "north": 150, "south": 60, "tiny": 20, "west": 90}
Drawn = dict[int, list[sparse.csr_array]]


def lda_study(**method: Any) -> Study:
    small = {
        "name": "lda",
        "n_components": 6,
        "batch_size": 64,
        "max_rounds": 10,
        "initialisation": "random",
    }
    return Study.make(
        method=small | method,
        vocabulary=ANY_WORDS,
        checkpoint_every=3,
        aggregation="plain",
    )


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
    some = LDAClient.expected_counts
    every = LDAClient.all_expected_counts

    @wraps(some)
    def asked(self: LDAClient, **given: Any) -> Any:
        seen.setdefault(given["round"], []).append(
            self.bag[self.minibatches.draw(given["round"], self.attempt)]
        )
        return some(self, **given)

    @wraps(every)
    def asked_all(self: LDAClient, **given: Any) -> Any:
        seen.setdefault(given["round"], []).append(self.bag[self.usable])
        return every(self, **given)

    monkeypatch.setattr(LDAClient, "expected_counts", asked)
    monkeypatch.setattr(LDAClient, "all_expected_counts", asked_all)
    return seen


@pytest.mark.parametrize("learning", ["batch", "stochastic"])
def test_ten_passes_equal_one_process(learning: str, drawn: Drawn) -> None:
    plan = lda_study(learning=learning)
    model = train(plan, subjects(SIZES), policies=dict.fromkeys(SIZES, OPEN_POLICY))
    assert {len(parts) for parts in drawn.values()} == {5}
    assert len(drawn) == 10
    expected = pooled(plan, drawn, len(model.vocabulary), sum(SIZES.values()))
    prior = 1 / plan.method.n_components
    expected = prior + rounded_by_word((expected - prior).T, model.vocabulary.occurrences).T
    learned = model.weights["pseudo_counts"]
    assert np.linalg.norm(learned - expected) / np.linalg.norm(expected) < 1e-10


def test_batch_learning_does_not_depend_on_whose_documents_they_are() -> None:
    corpora = subjects(SIZES)
    documents = [document for corpus in corpora.values() for document in tokens_of(corpus)]
    order = np.random.default_rng(0).permutation(len(documents))
    parts = zip("abc", np.array_split(order, 3), strict=True)
    mixed = {name: Corpus.of([documents[i] for i in part]) for name, part in parts}
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


def test_starting_with_topics_aligns_them_by_word() -> None:
    start = WarmStart.of((np.array([[3.0, 1.0], [0.0, 4.0]]), ["b", "a"]))
    np.testing.assert_allclose(start.on(["a", "new", "b"]), [[1 / 8, 0, 3 / 8], [4 / 8, 0, 0]])


@pytest.mark.parametrize("given", [3, ([[1.0]], ["a", "b"]), ([[-1.0]], ["a"]), ([1.0], ["a"])])
def test_topics_that_cannot_be_begun_with(given: Any) -> None:
    with pytest.raises(StudyError, match="a pair of beta"):
        LDA(2, start=given).fit([["a", "b"]] * 20)
    with pytest.raises(StudyError, match="but the study has n_components = 2"):
        LDA(2, start=(np.ones((3, 2)), ["a", "b"])).fit([["a", "b"]] * 20)


def test_partial_fit_counts_each_new_document_once() -> None:
    corpora = subjects({"a": 200, "b": 200})
    new = subjects({"a": 130, "c": 30}, seed=1)  # c has not been there before
    how: Any = {"max_rounds": 20, "min_clients_per_word": 1, "min_persons_per_word": 1}
    model = LDA(4, coherence="nothing", **how).fit_clients(corpora)
    words = model.vocabulary_
    before = model.model_
    model.partial_fit_clients(new, policies=dict.fromkeys(new, OPEN_POLICY))
    assert model.vocabulary_ == words
    # Of c's words only those in common are known; a document without any counts nothing.
    used = sum(bool({*doc} & {*words}) for corpus in new.values() for doc in tokens_of(corpus))
    assert model.model_.info == {
        **before.info,
        "rounds": 21,
        "seen": before.info["seen"] + used,
        "continued": WarmStart.of(before, "keep").origin,
    }
    counts = model.model_.weights["pseudo_counts"].sum(1)
    learned = counts - before.weights["pseudo_counts"].sum(1)
    added = Counter(w for corpus in new.values() for doc in tokens_of(corpus) for w in doc)
    occurrences = np.array([added[word] for word in words])
    # Both models are rounded.
    assert (np.abs(learned - occurrences) < 2 * steps_of(counts)).all()
    assert learned.sum() == pytest.approx(occurrences.sum(), rel=0.2), "which is as often down"


def test_one_document_of_a_million_words_is_not_most_of_the_model() -> None:
    """Of any length beyond the bound, documents say the same: their words' shares."""

    def counted(times: int) -> Any:
        texts = [["oak", "elm"], ["ash", "elm"], ["oak"] * times + ["yew"] * times]
        half = client_of(lda_study(), ClientContext("north", Corpus.of(texts), OPEN_POLICY))
        half.vocabulary(places=9, most=9)
        half.adopt(["ash", "elm", "oak", "yew"], 3, 2.0)
        weights = np.random.default_rng(0).gamma(1.0, size=(4, 6))
        return half.all_expected_counts(round=1, pseudo_counts=weights)["counts"]

    far = counted(500_000)
    assert far.values.sum() == pytest.approx(4 + LENGTH_CAP * 2.0)
    np.testing.assert_allclose(far.values, counted(5_000).values, rtol=1e-5)
    assert counted(20).values.sum() == pytest.approx(44.0)
