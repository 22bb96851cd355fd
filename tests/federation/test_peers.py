"""Studies without a server: each ends with the bits of one process, whoever adds and is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics import pki
from fedtopics.errors import IdentityError, StudyError
from fedtopics.federation.peer import PeerParticipation
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study, adders
from tests.helpers.background import KilledError, until
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.grpc_federation import federated
from tests.helpers.ordinary import difference
from tests.helpers.peers import Peer, quickly, with_addresses

__all__ = ["quickly"]
pytestmark = pytest.mark.usefixtures("quickly")
CORPORA = subjects({"east": 60, "north": 50, "south": 40})
OPEN = dict.fromkeys(CORPORA, OPEN_POLICY)


def planned(rounds: int = 8, **method: Any) -> Study:
    """A study of the three, at free ports; a round needs two of them."""
    plan = study(max_rounds=rounds) if not method else Study.make(method=method, secure=False)
    plan = plan.model_copy(update={"checkpoint_every": 5})
    return with_addresses(plan, list(CORPORA))


def begun(plan: Study, folder: Path, **events: Any) -> dict[str, Peer]:
    return {
        name: Peer(plan, name, corpus, folder, on_event=events.get(name))
        for name, corpus in CORPORA.items()
    }


METHODS: list[dict[str, Any]] = [
    {"name": "gfedntm", "n_components": 4, "hidden": [8, 8], "batch_size": 32, "max_rounds": 8},
    {"name": "lda", "n_components": 4, "batch_size": 32, "max_rounds": 8},
    {"name": "flda", "n_components": 4, "min_new_documents": 1, "max_rounds": 1},
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method["name"])
def test_all_have_the_bits_of_one_process(method: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(**method)
    peers = begun(plan, tmp_path)
    expected = train(plan, CORPORA, policies=OPEN, at_once=False)
    for each in peers.values():
        assert_same_bits(each.model(), expected)
        assert {event["client"] for event in each.events.of("adds")} == {adders(plan)[0]}


def test_over_tls_with_the_first_adder_late(tmp_path: Path) -> None:
    pki.create_authority(tmp_path / "pki")
    plan = planned()
    identities = {name: pki.issue(tmp_path / "pki", name, peer=True) for name in CORPORA}
    first, *others = adders(plan)
    peers = [Peer(plan, n, CORPORA[n], tmp_path, identities[n]) for n in others]
    until(lambda: bool(peers[0].events.of("adds")))
    assert not peers[0].rounds, "at its start, the study waits for all"
    peers.append(Peer(plan, first, CORPORA[first], tmp_path, identities[first]))
    expected = train(plan, CORPORA, policies=OPEN, at_once=False)
    for each in peers:
        assert_same_bits(each.model(), expected)
    assert "secret" in (peers[0].folder / "ledger.jsonl").read_text().splitlines()[0]


def killed_after(round_: int) -> Any:
    def notify(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == round_:
            raise KilledError

    return notify


def test_the_next_one_adds_and_who_comes_back_catches_up(tmp_path: Path) -> None:
    plan = planned(30)
    first, second, third = adders(plan)
    back: list[Peer] = []

    def wait(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 12 and not back:
            peers[first].error()
            back.append(Peer(plan, first, CORPORA[first], tmp_path))
            members = peers[second].node.members
            until(lambda: members[first].turn > members[second].turn)  # it waits for the next one

    peers = begun(plan, tmp_path, **{first: killed_after(6), second: wait})
    assert isinstance(peers[first].error(), KilledError)
    models = [each.model() for each in (peers[second], peers[third])]
    for model in (models[1], back[0].model()):
        assert_same_bits(model, models[0])
    assert [event["client"] for event in peers[third].events.of("adds")] == [first, second]
    rounds = {event["round"]: event for event in peers[third].rounds}
    assert list(rounds) == list(range(1, 31))
    assert [number for number in rounds if first in rounds[number]["clients"]] > [1, 2, 3, 4, 5, 6]
    assert first in rounds[8]["missing"]
    assert first in rounds[30]["clients"]
    assert back[0].rounds[0]["round"] == 6, "it goes on behind its checkpoint"


def test_a_minority_never_goes_on(tmp_path: Path) -> None:
    plan = planned(12)
    first, second, third = adders(plan)

    def wait(event: dict[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == 8:
            until(lambda: all(len(peers[name].rounds) > 1 for name in (first, second)))

    stops = {first: killed_after(5), second: killed_after(5), third: wait}
    peers = begun(plan, tmp_path, **stops)
    for name in (first, second):
        assert isinstance(peers[name].error(), KilledError)
    left = peers[third]
    until(lambda: bool(left.events.of("no majority")[-1:]) and not left.node.members[first].link)
    until(lambda: left.events.of("no majority")[-1]["clients"] == [third])
    done = len(left.rounds)
    assert done in (5, 6)
    with pytest.raises(AssertionError):
        until(lambda: len(left.rounds) > done, seconds=2)
    peers |= {name: Peer(plan, name, CORPORA[name], tmp_path) for name in (first, second)}
    models = [each.model() for each in peers.values()]
    for model in models[1:]:
        assert_same_bits(model, models[0])


def test_another_study_ends_nobody_elses(tmp_path: Path) -> None:
    plan = planned()
    plan = Study.make(**{**plan.model_dump(), "federation": {"gather": 1.0}})
    *names, odd = adders(plan)
    other = Study.make(**{**plan.model_dump(), "seed": 7})
    told: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        if event["event"] == "refused":
            told.append(event["reason"])
        elif event["event"] == "round":
            until(lambda: told)

    stranger = Peer(other, odd, CORPORA[odd], tmp_path, on_event=listen)
    peers = [Peer(plan, name, CORPORA[name], tmp_path, on_event=listen) for name in names]
    assert_same_bits(*(each.model() for each in peers))
    assert plan.fingerprint in told[0]
    assert other.fingerprint in told[0]
    assert not stranger.rounds
    stranger.kill()


def test_no_place_in_the_study(tmp_path: Path) -> None:
    plan = planned()
    pki.create_authority(tmp_path)
    client = pki.issue(tmp_path, "north")
    given = {"out": None, "corpus": CORPORA["north"], "policy": OPEN_POLICY}
    with pytest.raises(StudyError, match="The study has no addresses, so it needs a server"):
        PeerParticipation(study().with_clients(["north"]), None, "", name="north", **given)
    with pytest.raises(StudyError, match="no participant 'west', only east, north, south"):
        PeerParticipation(plan, None, "", name="west", **given)
    with pytest.raises(IdentityError, match="issue north --renew --peer"):
        PeerParticipation(plan, client, "", **given)
    clients = {"north": {}, "south": {"address": "127.0.0.1:1"}}
    hidden = Study.make(clients=clients)
    with pytest.raises(StudyError, match="no address of 'north', so nobody connects to it"):
        PeerParticipation(hidden, client, "127.0.0.1:2", **given)
    PeerParticipation(hidden, client, "", **given)


def test_all_begin_with_the_same_model(tmp_path: Path) -> None:
    first, other = (train(planned(rounds), CORPORA, policies=OPEN) for rounds in (3, 2))
    plan = planned(4)
    peers = [Peer(plan, n, c, tmp_path / "same", start=first) for n, c in CORPORA.items()]
    expected = train(plan, CORPORA, policies=OPEN, start=first, vocabulary="keep", at_once=False)
    for each in peers:
        assert_same_bits(each.model(), expected)
    two = {
        name: Peer(plan, name, CORPORA[name], tmp_path / "other", start=model)
        for name, model in zip(CORPORA, (first, other), strict=False)
    }

    def objections() -> list[str]:
        return [event["reason"] for each in two.values() for event in each.events.of("refused")]

    until(lambda: bool(objections()))
    assert "name the same one with --start everywhere" in objections()[0]
    for each in two.values():
        each.kill()


@pytest.mark.parametrize("method", METHODS[:2], ids=lambda method: method["name"])
def test_masked_sums_have_the_same_bits_whoever_adds(
    method: dict[str, Any], tmp_path: Path
) -> None:
    plan = planned(**method).model_copy(update={"secure": True})
    peers = begun(plan, tmp_path)
    served = federated(plan, CORPORA, tmp_path / "server")
    for each in peers.values():
        assert_same_bits(each.model(), served.model)
        assert each.events.of("roster"), "it is masked"
        assert {event["client"] for event in each.events.of("adds")} == {adders(plan)[0]}
    plain = train(plan.model_copy(update={"secure": False}), CORPORA, policies=OPEN)
    assert difference(served.model.weights, plain.weights) < 2e-6
    assert served.model.topics() == plain.topics()
