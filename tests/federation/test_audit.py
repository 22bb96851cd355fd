"""Attacks on one's own study: they find what is to be found, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from fedtopics.errors import DataError
from fedtopics.federation import audit as audits
from fedtopics.federation.audit import Guess, allowed, audit, guess, likelihood_ratios
from fedtopics.federation.study import Study
from fedtopics.privacy import Privacy
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import subjects


def test_a_guess_by_hand() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 0.0]])
    members = np.array([[True, True, False, False]])
    found = guess(scores, members)
    assert (found.auc, found.found, found.documents) == (0.75, 0.5, 4)


def test_ratios_find_a_difference_that_each_document_has_of_its_own() -> None:
    """Where documents differ by far more than membership does, the scores alone say nothing."""
    rng = np.random.default_rng(0)
    members = rng.random((16, 400)) < 0.5
    scores = 10 * rng.normal(size=400) + members + 0.5 * rng.normal(size=members.shape)
    assert guess(scores, members).auc < 0.55
    assert guess(likelihood_ratios(scores, members), members).auc > 0.88  # Phi(2 / sqrt 2) = .92


def test_nothing_is_found_where_nothing_is() -> None:
    rng = np.random.default_rng(1)
    members = rng.random((16, 400)) < 0.5
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(guess(ratios, members).auc - 0.5) < 0.02
    assert guess(ratios, members).found < 0.02


def test_nothing_is_found_where_nothing_is_in_few_pairs() -> None:
    """A document that is in a model has fewer others with it, and their mean is less sure."""
    rng = np.random.default_rng(2)
    first = rng.random((3, 4000)) < 0.5
    members = np.stack([first, ~first], axis=1).reshape(6, -1)
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(guess(ratios, members).auc - 0.5) < 0.02


def test_what_a_bound_allows() -> None:
    """At epsilon 1 and delta 1e-6 mu is .237."""
    most = allowed(Privacy(epsilon=1))
    assert most is not None
    assert most.auc == pytest.approx(norm.cdf(0.2366 / np.sqrt(2)), abs=0.001)
    assert most.found == pytest.approx(norm.cdf(norm.ppf(0.01) + 0.2366), abs=0.001)
    assert allowed(None) is None
    more = allowed(Privacy(epsilon=1, unit="author", most_documents=1))
    assert more is not None
    assert more.auc > most.auc, "a document of an author is replaced by another one"


def test_many_topics_of_few_documents_tell_who_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "ASKED", 40)
    corpus = Corpus.pool(list(subjects({"a": 60, "b": 60}).values()))
    method = {"name": "lda", "n_components": 40, "learning": "batch", "max_rounds": 5}
    plan = Study.make(
        method={**method, "coherence": "nothing"}, vocabulary={"min_document_frequency": 1}
    ).with_clients(["north", "south"])
    done: list[int] = []
    found = audit(plan, corpus, 6, on_progress=lambda number, _: done.append(number))
    assert done == [1, 2, 3, 4, 5, 6]
    assert found.members["model and others"].auc > 0.6
    assert found.members["transcript, canaries"].documents == 6 * 12
    assert found.members["all but one known"] == Guess(1, 1, 6 * 40)
    assert found.read.wholly == found.read.documents
    assert found.read.guessing < 0.8


def test_too_few_documents() -> None:
    plan = Study(method={"name": "lda"}).with_clients(["north", "south"])
    with pytest.raises(DataError, match="give more documents"):
        audit(plan, subjects({"a": 50})["a"])


def test_whose_documents_are_is_known_and_canaries_are_nobodys() -> None:
    texts = Corpus.of(["oak elm", "elm fir", "fir ash"] * 10)
    corpus = replace(texts, authors=pa.chunked_array([["ada", "bo", ""] * 10]))
    rng = np.random.default_rng(0)
    both, is_canary = audits._with_canaries(corpus, Study(method={"name": "lda"}), rng)
    assert is_canary.sum() == 3
    assert both.authors is not None
    assert both.authors.to_pylist() == ["ada", "bo", ""] * 10 + [""] * 3
