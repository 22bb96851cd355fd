"""How much noise a budget asks for, by three accountants."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

from fedtopics.errors import StudyError
from fedtopics.privacy import Budget, Privacy
from fedtopics.privacy.accounting import ROUNDING, delta_of

SHARES = {"words": 0.15, "mean": 0.02, "moments": 0.08, "first": 0.1, "second": 0.1, "last": 0.55}


def spent(promised: Privacy, shares: dict[str, float]) -> float:
    """The epsilon of all releases, by their privacy loss distributions (PLD)."""
    accountant, budget = PLDAccountant(), Budget(promised, shares)
    for release in shares:
        accountant.compose(dp_event.GaussianDpEvent(budget.sigma(release)))
    return float(accountant.get_epsilon(promised.delta * (1 - ROUNDING))) + ROUNDING


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_all_releases_come_to_epsilon(epsilon: float) -> None:
    assert epsilon - 0.005 < spent(Privacy(epsilon=epsilon), SHARES) <= epsilon


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_a_second_accountant_finds_no_less_than_it_and_little_more(epsilon: float) -> None:
    """Renyi's bound is above the exact one, by a tenth or so."""
    budget = Budget(Privacy(epsilon=epsilon), SHARES)
    accountant = RdpAccountant()
    for name in SHARES:
        accountant.compose(dp_event.GaussianDpEvent(budget.sigma(name)))
    assert epsilon - 0.005 < accountant.get_epsilon(1e-6) < 1.15 * epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-12), (0.1, 1e-3), (20.0, 1e-12)])
def test_far_from_usual_both_accountants_agree(epsilon: float, delta: float) -> None:
    """The closed form says how much noise there is, the distributions what it comes to."""
    promised = Privacy(epsilon=epsilon, delta=delta)
    assert spent(promised, {"words": 0.3, "last": 0.7}) == pytest.approx(epsilon, rel=1e-3)


def test_an_exact_delta() -> None:
    """Of mu 1 and epsilon 1, by hand: Phi(-1/2) - e Phi(-3/2)."""
    assert delta_of(1.0, 1.0) == pytest.approx(0.12693673750664394, rel=1e-12)


def test_noise_follows_from_the_share() -> None:
    budget = Budget(Privacy(epsilon=3), SHARES)
    ratio = budget.sigma("mean") / budget.sigma("moments")
    assert ratio == pytest.approx(math.sqrt(0.08 / 0.02), rel=2e-3)
    assert Budget(None, SHARES).sigma("mean") == 0.0


@pytest.mark.parametrize(
    ("weights", "rounds", "found"),
    [(106_132, 10, (224, 34, 0.67)), (20 * 2000, 2000, (1948, 292, 5.8))],
)
def test_a_bound_for_each_client_would_drown_updates(
    weights: int, rounds: int, found: tuple[float, ...]
) -> None:
    """Noise of the mean update of 3, 20 and 1,000 clients, beside the longest update there is."""
    budget = Budget(Privacy(epsilon=8), {f"round {i}": 1 / rounds for i in range(rounds)})
    noise = budget.sigma("round 0") * math.sqrt(weights)
    for clients, beside in zip((3, 20, 1000), found, strict=True):
        assert noise / clients == pytest.approx(beside, rel=0.02)


def test_shares_of_more_than_all() -> None:
    with pytest.raises(StudyError, match=r"add up to 1\.1"):
        Budget(Privacy(epsilon=3), {"words": 0.6, "last": 0.5})
