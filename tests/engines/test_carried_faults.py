"""What fails between a server and clients that answer: answers, processes, names, signatures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import asdict, replace

from fedtopics.engines import carried
from fedtopics.engines.answering import CarriedParticipant
from fedtopics.engines.carried import (
    ASKS,
    UNKNOWN,
    WAITS,
    bundled,
    unbundled,
)
from fedtopics.engines.messages import Accept, Declined, Done, Reply, Waiting
from fedtopics.protocol.values import dumps
from fedtopics.errors import FederationError
from fedtopics.federation.ledger import summarise_ledger
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.methods.core.events import OnEvent
from fedtopics.methods.core.plan import Secret
from fedtopics.model.topic_model import TopicModel
from fedtopics.pki import Identity, Signer, create, issue
from fedtopics.secure import said
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.keys import roster_digest
from tests.helpers.carriers import (
    METHODS,
    POLICIES,
    SIZES,
    Client,
    FakeCarrier,
    Notes,
    clients,
    planned,
    run,
)
from tests.helpers.federation import assert_same_bits, embedded, subjects
from tests.helpers.grpc_federation import authority, federated
from tests.helpers.ledgers import left, lines_that_left
from tests.helpers.streams import DRIFT, flda, stream

CORPORA = subjects(SIZES)
LINK = b"the link"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look and offer again at once."""
    monkeypatch.setattr(carried, "LOOK", 0.01)
    monkeypatch.setattr(carried, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(carried, "LONGEST_PAUSE", 0.02)


def small(**federation: Any) -> Study:
    return planned("lda", **federation).with_clients(CORPORA)


def after(events: Notes, number: int, work: Callable[[], None]) -> OnEvent:
    """Follow a run; do something after a round."""

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "round" and event["round"] == number:
            work()

    return follow


def assert_all_have(model: TopicModel, folder: Path, names: Any = SIZES) -> None:
    for name in names:
        assert_same_bits(TopicModel.from_pretrained(folder / name / "model"), model)


def test_lost_answers_change_no_bit(tmp_path: Path) -> None:
    carrier, events = clients(CORPORA, tmp_path), Notes()
    for name, client in carrier.answers.items():
        carrier.answers[name] = losing(client, 4)
    model = run(small(), carrier, tmp_path / "server", on_event=events.append)
    assert_same_bits(model, train(small(), CORPORA, policies=POLICIES))
    assert_all_have(model, tmp_path)
    assert events.of("lost")
    assert all(event["clients"] == sorted(SIZES) for event in events.of("round"))


def losing(client: Any, every: int) -> Callable[[bytes], bytes | None]:
    def answer(message: bytes) -> bytes | None:
        said: bytes | None = client(message)
        return None if client.bundles % every == 0 else said

    return answer


@pytest.mark.parametrize("number", range(1, 13, 2))
def test_a_killed_process_goes_on(number: int, tmp_path: Path) -> None:
    """Whenever it is: the next one is offered the study, and gets the decisions that it missed."""
    carrier, events = clients(CORPORA, tmp_path), Notes()
    client: Any = carrier.answers["north"]

    def killed(message: bytes) -> bytes | None:
        if client.bundles == number:
            client.restart()
        said: bytes | None = client(message)
        return said

    carrier.answers["north"] = killed
    plan = small(gather=10, pause=0.15)
    model = run(plan, carrier, tmp_path / "server", on_event=events.append)
    assert_all_have(model, tmp_path)
    assert client.bundles > number
    assert events.of("round")[-1]["clients"] == sorted(SIZES)
    replies = {row[2:] for row in left(tmp_path / "north/ledger.jsonl")}
    assert len({moment for moment, *_ in replies}) == len(replies), "one reply for each moment"


def test_a_killed_process_answers_nothing_while_decisions_are_on_their_way(tmp_path: Path) -> None:
    """There are more than go in one message, and it has no checkpoint."""
    carrier, events = clients(CORPORA, tmp_path), Notes()
    plan = planned("local steps", gather=10, pause=0.02).with_clients(CORPORA)
    settings = plan.method.model_copy(update={"max_rounds": 40})
    plan = plan.model_copy(update={"checkpoint_every": 100, "method": settings})
    client: Any = carrier.answers["north"]
    follow = after(events, 20, client.restart)
    model = run(plan, carrier, tmp_path / "server", on_event=follow)
    assert "it was restarted" in [event["reason"] for event in events.of("joined")]
    assert events.of("round")[-1]["clients"] == sorted(SIZES)
    assert_all_have(model, tmp_path)


def test_a_client_that_is_away_is_left_out_and_comes_back(tmp_path: Path) -> None:
    carrier, events = clients(CORPORA, tmp_path), Notes()

    def follow(event: dict[str, Any]) -> None:
        after(events, 2, lambda: carrier.away.add("north"))(event)
        if event["event"] == "round" and event["round"] == 4:
            carrier.away.clear()

    model = run(small(pause=0.1), carrier, tmp_path / "server", on_event=follow)
    rounds = {event["round"]: event for event in events.of("round")}
    assert rounds[2]["clients"] == sorted(SIZES)
    assert rounds[4]["clients"] == ["east", "south"]
    assert rounds[4]["missing"] == {"north": "not connected"}
    assert events.of("finished")[0]["received"] == sorted(SIZES)
    assert_all_have(model, tmp_path)


def test_the_reason_to_decline_stays_with_the_client(tmp_path: Path) -> None:
    carrier, events = clients(CORPORA, tmp_path), Notes()
    closed = Policy(methods=("flda",))
    strict = Client("south", CORPORA["south"], tmp_path / "south", closed)
    carrier.answers["south"] = strict
    model = run(small(gather=2.0), carrier, tmp_path / "server", on_event=events.append)
    assert list(model.shares) == ["east", "north"]
    assert not (tmp_path / "south/ledger.jsonl").exists()
    assert "does not allow the method 'lda'" in str(strict.errors[0])
    assert strict.bundles == 1, "it is not offered the study again"
    assert [event["client"] for event in events.of("declined")] == ["south"]
    assert "does not allow" not in str(events)


@pytest.mark.parametrize(
    "damage", [b"", b"x", b"x" * 99, LINK + WAITS + b"\x05" + bytes(7) + b"ab"]
)
def test_damaged_bundles(damage: bytes, tmp_path: Path) -> None:
    def never(_: Any) -> None:
        raise AssertionError("taken for an offer")

    assert unbundled(CarriedParticipant("a", never).answer(damage).ljust(9, b"u"))[1] == UNKNOWN
    carrier = clients(CORPORA, tmp_path)
    carrier.answers["south"] = lambda message: damage and message[:8] + damage[8:]
    model = run(small(gather=2.0), carrier, tmp_path / "server")
    assert list(model.shares) == ["east", "north"]


def test_a_bundle_is_its_messages() -> None:
    for messages in ([], [Waiting(3)], [Waiting(3), Done(), Waiting(4)]):
        raw = bundled(LINK, ASKS, [dumps(message) for message in messages])
        link, state, found = unbundled(raw)
        assert (link, state) == (LINK, ASKS)
        assert [asdict(each) for each in found] == [asdict(each) for each in messages]
        with pytest.raises(FederationError):
            unbundled(raw + b"x")
        with pytest.raises(FederationError):
            unbundled(raw, largest=1) if messages else unbundled(raw[:8])


# Names


def test_an_engine_that_vouches_for_names_is_believed_more_than_clients(tmp_path: Path) -> None:
    carrier, events = clients(CORPORA, tmp_path), Notes()
    carrier.vouches = True
    impostor = Client("north", CORPORA["south"], tmp_path / "impostor")
    carrier.answers = {"south": impostor, **{n: carrier.answers[n] for n in ("east", "north")}}
    model = run(small(gather=2.0), carrier, tmp_path / "server", on_event=events.append)
    assert list(model.shares) == ["east", "north"]
    (refused,) = events.of("refused")
    assert "calls itself 'north', and its certificate is of 'south'" in refused["reason"]
    assert not left(tmp_path / "impostor/ledger.jsonl")


@pytest.mark.parametrize("says", ["accept", "decline"])
def test_nobody_speaks_for_somebody_else(says: str, tmp_path: Path) -> None:
    """Who accepts twice, under two names, is sent away; who declines for others declines."""
    carrier, events = clients(CORPORA, tmp_path), Notes()
    carrier.answers = dict(sorted(carrier.answers.items()))
    honest: Any = carrier.answers["south"]
    plan = small(gather=2.0)
    lie = Accept("east", plan.fingerprint, b"another!", 1, b"", b"")

    def lying(message: bytes) -> bytes:
        link, state, messages = unbundled(honest(message))
        if honest.bundles > 4:
            messages.append(lie if says == "accept" else Declined("east"))
        return bundled(link, state, [dumps(each) for each in messages])

    carrier.answers["south"] = lying
    run(plan, carrier, tmp_path / "server", on_event=events.append)
    assert "south" in {event["client"] for event in events.of("lost") + events.of("declined")}
    assert "east" not in {event["client"] for event in events.of("lost") + events.of("declined")}
    assert all("east" in event["clients"] for event in events.of("round"))


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("pki"), *SIZES)


