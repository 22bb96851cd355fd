"""An attack on one's own study: it finds what is to be found, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from fedtopics.errors import DataError, RunError
from fedtopics.federation.audit import Audit, allowed, audit, likelihood_ratios, rates
from fedtopics.federation.study import Study
from fedtopics.privacy import Privacy
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import subjects


def test_rates_by_hand() -> None:
    scores = np.array([[3.0, 1.0, 2.0, 0.0]])
    members = np.array([[True, True, False, False]])
    assert rates(scores, members) == (0.75, 0.5)


def test_ratios_find_a_difference_that_each_document_has_of_its_own() -> None:
    """Where documents differ by far more than membership does, the scores alone say nothing."""
    rng = np.random.default_rng(0)
    members = rng.random((16, 400)) < 0.5
    scores = 10 * rng.normal(size=400) + members + 0.5 * rng.normal(size=members.shape)
    assert rates(scores, members)[0] < 0.55
    assert rates(likelihood_ratios(scores, members), members)[0] > 0.88  # Phi(2 / sqrt 2) = .92


def test_nothing_is_found_where_nothing_is() -> None:
    rng = np.random.default_rng(1)
    members = rng.random((16, 400)) < 0.5
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(rates(ratios, members)[0] - 0.5) < 0.02
    assert rates(ratios, members)[1] < 0.02


def test_nothing_is_found_where_nothing_is_in_few_pairs() -> None:
    """A document that is in a model has fewer others with it, and their mean is less sure."""
    rng = np.random.default_rng(2)
    first = rng.random((3, 4000)) < 0.5
    members = np.stack([first, ~first], axis=1).reshape(6, -1)
    ratios = likelihood_ratios(rng.normal(size=members.shape), members)
    assert abs(rates(ratios, members)[0] - 0.5) < 0.02


def test_what_a_bound_allows() -> None:
    """At epsilon 1 and delta 1e-6 mu is .237."""
    most = allowed(Privacy(epsilon=1))
    assert most is not None
    assert most[0] == pytest.approx(norm.cdf(0.2366 / np.sqrt(2)), abs=0.001)
    assert most[1] == pytest.approx(norm.cdf(norm.ppf(0.01) + 0.2366), abs=0.001)
    assert allowed(None) is None
    more = allowed(Privacy(epsilon=1, unit="author", most_documents=1))
    assert more is not None
    assert more[0] > most[0], "a document of an author is replaced by another one"


def test_many_topics_of_few_documents_tell_who_was_there(tmp_path: Path) -> None:
    corpus = Corpus.pool(list(subjects({"a": 60, "b": 60}).values()))
    method = {"name": "lda", "n_components": 40, "learning": "batch", "max_rounds": 5}
    plan = Study.make(
        method={**method, "coherence": "nothing"}, vocabulary={"min_document_frequency": 1}
    ).with_clients(["north", "south"])
    done: list[int] = []
    found = audit(plan, corpus, 6, on_progress=lambda number, _: done.append(number))
    assert done == [1, 2, 3, 4, 5, 6]
    assert found.auc > 0.6
    assert (found.shadows, found.documents, found.allowed) == (6, 6 * 120, None)
    path = tmp_path / "audit.json"
    path.write_text(found.model_dump_json())
    read = Audit.read(path, plan.fingerprint)
    assert read.model_dump() == found.model_dump()
    with pytest.raises(RunError, match="is an audit of the study"):
        Audit.read(path, "f00d")


def test_too_few_documents() -> None:
    plan = Study(method={"name": "lda"}).with_clients(["north", "south"])
    with pytest.raises(DataError, match="give more documents"):
        audit(plan, subjects({"a": 50})["a"])
