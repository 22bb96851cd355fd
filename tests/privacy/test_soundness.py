"""What can be learned of one document, by trying: at most epsilon, and more where noise is less.

Two corpora differ by one document, the most that a document can be. All of a study's releases are
drawn of each, a hundred thousand times, with the noise of those clients that are enough. The best
guess of which corpus it was is by the document's direction; how often it is right and wrong bounds
epsilon from below, with confidence (Clopper and Pearson).

``benchmarks/attacks/neighbours.py`` does it with whole studies, a hundred thousand times as well;
here are some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.attacks import neighbours
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.methods.core.plan import Secret
from fedtopics.privacy import Budget, Noise, Privacy
from fedtopics.privacy.accounting import mu_of
from tests.helpers.bounded import BY_EMBEDDINGS, METHODS, install, planned, themed

TIMES, DRAWN = 100_000, 500  # in so many calls, of different secrets
CLIENTS = 3
DELTA = 1e-3  # which so many draws can tell from 0
CONFIDENCE = 1e-3
SHARES = {"words": 0.2, "histogram": 0.8}
DOCUMENT = np.array([0.6, 0.8, 0.0])  # of length 1, as it is clipped to


def released(
    budget: Budget, document: NDArray[np.float64], less: float = 1.0
) -> NDArray[np.float64]:
    """Draw all releases, of what other documents come to and this one, many times."""
    rows = TIMES // DRAWN
    others = np.array([3.0, 1.0, 4.0])
    found = []
    for release in budget.shares:
        totals = []
        for number in range(DRAWN):
            total = np.zeros((rows, len(others)))
            for client in range(CLIENTS - CLIENTS // 3):
                secret = Secret.from_seed(number, f"{client} {document.any()}")
                own = others + document if client == 0 else others
                noise = Noise(secret.derive, CLIENTS)
                total += noise.added(np.tile(own, (rows, 1)), less * budget.sigma(release), release)
            totals.append(total)
        found.append(np.concatenate(totals) / budget.sigma(release))
    return np.concatenate(found, axis=1)


def least_epsilon(with_it: NDArray[np.float64], without: NDArray[np.float64]) -> float:
    """Bound epsilon from below by how often a guess is right, and wrong."""
    best = 0.0
    for threshold in np.quantile(with_it, np.linspace(0.5, 0.9999, 40)):
        right, wrong = (with_it > threshold).sum(), (without > threshold).sum()
        surely = beta.ppf(CONFIDENCE, right, TIMES - right + 1)
        at_most = beta.ppf(1 - CONFIDENCE, wrong + 1, TIMES - wrong)
        best = max(best, np.log(max(surely - DELTA, 1e-12) / at_most))
    return best


def guessed(epsilon: float, less: float = 1.0) -> float:
    budget = Budget(Privacy(epsilon=epsilon, delta=DELTA), SHARES)
    nothing = np.zeros_like(DOCUMENT)
    sums: Mapping[bool, NDArray[np.float64]] = {
        there: released(budget, DOCUMENT if there else nothing, less) for there in (True, False)
    }
    direction = np.concatenate([DOCUMENT / budget.sigma(name) for name in SHARES])
    return least_epsilon(sums[True] @ direction, sums[False] @ direction)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_nobody_learns_more_than_epsilon(epsilon: float) -> None:
    """The attack is a good one: it finds more than half of what the theory allows."""
    assert epsilon / 2 < guessed(epsilon) <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_with_a_third_of_the_noise_more_is_learned(epsilon: float) -> None:
    assert guessed(epsilon, less=1 / 3) > epsilon


# Whole studies


def guesses(case: neighbours.Case, times: int) -> dict[bool, NDArray[np.float64]]:
    """How much likelier all sums of each study are with the document, by whether it was there."""
    found = {}
    for there in (True, False):
        runs = [neighbours.run(case, there, number) for number in range(times)]
        assert not any(refused for _, refused in runs)
        found[there] = np.array([guess for guess, _ in runs])
    return found


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [("kmeans", 1.0), ("lda", 3.0), ("nmf", 3.0), ("discriminative", 1.0)],
)
def test_sums_of_a_study_say_no_more_of_a_document_than_the_accountant_allows(
    name: str, epsilon: float
) -> None:
    """The logarithm of the ratio of likelihoods is normal, of a variance that is mu^2 at most."""
    times = 60
    found = guesses(neighbours.Case(name, epsilon), times)
    most = mu_of(Privacy(epsilon=epsilon, delta=neighbours.DELTA)) ** 2
    both = np.concatenate([found[True] - found[True].mean(), found[False] - found[False].mean()])
    assert most / 2 < both.var() < most * (1 + 3 / np.sqrt(times))
    apart = found[True].mean() - found[False].mean()
    assert apart == pytest.approx(both.var(), abs=4 * np.sqrt(most / times))


@pytest.mark.parametrize("name", BY_EMBEDDINGS)
def test_too_little_noise_in_a_study_is_noticed(name: str) -> None:
    case = neighbours.Case(name, 1.0, 0.1)
    rows = [
        {"there": there, "times": 60,
         "above": (each > levels).sum(1), "below": (each < -levels).sum(1)}
        for levels in [neighbours.thresholds(1.0)[:, None]]
        for there, each in guesses(case, 60).items()
    ]  # fmt: skip
    assert neighbours.least_epsilon(rows) > 1.0


@pytest.mark.parametrize("name", METHODS)
def test_all_noise_of_a_study_comes_to_what_it_promises(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is drawn in a run is composed by `dp-accounting`; nothing of it is drawn twice."""
    install(monkeypatch)
    drawn: list[tuple[str, float]] = []
    added = Noise.added

    def noting(noise: Noise, values: Any, sigma: float, purpose: str, *numbers: int) -> Any:
        drawn.append((purpose, sigma))
        return added(noise, values, sigma, purpose, *numbers)

    monkeypatch.setattr(Noise, "added", noting)
    corpora = {"alone": themed(9000)}
    plan = planned(name, 5).model_copy(update={"secure": False})
    train(plan, corpora, policies={"alone": OPEN_POLICY}, at_once=False)
    assert len({purpose for purpose, _ in drawn}) == len(drawn)
    accountant = PLDAccountant()
    for _, sigma in drawn:
        accountant.compose(dp_event.GaussianDpEvent(sigma))
    assert 4.99 < accountant.get_epsilon(1e-6) <= 5
