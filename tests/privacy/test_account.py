"""A client's account: what all studies may say of its documents together."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from dp_accounting import dp_event
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.attacks import neighbours
from fedtopics import Corpus, train
from fedtopics.errors import PolicyError, StudyError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.methods.core.plan import Secret
from fedtopics.privacy import Budget, Noise, Privacy, contributions
from fedtopics.privacy.accounting import ROUNDING, Account, delta_of, mu_of, together
from fedtopics.privacy.contributions import counted_once
from tests.helpers.noted import noted
from tests.helpers.recipes import METHODS, install, planned, themed

THREE = Privacy(epsilon=3)


def charged(
    account: Account, most: float, study: str = "first", noise: str = "", privacy: Privacy = THREE
) -> Account:
    return Policy(max_epsilon=most).charge("north", privacy, study, account, noise)


def test_studies_add_up_to_less_than_their_epsilons() -> None:
    """As `dp-accounting` has it of two releases."""
    assert together([THREE]) == 3.0
    accountant = PLDAccountant()
    whole = Budget(THREE, {"all": 1.0})
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
    kinds = {}, {"unit": "person", "most_documents": 1}, {"unit": "person", "most_documents": 5}
    for _ in range(20):
        promises: list[Privacy] = []
        for _ in range(6):
            epsilon = 10 ** rng.uniform(-2, 1.5)
            delta = 10 ** rng.uniform(-12, -3)
            before = together(promises)
            promises.append(Privacy(epsilon=epsilon, delta=delta, **kinds[rng.integers(3)]))
            assert together(promises) >= before


def test_a_document_whose_place_another_takes_counts_twice() -> None:
    """Of a person one document counts: without it, the next one, and a sum changes by 2."""
    first = np.eye(3)
    vectors = np.array([first[0], -np.eye(3)[0], first[1]])
    corpus = replace(
        Corpus.of([["oak"], ["elm"], ["ash"]]), persons=pa.chunked_array([["ann", "ann", "ben"]])
    )
    corpus = corpus.with_embeddings(vectors.astype(np.float32))
    for most, apart in ((1, 2.0), (2, 1.0), (5, 1.0)):
        bound = Privacy(epsilon=1, unit="person", most_documents=most)
        sums = []
        for documents in (corpus, corpus.take([1, 2])):
            rows, weights = counted_once(documents, bound)
            sums.append(contributions.moments(documents.take(rows).embeddings, weights)[0])
        assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(apart)
        assert bound.sensitivity >= apart
    one = Privacy(epsilon=3, unit="person", most_documents=1)
    assert delta_of(2 * mu_of(one), together([one])) == pytest.approx(1e-6, rel=0.02)
    of_ten = Privacy(epsilon=3, unit="person", most_documents=10)
    assert together([of_ten]) == 3.0
    assert together([one]) == pytest.approx(together([of_ten] * 4), abs=0.01)


def test_a_run_that_failed_is_charged_what_left() -> None:
    """A twentieth of mu^2 is far less than the whole; who starts it again may send the rest."""
    account = charged(Account(), 4, noise="of a secret")
    settled = account.settled("first", "of a secret", 0.05)
    assert settled.epsilon == pytest.approx(together([THREE], [0.05]))
    mu = mu_of(THREE) * math.sqrt(0.05)
    assert delta_of(mu, settled.epsilon - ROUNDING) == pytest.approx(1e-6, rel=0.01)
    assert 0.5 < settled.epsilon < 0.7
    assert account.settled("other", "of a secret", 0.05) == account
    assert account.settled("first", "of a secret", 0).epsilon == 0
    further = charged(settled, 4, "second", "of another secret")
    assert 3 < further.epsilon < 3.2
    with pytest.raises(PolicyError, match=r"would be 4\.4"):
        charged(further, 4, "first", "of a secret")
    assert charged(settled, 4, noise="of a secret") == account


def test_what_exceeds_it_is_refused() -> None:
    account = charged(Account(), 4)
    assert [entry.study for entry in account.entries] == ["first"]
    with pytest.raises(PolicyError, match="allows epsilon 4 over all studies; earlier runs"):
        charged(account, 4, "second")
    with pytest.raises(PolicyError, match="Nothing was sent"):
        Policy(max_epsilon=4).check_privacy("north", THREE, "second", account)


def test_a_run_that_goes_on_is_counted_once() -> None:
    """Who says that it is the same run, to a client whose folder is gone, asks for new noise."""
    account = charged(Account(), 4, noise="of a secret")
    assert charged(account, 4, noise="of a secret") == account
    Policy(max_epsilon=4).check_privacy("north", THREE, "first", account)
    assert account.epsilon == 3.0
    for study, noise in (("another run", "of a secret"), ("first", "of another one")):
        with pytest.raises(PolicyError, match=r"runs \(1\) used 3"):
            charged(account, 4, study, noise)


@pytest.mark.parametrize(
    "other",
    [
        {"epsilon": 2},
        {"epsilon": 3, "delta": 1e-7},
        {"epsilon": 3, "unit": "person", "most_documents": 5},
    ],
)
def test_a_run_with_other_parameters_is_another_one(other: Any) -> None:
    """By the name of a study and of a run alone it would cost nothing."""
    promised = Privacy(**other)
    account = charged(charged(Account(), 20), 20, privacy=promised)
    assert [entry.privacy for entry in account.entries] == [THREE, promised]
    with pytest.raises(PolicyError, match="allows epsilon 3 over all studies; earlier runs"):
        account.check("north", "first", Privacy(epsilon=1), 3)


def test_without_a_bound_or_a_budget_nothing_is_charged() -> None:
    with pytest.raises(PolicyError, match="no differential privacy"):
        Policy(max_epsilon=4).check_privacy("north", None, "first", Account())
    assert Policy().charge("north", THREE, "first", Account(), "") == Account()


SHARES = {"words": 0.15, "mean": 0.02, "moments": 0.08, "first": 0.1, "second": 0.1, "last": 0.55}


def spent(promised: Privacy, shares: dict[str, float]) -> float:
    """The epsilon of all releases, by their privacy loss distributions (PLD)."""
    accountant = PLDAccountant()
    budget = Budget(promised, shares)
    for release in shares:
        accountant.compose(dp_event.GaussianDpEvent(budget.sigma(release)))
    return float(accountant.get_epsilon(promised.delta * (1 - ROUNDING))) + ROUNDING


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
def test_all_releases_come_to_epsilon_by_two_accountants(epsilon: float) -> None:
    """Renyi's bound is above the exact one, by a tenth or so."""
    promised = Privacy(epsilon=epsilon)
    assert epsilon - 0.005 < spent(promised, SHARES) <= epsilon
    budget = Budget(promised, SHARES)
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


