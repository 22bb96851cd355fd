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
from tests.helpers.federation import assert_same_bits, killed_after, study, subjects
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


@pytest.mark.parametrize("method", METHODS[1:], ids=lambda method: method["name"])
def test_all_have_the_bits_of_one_process(method: dict[str, Any], tmp_path: Path) -> None:
    plan = planned(**method)
    peers = begun(plan, tmp_path)
    expected = train(plan, CORPORA, policies=OPEN, at_once=False)
    for each in peers.values():
        assert_same_bits(each.model(), expected)
        assert {event["client"] for event in each.events.of("adds")} == {adders(plan)[0]}


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


def test_masked_sums_have_the_same_bits_whoever_adds(tmp_path: Path) -> None:
    plan = planned(**METHODS[0]).model_copy(update={"secure": True})
    peers = begun(plan, tmp_path)
    served = federated(plan, CORPORA, tmp_path / "server")
    for each in peers.values():
        assert_same_bits(each.model(), served.model)
        assert each.events.of("roster"), "it is masked"
        assert {event["client"] for event in each.events.of("adds")} == {adders(plan)[0]}
    plain = train(plan.model_copy(update={"secure": False}), CORPORA, policies=OPEN)
    assert difference(served.model.weights, plain.weights) < 2e-6
    assert served.model.topics() == plain.topics()