def signer(folder: Path, name: str = "") -> Signer:
    if name:
        return Signer(Identity.load(folder / "clients" / name, "client"))
    return Signer(Identity.load(folder / "server", "server"))


def signing(pki: Path, folder: Path) -> FakeCarrier:
    return FakeCarrier(
        {
            name: Client(name, data, folder / name, signatures=signer(pki, name))
            for name, data in CORPORA.items()
        }
    )


@pytest.mark.parametrize("whose", ["south", "another authority", "nobody"])
def test_nobody_joins_under_a_name_without_its_key(whose: str, pki: Path, tmp_path: Path) -> None:
    """Not with another's key, nor with a certificate by that name of another authority."""
    carrier, events = signing(pki, tmp_path), Notes()
    if whose == "another authority":
        create(tmp_path / "other", ["localhost"])
        issue(tmp_path / "other", "north")
        key: Any = signer(tmp_path / "other", "north")
    elif whose == "south":
        key = signer(pki, "south")
        key.certificate = signer(pki, "north").certificate
    else:
        key = None
    impostor = Client("north", CORPORA["south"], tmp_path / "impostor", signatures=key)
    carrier.answers["north"] = impostor
    plan = small(gather=2.0)
    model = run(plan, carrier, tmp_path / "server", on_event=events.append, signatures=signer(pki))
    assert list(model.shares) == ["east", "south"]
    reason = events.of("refused")[0]["reason"]
    sentences = {
        "south": "has not signed with the key of its certificate",
        "another authority": "is not of this study's authority",
        "nobody": "has shown no certificate",
    }
    assert sentences[whose] in reason
    assert not left(tmp_path / "impostor/ledger.jsonl")


