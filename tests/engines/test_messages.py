"""Studies over an engine that carries messages, to clients that forget all between two of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import wire_pb2 as wire
from fedtopics.engines.message_client import MessageClient
from fedtopics.engines.messages import from_message, to_message
from fedtopics.engines.values import pack, unpack
from fedtopics.errors import FederationError
from fedtopics.federation.policy import OPEN_POLICY, Policy
from fedtopics.federation.server import lead
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from tests.helpers.carriers import Joining, RestartingClient, led, restarting_clients
from tests.helpers.federation import assert_same, assert_same_bits, embedded, study, subjects
from tests.helpers.grpc_federation import PROPOSAL, VERSIONS, Half, Notes, door
from tests.helpers.streams import DRIFT, flda, stream

SIZES = {"east": 60, "north": 40, "south": 25}
POLICIES = dict.fromkeys(SIZES, OPEN_POLICY)
CLUSTERS = {"n_components": 3, "max_rounds": 4, "embedding": {"dimension": 7}}
METHODS: dict[str, dict[str, Any]] = {
    "sync": {"max_rounds": 6, "norm": "sync", "validation_share": 0.25, "validate_every": 2},
    "local steps": {"max_rounds": 6, "norm": "server", "optimizer": "fedavg", "local_steps": 3},
    "lda": {"name": "lda", "n_components": 4, "max_rounds": 6},
    "kmeans": {"name": "kmeans", **CLUSTERS},
    "discriminative": {"name": "discriminative", **CLUSTERS},
    "fstc": {"name": "fstc", **CLUSTERS},
}


def planned(case: str, **federation: Any) -> Study:
    method = METHODS[case]
    if "name" not in method:
        return study(**method).model_copy(
            update={"federation": Study.make(federation=federation).federation}
        )
    return Study.make(
        method=method, vocabulary={"min_document_frequency": 1}, checkpoint_every=2,
        federation=federation,
    )  # fmt: skip


def ledger(path: Path) -> list[tuple[Any, ...]]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(line["function"], line["round"], line["bytes"], line["sha256"]) for line in lines]


@pytest.mark.parametrize("case", [*METHODS, "flda"])
def test_a_process_a_message_has_the_same_bits(case: str, tmp_path: Path) -> None:
    if case == "flda":
        pytest.importorskip("tomotopy")
        plan, corpora = flda(), dict(zip(SIZES, stream(DRIFT).values(), strict=True))
    else:
        plan, corpora = planned(case), embedded(subjects(SIZES))
    here = train(plan, corpora, policies=POLICIES, out=tmp_path / "local")
    there, _ = led(plan, corpora, tmp_path / "led")

    assert there.topics() == here.topics()
    assert_same(dict(there.shares), dict(here.shares))
    if case in ("sync", "local steps"):
        assert_same_bits(there, here)
    for name in SIZES:
        left = ledger(tmp_path / "led" / name / "ledger.jsonl")
        assert left == ledger(tmp_path / "local/clients" / name / "ledger.jsonl")
        assert (tmp_path / "led" / name / "model/topics.json").exists()
        assert not list((tmp_path / "led" / name / "journal").iterdir())


@pytest.mark.parametrize("case", ["kmeans", "fstc"])
def test_a_new_process_has_the_state_of_the_last_one(case: str, tmp_path: Path) -> None:
    """Documents go from cluster to cluster in groups only, which needs the labels of before."""
    plan, corpora = planned(case), embedded(subjects(SIZES))
    policy = Policy(min_documents=4, min_document_frequency=1)
    policies = dict.fromkeys(SIZES, policy)
    here = train(plan, corpora, policies=policies, out=tmp_path / "local")
    carrier = restarting_clients(corpora, tmp_path, policy)
    there = lead(plan.with_clients(corpora), carrier, tmp_path / "server")
    assert there.topics() == here.topics()
    for name in SIZES:
        left = ledger(tmp_path / "local/clients" / name / "ledger.jsonl")
        assert ledger(tmp_path / name / "ledger.jsonl") == left


def test_a_half_written_message_is_none(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    half = Half({"ask": lambda **_: {"documents": 3}})

    def restarted() -> MessageClient:
        joining = Joining(door("a", half))
        return MessageClient("a", joining, VERSIONS, Notes(), journal)

    restarted().answer(to_message(wire.Frame(offer=_offer())))
    (journal / "round-1-1-000000000007.part").write_bytes(b"half")
    call = wire.Call(id=8, round=1, attempt=1, function="ask", body=pack({}).header)
    answered = from_message(restarted().answer(to_message(wire.Frame(call=call))))[0]
    assert answered.HasField("reply")


def test_an_address_has_one_name(tmp_path: Path) -> None:
    """A second accept from the same address makes it a client that was lost, not two clients."""
    plan, corpora = planned("lda", gather=0.5), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)
    honest, calls = carrier.answers["south"], []

    def imcarrieror(message: bytes) -> bytes | None:
        frame, _ = from_message(message)
        if frame.HasField("call"):
            calls.append(frame.call.function)
            accept = wire.Accept(fingerprint=plan.with_clients(corpora).fingerprint, name="north")
            return to_message(wire.Frame(accept=accept))
        return honest(message)

    carrier.answers["south"] = imcarrieror
    model = lead(plan.with_clients(corpora), carrier, tmp_path / "server")
    assert list(model.shares) == ["east", "north"]
    assert calls[0] == "vocabulary"


def test_a_name_that_was_taken_is_offered_the_study_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedtopics.engines.message_roster.OFFER_AGAIN", 0.0)
    monkeypatch.setattr("fedtopics.engines.message_roster.LOOK", 0.0)
    plan, corpora = planned("lda"), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)
    carrier.answers["z"] = RestartingClient("north", corpora["north"], tmp_path / "again")
    events = Notes()

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "round" and event["round"] == 2:
            carrier.away = {"north"}

    lead(plan.with_clients(corpora), carrier, tmp_path / "server", on_event=follow)
    assert [note["client"] for note in events.of("joined")].count("north") == 2
    assert events.of("round")[-1]["clients"] == sorted(SIZES)


def test_a_policy_that_forbids_the_method(tmp_path: Path) -> None:
    plan, corpora = planned("lda", gather=0.5), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)
    strict = RestartingClient(
        "south", corpora["south"], tmp_path / "south", Policy(methods=("flda",))
    )
    carrier.answers["south"] = strict
    model = lead(plan.with_clients(corpora), carrier, tmp_path / "server")
    assert list(model.shares) == ["east", "north"]
    assert not (tmp_path / "south/ledger.jsonl").exists()
    (declined,) = strict.events.of("declined")
    assert "does not allow the method 'lda'" in declined["reason"]
    events = (tmp_path / "server/events.jsonl").read_text(encoding="utf-8")
    assert '"declined"' in events
    assert "does not allow" not in events, "the reason stays with the client"


def test_a_client_that_is_lost_is_left_out_and_comes_back(tmp_path: Path) -> None:
    plan, corpora = planned("lda"), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)
    events = Notes()

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "round" and event["round"] == 2:
            carrier.away = {"north"}
        if event["event"] == "round" and event["round"] == 4:
            carrier.away = set()

    lead(plan.with_clients(corpora), carrier, tmp_path / "server", on_event=follow)
    rounds = {event["round"]: event for event in events.of("round")}
    assert rounds[2]["clients"] == sorted(SIZES)
    assert rounds[4]["clients"] == ["east", "south"]
    assert rounds[4]["missing"] == {"north": "not connected"}
    assert [note["client"] for note in events.of("lost")] == ["north"]


def test_too_few_clients_end_the_run_and_it_goes_on(tmp_path: Path) -> None:
    plan, corpora = planned("sync", wait=0.5), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)

    def break_down(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 3:
            carrier.away = {"north", "south"}

    out = tmp_path / "server"
    plan = plan.model_copy(update={"checkpoint_every": 1}).with_clients(corpora)
    with pytest.raises(FederationError, match="fewer than min_clients = 2"):
        lead(plan, carrier, out, on_event=break_down)
    carrier.away = set()
    model = lead(plan, carrier, out, resume=True)
    assert_same_bits(model, train(plan, corpora, policies=POLICIES))


def test_names_that_are_wrong_or_taken(tmp_path: Path) -> None:
    plan, corpora = planned("lda", gather=0.5), subjects(SIZES)
    carrier = restarting_clients(corpora, tmp_path)
    carrier.answers["z1"] = RestartingClient("west", corpora["east"], tmp_path / "z1")
    carrier.answers["z2"] = RestartingClient("east", corpora["east"], tmp_path / "z2")
    events = Notes()
    model = lead(plan.with_clients(corpora), carrier, tmp_path / "server", on_event=events.append)
    assert list(model.shares) == sorted(SIZES)
    reasons = {note["client"]: note["reason"] for note in events.of("refused")}
    assert "The study has no client named 'west'" in reasons["west"]
    assert "is connected already" in reasons["east"]


@pytest.mark.parametrize("damage", [b"", b"\x05" + b"\x00" * 7 + b"ab", b"x" * 99])
def test_damaged_messages(damage: bytes) -> None:
    client = MessageClient("a", Joining(door("a", Half({}))), VERSIONS, Notes())
    with pytest.raises(FederationError, match="A message"):
        client.answer(damage)


def test_a_message_is_its_frame_and_its_body() -> None:
    for array in (np.arange(3.0), np.arange(30_000.0)):
        packed = pack({"x": array})
        call = wire.Call(id=7, function="f", body=packed.header)
        frame, buffer = from_message(to_message(wire.Frame(call=call), packed))
        assert frame.call.id == 7
        assert_same(unpack(frame.call.body, buffer), {"x": array})
        with pytest.raises(FederationError, match="another length"):
            from_message(to_message(wire.Frame(call=call), packed) + b"x")


def test_a_call_that_comes_again_is_answered_with_the_same_bytes() -> None:
    half = Half({"ask": lambda **_: {"documents": 3}})
    offer = _offer()
    client = MessageClient("a", Joining(door("a", half)), VERSIONS, Notes())
    first = from_message(client.answer(to_message(wire.Frame(offer=offer))))[0]
    assert (first.accept.name, first.accept.fingerprint) == ("a", "f00d")
    call = to_message(wire.Frame(call=wire.Call(id=1, function="ask", body=pack({}).header)))
    answer = client.answer(call)
    assert client.answer(call) == answer
    assert half.calls == ["ask"]


def _offer() -> wire.Offer:
    return PROPOSAL.offer(b"run")
