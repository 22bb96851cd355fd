"""A client's account: what all studies may say of its documents together."""

from __future__ import annotations

from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from fedtopics.errors import PolicyError, RunError
from fedtopics.federation.policy import Policy
from fedtopics.privacy import Budget, Privacy
from fedtopics.privacy.account import Account, together

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
