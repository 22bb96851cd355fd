"""A sum by groups of documents is over the clients that were counted for it, whoever is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics.errors import FederationError, PolicyError
from fedtopics.methods.bounded.method import noisy
from fedtopics.methods.core.aggregation import Payload
from fedtopics.methods.core.plan import Secret
from fedtopics.privacy import Budget, Noise, Privacy
from fedtopics.secure.adding import CountAgainError, Sums
from fedtopics.secure.said import ADDED, AGREED, COMMITTED, COUNT, OPENED, PREPARED, RECOVERED
from fedtopics.secure.sum import SecureClients
from tests.helpers.background import KilledError
from tests.helpers.masked import NAMES, TEMPLATE, Client, assert_total, left_of, masked, secret_of
from tests.helpers.masked_adder import WHOLE
from tests.helpers.masked_rounds import Rounds
from tests.helpers.programs import POLICY, RULES, Half

pytestmark = pytest.mark.usefixtures("no_grace")

OTHERS = [name for name in NAMES if name != "e"]


def counted(engine: Any) -> Any:
    """Count groups, then sum them."""
    clients = SecureClients(engine, {})

    def work() -> list[dict[str, Any]]:
        count = clients.sum("whole", TEMPLATE, round=1, groups={"least": 2})
        groups = {"least": 2, "counted": {"n": count["n"]}}
        return [count, clients.sum("again", TEMPLATE, round=1, groups=groups)]

    return clients.round(1, work)


@pytest.mark.parametrize("stage", [PREPARED, ADDED, AGREED])
def test_who_is_lost_behind_the_count_is_counted_no_more(stage: str) -> None:
    """Its documents may be most of a group: the others' few of it are not opened."""
    with masked(NAMES, todo=counted, odd={"e": {"dies": stage, "skips": 1}}) as (f, clients, _):
        (count, total), report = f.lead(counted).result()
        assert_total(count, OTHERS)
        assert_total(total, OTHERS)
        assert report["clients"] == OTHERS
        for name in OTHERS:
            left = left_of(clients, name)
            assert left[:4] == list(WHOLE), "the count of all was opened"
            assert left[-8:] == [*WHOLE, *WHOLE], "that of the others, then their sum"
            assert OPENED not in left[4:-8], "and in between no sum"


def test_who_is_lost_when_counts_are_opened_is_counted_no_more() -> None:
    with masked(NAMES, todo=counted, odd={"e": {"dies": OPENED}}) as (f, _, _):
        (count, total), _ = f.lead(counted).result()
        assert_total(count, OTHERS)
        assert_total(total, OTHERS)


def test_who_is_lost_when_the_sum_is_opened_is_in_both() -> None:
    with masked(NAMES, todo=counted, odd={"e": {"dies": OPENED, "skips": 1}}) as (f, _, _):
        (count, total), report = f.lead(counted).result()
        assert_total(count, NAMES)
        assert_total(total, NAMES)
        assert report["clients"] == OTHERS


def told(rounds: Rounds, name: str) -> list[int]:
    """The fewest documents of a group of all clients', by how its sum was asked for each time.

    0: of one's own.
    """
    least, sums = {"groups": {"least": 10}}, {"groups": {"least": 10, "counted": {}}}

    def work() -> None:
        for payload in (least, sums):
            rounds.clients.sum("whole", TEMPLATE, round=1, **payload)

    rounds.clients.round(1, work)
    asked = [asked for stage, asked, _ in rounds.doors[name].left if stage in (PREPARED, "whole")]
    groups = [each.get("payload", each)["groups"] for each in asked]
    return [each["least"] for each in groups if "counted" in each]


def test_who_is_lost_behind_each_count_does_not_have_it_repeated_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = Sums.whole

    def lost(sums: Sums, *given: Any) -> Any:
        if given[-1] is not None:
            raise CountAgainError
        return whole(sums, *given)

    monkeypatch.setattr(Sums, "whole", lost)
    assert told(Rounds(NAMES, {}), "a") == [0]


# Over how many documents a masked sum is: said before a reply leaves, and held to


ALL_DOCUMENTS = 150  # of a to e: 10, 20, 30, 40, 50
ABDE = [name for name in NAMES if name != "c"]


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_no_reply_leaves_in_a_masked_sum_over_too_few_documents(function: str) -> None:
    policy = POLICY.model_copy(update={"min_documents_in_sum": ALL_DOCUMENTS + 1})
    with masked(NAMES, function, policies={"c": policy}) as (f, clients, members):
        (total,), _ = f.lead(f.program).result()[0]
        assert_total(total, ABDE)
        error = members["c"].work.error()
        assert isinstance(error, PolicyError)
        assert "over at least 151 documents, this one is over 150; raise" in str(error)
        assert set(left_of(clients, "c")) <= {COMMITTED, PREPARED}


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_a_sum_over_enough_documents(function: str) -> None:
    policy = POLICY.model_copy(update={"min_documents_in_sum": ALL_DOCUMENTS})
    with masked(NAMES, function, policies=dict.fromkeys(NAMES, policy)) as (f, _, _):
        (total,), _ = f.lead(f.program).result()[0]
        assert_total(total, NAMES)


def test_a_sum_that_has_become_one_over_too_few_documents_is_not_opened() -> None:
    """Who is lost after masks were drawn takes its documents along."""
    policy = POLICY.model_copy(update={"min_documents_in_sum": ALL_DOCUMENTS})
    odd = {"b": {"dies": ADDED}}
    with masked(NAMES, "whole", policies={"c": policy}, odd=odd) as (f, clients, members):
        (total,), _ = f.lead(f.program).result()[0]
        assert_total(total, "ade")
        assert "this one is over 130" in str(members["c"].work.error())
        assert isinstance(members["b"].work.error(), KilledError)
        left = left_of(clients, "c")
        assert ADDED in left, "its own mask is on it"
        assert not {AGREED, OPENED} & set(left)


@pytest.mark.parametrize(("function", "stage"), [("drawn", COMMITTED), ("whole", PREPARED)])
def test_a_total_over_other_documents_than_were_said_is_void(function: str, stage: str) -> None:
    """One that says more than it has, so that the others' policies let their replies out."""

    def boasts(client: Client, reply: Payload) -> Payload:
        said = reply["said"] | {"documents": (999).to_bytes(COUNT, "little")}
        return {"said": client.signed(stage, said)}

    odd = {"d": {"changes": {stage: boasts}}}
    with masked(NAMES, function, odd=odd) as (f, _, _):
        error = f.lead(f.program).error()
        assert isinstance(error, FederationError)
        assert "void 3 times (it is said to be over 1,109 documents, and is not)" in str(error)


# Noise that clients add in parts, in real masked sums: enough without some of them, or no sum


SIZE = 40_000
PRIVACY = Privacy(epsilon=3)
BUDGET = Budget(PRIVACY, {"sums": 1.0})
SIGMA = BUDGET.sigma("sums")
ENOUGH = 4  # of five clients


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