@pytest.mark.parametrize(
    ("weights", "rounds", "expected"),
    [(106_132, 10, (224, 34, 0.67)), (20 * 2000, 2000, (1948, 292, 5.8))],
)
def test_a_bound_for_each_client_would_drown_updates(
    weights: int, rounds: int, expected: tuple[float, ...]
) -> None:
    """Noise of the mean update of 3, 20 and 1,000 clients, beside the longest update there is."""
    budget = Budget(Privacy(epsilon=8), {f"round {i}": 1 / rounds for i in range(rounds)})
    noise = budget.sigma("round 0") * math.sqrt(weights)
    for clients, beside in zip((3, 20, 1000), expected, strict=True):
        assert noise / clients == pytest.approx(beside, rel=0.02)


def test_shares_of_more_than_all() -> None:
    with pytest.raises(StudyError, match=r"add up to 1\.1"):
        Budget(Privacy(epsilon=3), {"words": 0.6, "last": 0.5})


# What can be learned of one document, by trying. All releases of a study are drawn for two corpora
# that differ by one document; how often the best guess of which it was is right bounds epsilon from
# below, with confidence (Clopper and Pearson). benchmarks/attacks/neighbours.py does it with whole
# studies, a hundred thousand times as well; here are some of them.
TIMES = 100_000  # calls, of different secrets
DRAWN = 500
CLIENTS = 3
DELTA = 1e-3  # which so many draws can tell from 0
CONFIDENCE = 1e-3
SOUND_SHARES = {"words": 0.2, "histogram": 0.8}
DOCUMENT = np.array([0.6, 0.8, 0.0])  # of length 1, as it is clipped to


