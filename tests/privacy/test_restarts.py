"""A client that starts again in a private study: the same noise, on the same documents alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedtopics.engines import adder
from fedtopics.federation.server import proposal, serve

from fedtopics.errors import PolicyError
from fedtopics.federation.participant import Participation
from fedtopics.federation.policy import Policy
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.methods.core.aggregation import SharedPayload
from fedtopics.methods.core.interfaces import Moment
from fedtopics.text.vocabulary import fingerprint
from tests.helpers.bounded import PUBLIC, install, planned, themed
from tests.helpers.clusters import accuracy
from tests.helpers.grpc_federation import HOST, Notes, Partner, comes_back, partner, until

PLAN = planned("lda", 3).with_clients(["east", "north", "west"])


@contextmanager
def started(folder: Path, documents: int, run: bytes = b"run") -> Iterator[Any]:
    """Start a client's process; give the door of its documents, in front of masks."""
    (folder / "policy.toml").write_text("max_epsilon = 4\n")
    policy = Policy.read(folder / "policy.toml")
    part = Participation("north", themed(documents), policy, folder / "out")
    try:
        door: Any = part.consider(part.look(proposal(PLAN, None), signed=True), run)[0]
        yield door._door
    finally:
        part.close()


def test_the_same_noise_is_not_given_for_other_documents(tmp_path: Path) -> None:
    """The difference of two replies with the same noise would be the documents'."""
    with started(tmp_path, 100) as door:
        first = door.call("extent", {}, Moment(1))
    with started(tmp_path, 100) as door:
        assert door.call("extent", {}, Moment(1, 2)) == first, "in another attempt"
    with (
        started(tmp_path, 101) as door,
        pytest.raises(PolicyError, match="the documents or the client's secret have changed"),
    ):
        door.call("extent", {}, Moment(1, 3))


def sketched(door: Any, moment: Moment, masked: bool = False, **other: Any) -> Any:
    door._client.take(PUBLIC)
    columns = np.arange(10)
    how = {"vocabulary": fingerprint(PUBLIC), "columns": columns, "rarity": np.ones(10)}
    payload = SharedPayload(how | other)
    payload.masked = masked
    return door.call("sketch", payload, moment)["sketch"]


def test_a_sum_is_asked_for_in_one_way_also_after_a_restart(tmp_path: Path) -> None:
    """It is refused as a question, though the answer would be the same, or as there are none."""
    with started(tmp_path, 100) as door:
        first = sketched(door, Moment(2))
    with started(tmp_path, 100) as door:
        assert (sketched(door, Moment(2, 2)) == first).all()
        with pytest.raises(PolicyError, match="as it was not before in this run"):
            sketched(door, Moment(3), rarity=2 * np.ones(10))


def test_a_masked_sum_is_of_one_turn(tmp_path: Path) -> None:
    """In another one it could be over others: the difference had a part of the noise alone."""
    with started(tmp_path, 100) as door:
        sketched(door, Moment(2), masked=True)
    with started(tmp_path, 100) as door:
        sketched(door, Moment(2, 2), masked=True)
        with pytest.raises(PolicyError, match="as it was not before in this run"):
            sketched(door, Moment(3), masked=True)


def test_a_run_whose_folder_is_gone_is_a_new_one(tmp_path: Path) -> None:
    """Whoever says that it is the same would get other noise on the same sums."""
    for _ in range(2):
        with started(tmp_path, 100) as door:
            door.call("extent", {}, Moment(1))
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(PolicyError, match="1 before had 3"), started(tmp_path, 100):
        pass


def test_a_client_that_comes_back_is_asked_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between machines, under masks: what it refuses is nobody's who does as agreed."""
    install(monkeypatch)
    monkeypatch.setattr(adder, "GRACE", 0.0)
    corpora = {name: themed(4000, seed) for seed, name in enumerate("abcd")}
    federation = FederationSettings(quorum=3, round_timeout=60, join_timeout=60, quorum_timeout=60)
    plan = planned("nmf", 8).with_clients(corpora)
    plan = plan.model_copy(update={"federation": federation})
    partners: dict[str, Partner] = {}
    events, nodes, address = Notes(), list[Any](), list[str]()

    def begin(name: str) -> None:
        out = tmp_path / name
        partners[name] = partner(address[0], name, corpora[name], out, insecure_seed=False)

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "listening":
            address.append(event["address"])
            for name in corpora:
                begin(name)
        if event["event"] == "round" and event["round"] == 3:
            partners["d"].kill()
            until(lambda: not nodes[0].members["d"].link)
            begin("d")
            comes_back(nodes[0], "d")

    model = serve(
        plan, None, f"{HOST}:0", tmp_path / "server", on_event=follow, on_listen=nodes.append
    )
    for each in partners.values():
        each.result()
    assert all((e["missing"], e["attempts"]) == ({}, 1) for e in events.of("round"))
    assert accuracy(model, corpora) > 0.9
