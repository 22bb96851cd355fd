"""Masked sums over an engine that carries a message and its answer, as Flower and FLARE do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedtopics.engines import carried
from fedtopics.errors import FederationError
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.plan import Secret
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Signer
from fedtopics.secure import said
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.keys import roster_digest
from tests.helpers.carriers import (
    POLICIES,
    SIZES,
    Client,
    FakeCarrier,
    Notes,
    clients,
    planned,
    run,
)
from tests.helpers.federation import assert_same_bits, subjects
from tests.helpers.grpc_federation import authority, federated
from tests.helpers.ledgers import left, lines_that_left

CORPORA = subjects(SIZES)
DRAWN, WHOLE = "sync", "nmf"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look and offer again at once."""
    monkeypatch.setattr(carried, "LOOK", 0.01)
    monkeypatch.setattr(carried, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(carried, "LONGEST_PAUSE", 0.02)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("pki"), *SIZES)


@cache
def study(case: str, **federation: Any) -> Study:
    plan = planned(case, **federation).with_clients(CORPORA)
    method = plan.method.model_copy(update={"max_rounds": 2})
    return plan.model_copy(update={"method": method, "secure": True})


def server(pki: Path) -> Signer:
    return Signer.load(pki / "server", "server")


def signing(pki: Path, folder: Path) -> FakeCarrier:
    return FakeCarrier(
        {
            name: Client(
                name, data, folder / name,
                signatures=Signer.load(pki / "clients" / name, "client"),
            )
            for name, data in CORPORA.items()
        }
    )  # fmt: skip


def assert_all_have(model: TopicModel, folder: Path) -> None:
    for name in SIZES:
        assert_same_bits(TopicModel.from_pretrained(folder / name / "model"), model)


def test_seeded_masks_are_everybodys_and_the_bits_those_of_grpc(pki: Path, tmp_path: Path) -> None:
    plan, events, carrier = study(DRAWN), Notes(), signing(pki, tmp_path)
    model = run(
        plan, carrier, tmp_path / "server", signatures=server(pki), on_event=events.append
    )  # fmt: skip
    assert_same_bits(model, federated(plan, CORPORA, tmp_path / "grpc", pki).model)
    plain = train(plan, CORPORA, policies=POLICIES)
    assert model.vocabulary.words == plain.vocabulary.words
    np.testing.assert_allclose(model.beta, plain.beta, atol=2e-6)
    assert_all_have(model, tmp_path)
    secrets = {n: Secret.from_seed(plan.seed, n).derive("masked sums") for n in SIZES}
    doors: Any = {n: MaskedDoor(cast(Any, None), n, secrets[n], bytes) for n in SIZES}
    digest = roster_digest({name: door.key for name, door in doors.items()})
    for name, client in carrier.answers.items():
        told = events.of("roster") + cast(Any, client).events.of("roster")
        assert [event["digest"] for event in told] == [digest] * 2
        functions = {row["function"] for row in summarise_ledger(tmp_path / name / "ledger.jsonl")}
        assert {said.KEY, said.CHOSEN, said.COMMITTED} < functions


@pytest.mark.parametrize("stage", [said.ADDED, said.OPENED])
def test_a_process_that_is_killed_behind_a_stage_goes_on(
    stage: str, pki: Path, tmp_path: Path
) -> None:
    """It wrote down what it answered, and nobody got that; the next one says nothing else."""
    plan, carrier, events = study(WHOLE, gather=10.0), signing(pki, tmp_path), Notes()
    client: Any = carrier.answers["north"]
    killed = []

    def dies(message: bytes) -> bytes | None:
        answer: bytes | None = client(message)
        asked = [event["function"] for event in client.events.of("call")]
        if stage in asked and not killed:
            killed.append(stage)
            client.restart()
            return None
        return answer

    carrier.answers["north"] = dies
    model = run(plan, carrier, tmp_path / "server", signatures=server(pki), on_event=events.append)
    assert killed
    assert "it was restarted" in [event["reason"] for event in events.of("joined")]
    assert not events.of("bad reply") + events.of("voided")
    np.testing.assert_allclose(model.beta, undisturbed().beta, atol=2e-6)
    assert_all_have(model, tmp_path)
    replies = {row[2:] for row in left(tmp_path / "north/ledger.jsonl")}
    assert len({moment for moment, *_ in replies}) == len(replies), "one reply for each moment"


def test_all_processes_die_at_once_and_the_run_goes_on(pki: Path, tmp_path: Path) -> None:
    carrier, plan = signing(pki, tmp_path), study(WHOLE)

    def die(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 1:
            raise FederationError("killed")

    with pytest.raises(FederationError, match="killed"):
        run(plan, carrier, tmp_path / "server", signatures=server(pki), on_event=die)
    for client in carrier.answers.values():
        client.restart()  # type: ignore[attr-defined]
    model = run(plan, carrier, tmp_path / "server", signatures=server(pki), resume=True)
    np.testing.assert_allclose(model.beta, undisturbed().beta, atol=2e-6)
    assert_all_have(model, tmp_path)


@cache
def undisturbed() -> TopicModel:
    return train(study(WHOLE), CORPORA, policies=POLICIES)


def test_without_identities_masks_are_of_less_use(tmp_path: Path) -> None:
    """Each client is told, and one whose policy requires masks says no before anything leaves."""
    carrier, events = clients(CORPORA, tmp_path), Notes()
    policy = Policy(min_documents=1, min_document_frequency=1, secure="required")
    strict = Client("south", CORPORA["south"], tmp_path / "south", policy)
    carrier.answers["south"] = strict
    with pytest.raises(FederationError, match="fewer than min_clients = 3"):
        run(
            study(WHOLE, gather=2.0, wait=0.5), carrier, tmp_path / "server",
            on_event=events.append,
        )  # fmt: skip
    assert "its participants do not sign; give each of them an identity" in str(strict.errors[0])
    for name in SIZES:
        ledger = tmp_path / name / "ledger.jsonl"
        assert not ledger.exists() or not lines_that_left(ledger)
    client: Any = carrier.answers["north"]
    (offer,) = client.events.of("offer")
    assert "one that makes up clients, or keys of them, can read" in offer["unsigned"]
    assert "they hide nothing" in offer["seen"], "draws follow from the seed in these tests"
