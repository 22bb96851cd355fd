"""The topics of a document: the posterior of LDA, and theta refined and read out."""

import numpy as np
import pytest
from scipy import sparse
from scipy.special import gammaln

from fedtopics.errors import StudyError
from fedtopics.estimators import LDA, ProdLDA
from fedtopics.inference.variational import add_products, infer, solve
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import subjects, tokens_of
from tests.helpers.lda import e_step


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = sparse.csr_array(rng.poisson(0.3, (300, 40)).astype(float))
    weights = rng.dirichlet(np.full(5, 0.3), 40)
    gammas = []
    for threads in (1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        gammas.append(infer(x, weights, alpha=0.2, steps=10).gamma.tobytes())
    assert gammas[0] == gammas[1]


def test_a_posterior_is_that_of_the_papers_loop() -> None:
    rng = np.random.default_rng(0)
    x = rng.poisson(0.5, (30, 12)).astype(float)
    x[4] = 0
    weights = rng.dirichlet(np.full(3, 0.5), 12)
    gamma, counts, bound = e_step(x, weights, 0.1, 15)
    bag = sparse.csr_array(x)
    posterior = infer(bag, weights, alpha=0.1, steps=15)
    np.testing.assert_allclose(posterior.gamma, gamma, rtol=1e-9)
    words = np.flatnonzero(x.sum(0))
    word_counts = posterior.word_counts(weights)
    np.testing.assert_allclose(word_counts, counts[words], rtol=1e-9)
    np.testing.assert_allclose(word_counts.sum(1), x.sum(0)[words], rtol=1e-12)
    assert posterior.bound(bag, 0.1) == pytest.approx(bound, rel=1e-10)
    np.testing.assert_allclose(posterior.read("mean")[4], 1 / 3)
    roots = np.exp(gammaln(gamma + 0.5) - gammaln(gamma))
    np.testing.assert_allclose(
        posterior.read("root"), roots**2 / (roots**2).sum(1, keepdims=True), rtol=1e-9
    )


def test_refined_theta_and_its_readouts() -> None:
    corpora = subjects({"a": 120, "b": 120})
    neural = ProdLDA(4, max_rounds=30, hidden=(16, 16)).fit_clients(corpora).model_
    documents = [*tokens_of(corpora["a"])[:5], []]
    plain = neural.transform(documents)
    mean = neural.transform(documents, refine=True)
    root = neural.transform(documents, refine=True, readout="root")
    bag = neural.count_words(Corpus.of(documents))[:5]
    posterior = infer(
        bag, np.maximum(neural.beta.T, np.exp(-40)), alpha=1.0, steps=20, start=plain[:5]
    )
    np.testing.assert_allclose(mean[:5], posterior.read("mean"), rtol=1e-5)
    np.testing.assert_allclose(root[:5], posterior.read("root"), rtol=1e-5)
    assert (mean[5] == root[5]).all() and (mean[5] == 0.25).all()
    with pytest.raises(StudyError, match="readout needs refine=True"):
        neural.transform(documents, readout="root")
    with pytest.raises(StudyError, match="readout='median' is unknown; choose from mean, root"):
        neural.transform(documents, refine=True, readout="median")


def test_readouts_of_lda() -> None:
    corpora = subjects({"a": 120, "b": 120})
    model = LDA(4, max_rounds=5).fit_clients(corpora).model_
    documents = tokens_of(corpora["a"])[:5]
    plain = model.transform(documents)
    for theta in (
        model.transform(documents, readout="mean"),
        model.transform(documents, refine=True),
    ):
        assert theta.tobytes() == plain.tobytes()
    assert (model.transform(documents, readout="root").max(1) > plain.max(1)).all(), (
        "the mean is drawn to the middle"
    )


def test_many_topics_and_short_documents_do_not_underflow() -> None:
    x = sparse.csr_array(np.eye(3, 5))
    posterior = infer(x, np.full((5, 2000), 1e-6), alpha=1e-4, steps=20)
    np.testing.assert_allclose(posterior.read("mean"), 1 / 2000, rtol=1e-6)
    assert np.isfinite(posterior.bound(x, 1e-4))


def test_compiled_loops_read_no_row_that_is_not_there() -> None:
    bag = sparse.csr_array(np.ones((2, 3)))
    with pytest.raises(ValueError, match="an array for 3 words or documents has 2 rows"):
        infer(bag, np.ones((2, 4)), alpha=0.1, steps=1)
    with pytest.raises(ValueError, match="has 2 rows"):
        solve(bag, np.ones((2, 4)))
    for rows, total in ((1, 3), (2, 2)):
        with pytest.raises(ValueError, match=f"has {min(rows, total)} rows"):
            add_products(bag, np.ones((rows, 4)), np.ones((total, 4)))
