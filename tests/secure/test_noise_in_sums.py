"""Noise that clients add in parts, in real masked sums: enough without some of them, or no sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError, PolicyError
from fedtopics.methods.bounded.method import noisy
from fedtopics.methods.core.plan import Secret
from fedtopics.privacy import Budget, Noise, Privacy
from fedtopics.secure.said import ADDED, AGREED, OPENED, PREPARED, RECOVERED
from fedtopics.secure.sum import SecureClients
from tests.helpers.masked import NAMES, masked, secret_of
from tests.helpers.programs import POLICY, RULES, Half

SIZE = 40_000
PRIVACY = Privacy(epsilon=3)
BUDGET = Budget(PRIVACY, {"sums": 1.0})
SIGMA = BUDGET.sigma("sums")
ENOUGH = 4  # of five clients


@pytest.fixture(autouse=True)
def _no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)


def half_of(name: str) -> Half:
    """A client whose sums are its number, each time."""
    noise = Noise(Secret(secret_of(name)).derive, len(NAMES))
    own = np.full(SIZE, float(NAMES.index(name)))
    return Half(
        {"sums": lambda **_: {"sums": noise.added(own, SIGMA, "sums")}},
        noisy=True, summed=100,
    )  # fmt: skip


def program(engine: Any) -> Any:
    clients = SecureClients(engine, {})
    template = {"sums": noisy(PRIVACY, (SIZE,))}
    return clients.round(1, lambda: clients.sum("sums", template)["sums"])[0]


def rules(least: int) -> Any:
    return replace(RULES, min_clients=least, wait=0.0)


@pytest.mark.parametrize(
    "deaths", [{}, {"b": PREPARED}, {"b": ADDED}, {"b": AGREED}, {"b": OPENED}]
)
def test_a_sum_has_the_noise_that_the_accountant_counts_on(deaths: Mapping[str, str]) -> None:
    """Of five clients one may be lost, before its masked reply is in the sum or after."""
    odd = {name: {"dies": stage} for name, stage in deaths.items()}
    with masked(NAMES, odd=odd, half=half_of, todo=program, rules=rules(ENOUGH)) as (f, _, members):
        total = f.lead(program).result()
        counted = [n for n in NAMES if deaths.get(n) in (None, OPENED)]
        found = total - sum(NAMES.index(name) for name in counted)
        expected = SIGMA * (len(counted) / ENOUGH) ** 0.5
        assert np.std(found) == pytest.approx(expected, rel=0.02)
        assert np.std(found) > SIGMA * (1 - 4 / np.sqrt(2 * SIZE))
        assert abs(np.mean(found)) < 5 * expected / np.sqrt(SIZE)
        # All is on one grid: masks have changed nothing.
        parts = [half_of(name).functions["sums"]()["sums"] for name in counted]
        np.testing.assert_array_equal(total, np.sum(parts, axis=0))
        for name in set(NAMES) - set(deaths):
            np.testing.assert_array_equal(members[name].work.result(), total)


@pytest.mark.parametrize("stage", [PREPARED, ADDED, AGREED])
def test_a_sum_with_less_noise_is_not_opened(stage: str) -> None:
    """Whoever adds says that three of five clients are enough: the three do not open the sum.

    In a private study a client's policy asks for as many clients as the noise counts on.
    """
    odd = {name: {"dies": stage} for name in "bd"}
    policy = POLICY.model_copy(update={"min_clients_in_sum": ENOUGH})
    policies = dict.fromkeys(NAMES, policy)
    how = {"odd": odd, "half": half_of, "todo": program, "rules": rules(3), "policies": policies}
    with masked(NAMES, **how) as (f, clients, members):
        work = f.lead(program)
        for name in "ace":
            with pytest.raises(PolicyError, match="at least 4 clients, this one is over 3"):
                members[name].work.result()
            left = {said for door in clients.doors[name] for said in door.stages()}
            assert not left & {OPENED, RECOVERED}
        assert isinstance(work.error(), FederationError)