def test_a_client_with_an_identity_wants_those_of_the_others(pki: Path, tmp_path: Path) -> None:
    """Else a server could make up clients, and tell each one something else."""
    carrier = signing(pki, tmp_path)
    with pytest.raises(FederationError):
        run(small(gather=2.0, wait=0.5), carrier, tmp_path / "server")
    client: Any = carrier.answers["north"]
    assert "The server shows no certificate, and this client has an identity" in str(
        client.errors[0]
    )
    for name in SIZES:
        assert not left(tmp_path / name / "ledger.jsonl"), "nothing has left"


def test_without_identities_a_client_is_told_what_that_means(tmp_path: Path) -> None:
    carrier = clients(CORPORA, tmp_path)
    run(small(), carrier, tmp_path / "server")
    client: Any = carrier.answers["north"]
    (offer,) = client.events.of("offer")
    assert "Participants do not sign here" in offer["unsigned"]


def test_a_wrong_signature_under_a_reply(pki: Path, tmp_path: Path) -> None:
    carrier, events = signing(pki, tmp_path), Notes()
    honest: Any = carrier.answers["south"]

    def lying(message: bytes) -> bytes:
        link, state, messages = unbundled(honest(message))
        for place, each in enumerate(messages):
            if isinstance(each, Reply) and each.index > 4:
                messages[place] = replace(each, signature=b"another's")
        return bundled(link, state, [dumps(each) for each in messages])

    carrier.answers["south"] = lying
    plan = small(pause=0.1)
    run(plan, carrier, tmp_path / "server", on_event=events.append, signatures=signer(pki))
    assert {event["reason"] for event in events.of("bad reply")} == {
        "sent a bad reply: its signature does not fit"
    }
    (excluded,) = events.of("excluded")
    assert excluded["client"] == "south"


