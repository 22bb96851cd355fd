"""A client's account: what all studies may say of its documents together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from fedtopics.errors import PolicyError, RunError
from fedtopics.federation.policy import Policy
from fedtopics.methods.bounded import contributions
from fedtopics.methods.bounded.contributions import counted_once
from fedtopics.privacy import Budget, Privacy
from fedtopics.privacy.accounting import Account, delta_of, mu_of, together
from fedtopics.text.corpus import Corpus

THREE = Privacy(epsilon=3)


def policy_with(folder: Path, most: float) -> Policy:
    (folder / "policy.toml").write_text(f"max_epsilon = {most}\n")
    return Policy.read(folder / "policy.toml")


def test_studies_add_up_to_less_than_their_epsilons() -> None:
    """As `dp-accounting` has it of two releases."""
    assert together([THREE]) == 3.0
    accountant, whole = PLDAccountant(), Budget(THREE, {"all": 1.0})
    for _ in range(2):
        accountant.compose(dp_event.GaussianDpEvent(whole.sigma("all")))
    assert together([THREE, THREE]) == pytest.approx(accountant.get_epsilon(1e-6), abs=0.005)


def test_an_account_of_very_many_studies() -> None:
    """It says nothing any more, but it says so."""
    assert together([Privacy(epsilon=100)] * 300) == pytest.approx(16_500, rel=0.05)


def test_what_is_spent_never_falls() -> None:
    """Whatever a further study promises: the smallest delta is the one that counts."""
    thrice = [THREE] * 3
    assert together(thrice) == pytest.approx(5.57, abs=0.005)
    assert together([*thrice, Privacy(epsilon=0.01, delta=1e-3)]) >= together(thrice)
    rng = np.random.default_rng(0)
    kinds = {}, {"unit": "author", "most_documents": 1}, {"unit": "author", "most_documents": 5}
    for _ in range(20):
        promises: list[Privacy] = []
        for _ in range(6):
            epsilon, delta = 10 ** rng.uniform(-2, 1.5), 10 ** rng.uniform(-12, -3)
            before = together(promises)
            promises.append(Privacy(epsilon=epsilon, delta=delta, **kinds[rng.integers(3)]))
            assert together(promises) >= before


def test_a_document_whose_place_another_takes_counts_twice() -> None:
    """Of an author one document counts: without it, the next one, and a sum changes by 2."""
    first, second = np.eye(3), -np.eye(3)
    vectors = np.array([first[0], second[0], first[1]])
    authors = pa.chunked_array([["ann", "ann", "ben"]])
    corpus = replace(Corpus.of([["oak"], ["elm"], ["ash"]]), authors=authors)
    corpus = corpus.with_embeddings(vectors.astype(np.float32))
    for most, apart in ((1, 2.0), (2, 1.0), (5, 1.0)):
        bound = Privacy(epsilon=1, unit="author", most_documents=most)
        sums = []
        for documents in (corpus, corpus.take([1, 2])):
            rows, weights = counted_once(documents, bound)
            found, _ = contributions.moments(documents.take(rows).embeddings, weights)
            sums.append(found)
        assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(apart)
        assert bound.sensitivity >= apart
    one = Privacy(epsilon=3, unit="author", most_documents=1)
    mu = mu_of(one)
    assert delta_of(2 * mu, together([one])) == pytest.approx(1e-6, rel=0.02)
    of_ten = Privacy(epsilon=3, unit="author", most_documents=10)
    assert together([of_ten]) == 3.0
    assert together([one]) == pytest.approx(together([of_ten] * 4), abs=0.01)


def test_what_exceeds_it_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, 4)
    policy.check_privacy("north", THREE, "first", "run")
    with pytest.raises(PolicyError, match="allows epsilon 4 over all studies; 1 before had 3"):
        policy.check_privacy("north", THREE, "second", "run")
    with pytest.raises(PolicyError, match="Nothing has left"):
        policy.check_privacy("north", THREE, "second")
    kept = Account(tmp_path / "policy.account.jsonl")
    assert [entry.study for entry in kept.entries] == ["first"]


def test_a_run_that_goes_on_is_counted_once(tmp_path: Path) -> None:
    policy = policy_with(tmp_path, 4)
    for _ in range(3):
        policy.check_privacy("north", THREE, "first")
        policy.check_privacy("north", THREE, "first", "run")
    assert Account(tmp_path / "policy.account.jsonl").epsilon == 3.0
    with pytest.raises(PolicyError):
        policy.check_privacy("north", THREE, "first", "another run")


@pytest.mark.parametrize(
    "other",
    [
        {"epsilon": 2}, {"epsilon": 3, "delta": 1e-7},
        {"epsilon": 3, "unit": "author", "most_documents": 5},
    ],
)  # fmt: skip
def test_a_run_with_other_parameters_is_another_one(tmp_path: Path, other: Any) -> None:
    """By the name of a study and of a run alone it would cost nothing."""
    policy, promised = policy_with(tmp_path, 20), Privacy(**other)
    policy.check_privacy("north", THREE, "first", "run")
    policy.check_privacy("north", promised, "first", "run")
    kept = Account(tmp_path / "policy.account.jsonl")
    assert [entry.privacy for entry in kept.entries] == [THREE, promised]
    with pytest.raises(PolicyError, match="allows epsilon 3 over all studies; 2 before had"):
        kept.check("north", "first", Privacy(epsilon=1), 3)


def test_a_study_without_a_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no bound for a document"):
        policy_with(tmp_path, 4).check_privacy("north", None, "first", "run")


def test_an_account_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "policy.account.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match="restore it"):
        policy_with(tmp_path, 4).check_privacy("north", THREE, "first")


def test_a_policy_without_a_file() -> None:
    with pytest.raises(PolicyError, match="name one with account"):
        Policy(max_epsilon=3).check_privacy("north", THREE, "first")


def test_a_run_that_begins_anew_has_other_noise(tmp_path: Path) -> None:
    """Who says that it is the same run, to a client whose folder is gone, asks for new noise."""
    policy = policy_with(tmp_path, 4)
    policy.check_privacy("north", THREE, "first", "run", "of a secret")
    policy.check_privacy("north", THREE, "first", "run", "of a secret")
    with pytest.raises(PolicyError, match="1 before had 3"):
        policy.check_privacy("north", THREE, "first", "run", "of another one")


def test_two_studies_that_begin_at_once(tmp_path: Path) -> None:
    """Each has read the account before the other writes to it."""
    one, other = (Account(tmp_path / "account.jsonl") for _ in range(2))
    one.charge("north", "first", "run", THREE, 4)
    with pytest.raises(PolicyError, match="1 before had 3"):
        other.charge("north", "second", "run", THREE, 4)
    other.charge("north", "second", "run", Privacy(epsilon=1), 4)
    assert [entry.study for entry in Account(one.path).entries] == ["first", "second"]
