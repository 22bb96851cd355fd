"""Studies between machines: what each side ends with, what leaves a client, odd clients."""

from __future__ import annotations

import json
import os
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError, FedTopicsError, PolicyError
from fedtopics.federation.client import GrpcParticipation
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.methods.gfedntm.client import GFedNTMClient
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.grpc_federation import (
    HOST,
    Outcome,
    authority,
    federated,
)

SIZES = {"east": 50, "north": 40, "south": 30}
PATIENT = FederationSettings(min_clients=2, deadline=60, gather=60, wait=60)
USUAL = Policy(min_documents=10)
CANARIES = ("quetzalcoatl", "zanzibarfigs", "xylophagous")
FULL = Path("/dev/full")


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)


def planned(**method: object) -> Study:
    plan = study(**{"max_rounds": 4, **method})
    return plan.model_copy(update={"federation": PATIENT})


def with_canaries() -> dict[str, Corpus]:
    """Documents in which a canary stands once a client, and some that are empty."""
    corpora = {}
    for (name, corpus), canary in zip(subjects(SIZES).items(), CANARIES, strict=True):
        documents = [list(words) for words in corpus.documents.to_pylist()]
        documents[7].append(canary)
        corpora[name] = Corpus.of([[], *documents, []])
    return corpora


def content(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return b"".join(path.read_bytes() for path in files)


# What each side ends with


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A study with mutual TLS, of which all is kept."""
    folder = tmp_path_factory.mktemp("finished")
    pki = authority(folder / "pki", *SIZES)
    plan = planned().model_copy(update={"checkpoint_every": 2})
    return folder, federated(plan, with_canaries(), folder, pki, policy=USUAL)


def test_every_client_has_the_servers_model(finished: tuple[Path, Outcome]) -> None:
    folder, outcome = finished
    files = {path.name: path.read_bytes() for path in (folder / "server/model").iterdir()}
    assert "model.safetensors" in files
    for name in SIZES:
        given = {path.name: path.read_bytes() for path in (folder / name / "model").iterdir()}
        assert given == files
        assert_same_bits(TopicModel.from_pretrained(folder / name / "model"), outcome.model)
    assert outcome.events.of("finished")[0]["received"] == sorted(SIZES)


def test_the_model_is_that_of_one_process(finished: tuple[Path, Outcome]) -> None:
    policies = dict.fromkeys(SIZES, USUAL)
    assert_same_bits(
        finished[1].model, train(planned(), with_canaries(), policies=policies, at_once=False)
    )


def test_the_ledgers_hold_every_reply(finished: tuple[Path, Outcome]) -> None:
    folder, outcome = finished
    for name in SIZES:
        rows = {row["function"]: row for row in summarise_ledger(folder / name / "ledger.jsonl")}
        replies = {function: row["replies"] for function, row in rows.items()}
        assert replies == {
            "vocabulary": 1, "counted": 1, "forward": 8, "loss": 4, "backward": 8, "shares": 1,
            "word_sums": 1, "pairs": 2,
        }  # fmt: skip
        calls = [event["function"] for event in outcome.partners[name].events.of("call")]
        assert {function: calls.count(function) for function in replies} == replies
        asked = outcome.partners[name].events.of("offer")[0]["leaves"]
        assert asked.keys() == replies.keys() | {"size", "gradients"}


def test_what_few_documents_say_is_nowhere_on_the_server(finished: tuple[Path, Outcome]) -> None:
    folder, _ = finished
    everything = content(folder / "server")
    assert b"north1" in everything
    assert len(list((folder / "server/checkpoints").glob("*.safetensors"))) == 2
    for canary in CANARIES:
        assert canary.encode() not in everything
        for name in SIZES:
            assert canary.encode() not in content(folder / name)


# One client is another than it should be


def odd_client(
    tmp_path: Path, name: str = "north", policy: Policy | None = None
) -> GrpcParticipation:
    corpus = with_canaries()[name]
    return GrpcParticipation(
        f"{HOST}:1", None, corpus, policy or USUAL, tmp_path / name, name, secret_from_seed=True
    )


def with_one_odd(
    tmp_path: Path, odd: GrpcParticipation, gather: float = 60, pause: float = 0.0
) -> tuple[Outcome, BaseException | None]:
    settings = PATIENT.model_copy(update={"gather": gather, "pause": pause})
    plan = planned().model_copy(update={"federation": settings})
    outcome = federated(plan, with_canaries(), tmp_path, policy=USUAL, odd=odd)
    return outcome, outcome.partners[odd.name].error()


def told(outcome: Outcome, tmp_path: Path) -> str:
    """All that the server knows."""
    return json.dumps(outcome.events) + content(tmp_path / "server").decode("latin-1")


def test_a_raising_client_tells_nobody_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = GFedNTMClient.loss

    @wraps(GFedNTMClient.loss)
    def raising(self: GFedNTMClient, *given: Any, **named: Any) -> dict[str, Any]:
        if self.name == "south":
            raise ValueError(f"a document: {CANARIES[2]}")
        return loss(self, *given, **named)

    monkeypatch.setattr(GFedNTMClient, "loss", raising)
    outcome, error = with_one_odd(tmp_path, odd_client(tmp_path, "south"), pause=0.3)
    assert isinstance(error, FederationError)
    assert "excluded this client: 3 bad replies" in str(error)
    rounds = outcome.events.of("round")
    assert [event["clients"] for event in rounds] == [["east", "north"]] * 4
    assert [event["attempts"] for event in rounds] == [2, 2, 2, 1]
    reason = "it raised an unexpected error"
    assert [event["reason"] for event in outcome.events.of("bad reply")] == [reason] * 3
    defects = outcome.partners["south"].events.of("defect")
    assert [event["error"] for event in defects] == ["ValueError"] * 3
    said = json.dumps(defects) + str(error) + told(outcome, tmp_path)
    assert not any(canary in said for canary in CANARIES)
    assert "a document" not in said


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
def test_nothing_leaves_that_the_ledger_does_not_hold(tmp_path: Path) -> None:
    part, full = odd_client(tmp_path), os.open(FULL, os.O_WRONLY)
    consider = part.consider

    def fill_the_disk(*given: Any) -> tuple[Door, Path]:
        door = consider(*given)
        os.dup2(full, part._ledger._file.fileno())  # type: ignore[union-attr]
        return door

    part.consider = fill_the_disk  # type: ignore[method-assign]
    outcome, error = with_one_odd(tmp_path, part)
    os.close(full)
    assert isinstance(error, FedTopicsError)
    assert str(error) == (
        "The reply of turn 1 did not leave: No space left on device. Make room "
        "on the disk or in memory, then restart the client."
    )
    called = outcome.partners["north"].events.of("call")
    assert [event["function"] for event in called] == ["vocabulary"]
    left = [(event["client"], event["reason"]) for event in outcome.events.of("declined")]
    assert left == [("north", "its machine failed (disk or memory)")]
    assert outcome.events.of("round")[0]["clients"] == ["east", "south"]
    assert not any(word.startswith("north") for word in outcome.model.vocabulary.words)


def test_a_policy_refuses_in_the_middle_and_the_server_learns_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = GFedNTMClient.forward

    @wraps(GFedNTMClient.forward)
    def of_few(self: GFedNTMClient, *given: Any, **named: Any) -> dict[str, Any]:
        reply = forward(self, *given, **named)
        return reply | {"documents": 7} if self.name == "north" else reply

    monkeypatch.setattr(GFedNTMClient, "forward", of_few)
    outcome, error = with_one_odd(tmp_path, odd_client(tmp_path))
    assert isinstance(error, PolicyError)
    assert str(error) == (
        "The reply to 'forward' of client 'north' sums over 7 documents, its policy asks for 10; "
        "give the client more documents, or lower min_documents in its policy."
    )
    reason = "its own policy keeps the reply"
    assert outcome.events.of("round")[0]["missing"] == {"north": reason}
    left = [(event["client"], event["reason"]) for event in outcome.events.of("declined")]
    assert left == [("north", reason)]
    assert "policy asks" not in told(outcome, tmp_path)
    ledger = summarise_ledger(tmp_path / "north/ledger.jsonl")
    assert {row["function"] for row in ledger} == {"vocabulary", "counted"}