# A server that goes on


def test_too_few_clients_end_the_run_and_it_goes_on(tmp_path: Path) -> None:
    carrier = clients(CORPORA, tmp_path)
    plan = small(wait=0.5).model_copy(update={"checkpoint_every": 1})
    follow = after(Notes(), 3, lambda: carrier.away.update(("north", "south")))
    with pytest.raises(FederationError, match="fewer than min_clients = 2"):
        run(plan, carrier, tmp_path / "server", on_event=follow)
    carrier.away.clear()
    model = run(plan, carrier, tmp_path / "server", resume=True)
    assert_same_bits(model, train(plan, CORPORA, policies=POLICIES))
    assert_all_have(model, tmp_path)


# Masked sums over an engine that carries a message and its answer, as Flower and FLARE do


DRAWN, WHOLE = "sync", "nmf"


@cache
def study(case: str, **federation: Any) -> Study:
    plan = planned(case, **federation).with_clients(CORPORA)
    method = plan.method.model_copy(update={"max_rounds": 2})
    return plan.model_copy(update={"method": method, "secure": True})


def test_seeded_masks_are_everybodys_and_the_bits_those_of_grpc(pki: Path, tmp_path: Path) -> None:
    plan, events, carrier = study(DRAWN), Notes(), signing(pki, tmp_path)
    model = run(
        plan, carrier, tmp_path / "server", signatures=signer(pki), on_event=events.append
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
    plan, carrier, events = (
        study(WHOLE, gather=10.0),
        signing(pki, tmp_path),
        Notes(),
    )
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
    model = run(
        plan,
        carrier,
        tmp_path / "server",
        signatures=signer(pki),
        on_event=events.append,
    )
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
        run(plan, carrier, tmp_path / "server", signatures=signer(pki), on_event=die)
    for client in carrier.answers.values():
        client.restart()  # type: ignore[attr-defined]
    model = run(plan, carrier, tmp_path / "server", signatures=signer(pki), resume=True)
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


# Studies over an engine that carries a message and its answer


@pytest.mark.parametrize("case", [*METHODS, "flda"])
def test_every_client_ends_with_the_bits_of_one_process(case: str, tmp_path: Path) -> None:
    if case == "flda":
        pytest.importorskip("tomotopy")
        plan, corpora = flda(), dict(zip(SIZES, stream(DRIFT).values(), strict=True))
    else:
        plan, corpora = planned(case), embedded(subjects(SIZES))
    here = train(plan, corpora, policies=POLICIES, out=tmp_path / "local")
    carrier = clients(corpora, tmp_path)
    there = run(plan.with_clients(corpora), carrier, tmp_path / "server")
    assert_same_bits(there, here)
    for name in SIZES:
        assert_same_bits(TopicModel.from_pretrained(tmp_path / name / "model"), here)
        ledger = left(tmp_path / name / "ledger.jsonl")
        assert ledger == left(tmp_path / "local/clients" / name / "ledger.jsonl")
