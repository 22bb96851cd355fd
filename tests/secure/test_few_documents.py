"""Over how many documents a masked sum is: said before a reply leaves, and held to."""

from __future__ import annotations

import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError, PolicyError
from fedtopics.methods.core.aggregation import Payload
from fedtopics.secure.said import ADDED, AGREED, COMMITTED, COUNT, OPENED, PREPARED
from tests.helpers.background import KilledError
from tests.helpers.masked import NAMES, Client, assert_total, left_of, masked
from tests.helpers.programs import POLICY

ALL_DOCUMENTS = 150  # of a to e: 10, 20, 30, 40, 50
OTHERS = [name for name in NAMES if name != "c"]


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)


@pytest.mark.parametrize("function", ["drawn", "whole"])
def test_no_reply_leaves_in_a_masked_sum_over_too_few_documents(function: str) -> None:
    policy = POLICY.model_copy(update={"min_documents_in_sum": ALL_DOCUMENTS + 1})
    with masked(NAMES, function, policies={"c": policy}) as (f, clients, members):
        (total,), _ = f.lead(f.program).result()[0]
        assert_total(total, OTHERS)
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