def released(
    budget: Budget, document: NDArray[np.float64], less: float = 1.0
) -> NDArray[np.float64]:
    """Draw all releases, of what other documents come to and this one, many times."""
    rows = TIMES // DRAWN
    others = np.array([3.0, 1.0, 4.0])
    releases = []
    for release in budget.shares:
        totals = []
        for number in range(DRAWN):
            total = np.zeros((rows, len(others)))
            for client in range(CLIENTS - CLIENTS // 3):
                secret = Secret.from_seed(number, f"{client} {document.any()}")
                client_sums = others + document if client == 0 else others
                total += Noise(secret.derive, CLIENTS).added(
                    np.tile(client_sums, (rows, 1)), less * budget.sigma(release), release
                )
            totals.append(total)
        releases.append(np.concatenate(totals) / budget.sigma(release))
    return np.concatenate(releases, axis=1)


def least_epsilon(with_it: NDArray[np.float64], without: NDArray[np.float64]) -> float:
    """Bound epsilon from below by how often a guess is right, and wrong."""
    best = 0.0
    for threshold in np.quantile(with_it, np.linspace(0.5, 0.9999, 40)):
        right = (with_it > threshold).sum()
        wrong = (without > threshold).sum()
        surely = beta.ppf(CONFIDENCE, right, TIMES - right + 1)
        at_most = beta.ppf(1 - CONFIDENCE, wrong + 1, TIMES - wrong)
        best = max(best, np.log(max(surely - DELTA, 1e-12) / at_most))
    return best


def guessed(epsilon: float, less: float = 1.0) -> float:
    budget = Budget(Privacy(epsilon=epsilon, delta=DELTA), SOUND_SHARES)
    nothing = np.zeros_like(DOCUMENT)
    sums: Mapping[bool, NDArray[np.float64]] = {
        has_document: released(budget, DOCUMENT if has_document else nothing, less)
        for has_document in (True, False)
    }
    direction = np.concatenate([DOCUMENT / budget.sigma(name) for name in SOUND_SHARES])
    return least_epsilon(sums[True] @ direction, sums[False] @ direction)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_nobody_learns_more_than_epsilon(epsilon: float) -> None:
    """The attack is a good one: it finds more than half of what the theory allows."""
    assert epsilon / 2 < guessed(epsilon) <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_with_a_third_of_the_noise_more_is_learned(epsilon: float) -> None:
    assert guessed(epsilon, less=1 / 3) > epsilon


def guesses(case: neighbours.Case, times: int) -> dict[bool, NDArray[np.float64]]:
    """How much likelier all sums of each study are with the document, by whether it was there."""
    ratios = {}
    for has_document in (True, False):
        runs = [neighbours.run(case, has_document, number) for number in range(times)]
        assert not any(refused for _, refused in runs)
        ratios[has_document] = np.array([guess for guess, _ in runs])
    return ratios


@pytest.mark.parametrize(("name", "epsilon"), [("kmeans", 1.0), ("lda", 3.0), ("nmf", 3.0)])
def test_sums_of_a_study_say_no_more_than_the_accountant_allows(name: str, epsilon: float) -> None:
    """The logarithm of the ratio of likelihoods is normal, of a variance that is mu^2 at most."""
    times = 60
    ratios = guesses(neighbours.Case(name, epsilon), times)
    most = mu_of(Privacy(epsilon=epsilon, delta=neighbours.DELTA)) ** 2
    both = np.concatenate(
        [ratios[True] - ratios[True].mean(), ratios[False] - ratios[False].mean()]
    )
    assert most / 2 < both.var() < most * (1 + 3 / np.sqrt(times))
    apart = ratios[True].mean() - ratios[False].mean()
    assert apart == pytest.approx(both.var(), abs=4 * np.sqrt(most / times))


def test_too_little_noise_in_a_study_is_noticed() -> None:
    case = neighbours.Case("kmeans", 1.0, 0.1)
    rows = [
        {
            "there": has_document,
            "times": 60,
            "above": (ratios > levels).sum(1),
            "below": (ratios < -levels).sum(1),
        }
        for levels in [neighbours.thresholds(1.0)[:, None]]
        for has_document, ratios in guesses(case, 60).items()
    ]
    assert neighbours.least_epsilon(rows) > 1.0


@pytest.mark.parametrize("name", METHODS)
def test_all_noise_of_a_study_is_as_promised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn in a run is composed by `dp-accounting`; nothing of it is drawn twice."""
    install(monkeypatch)
    called = noted(monkeypatch, Noise, "added")
    corpora = {"alone": themed(9000)}
    plan = planned(name, 5).model_copy(update={"aggregation": "plain"})
    train(plan, corpora, policies={"alone": OPEN_POLICY}, at_once=False)
    drawn = [(purpose, sigma) for (_, _, sigma, purpose, *_), _ in called]
    assert len({purpose for purpose, _ in drawn}) == len(drawn)
    accountant = PLDAccountant()
    for _, sigma in drawn:
        accountant.compose(dp_event.GaussianDpEvent(sigma))
    assert 4.99 < accountant.get_epsilon(1e-6) <= 5
