"""Studies that are interrupted: servers and clients that are killed, come back, or are others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.errors import FederationError
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.server import serve
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.model.topic_model import TopicModel
from tests.helpers.clustered import CLUSTERED, FSCCL
from tests.helpers.clusters import blobs, spread, trained
from tests.helpers.clusters import planned as clustered
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.grpc_federation import (
    HOST,
    Background,
    KilledError,
    Notes,
    Partner,
    comes_back,
    federated,
    partner,
    until,
)
from tests.helpers.ledgers import left

SIZES = {"east": 50, "north": 40, "south": 30}
PATIENT = FederationSettings(min_clients=2, deadline=60, gather=60, wait=60, robust="none")
ALL = PATIENT.model_copy(update={"min_clients": 3})


def planned(settings: FederationSettings = PATIENT, every: int = 4, **method: object) -> Study:
    plan = study(**{"max_rounds": 9, **method}).with_clients(SIZES)
    return plan.model_copy(update={"federation": settings, "checkpoint_every": every})


def expected(plan: Study, corpora: Mapping[str, Any]) -> TopicModel:
    return train(plan, corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY), at_once=False)


class Killing:
    """A server that is killed after a round, and its clients, which live on."""

    def __init__(self, plan: Study, folder: Path, at: int) -> None:
        self.partners: dict[str, Partner] = {}
        self.address = ""
        self._folder, self._at = folder, at
        with pytest.raises(KilledError):
            serve(plan, None, f"{HOST}:0", folder / "run", on_event=self._kill)

    def _kill(self, event: dict[str, Any]) -> None:
        if event["event"] == "listening":
            self.address = event["address"]
            for name, corpus in subjects(SIZES).items():
                self.partners[name] = partner(self.address, name, corpus, self._folder / name)
        if event["event"] == "round" and event["round"] == self._at:
            raise KilledError

    def again(self, plan: Study, folder: str = "run", **how: Any) -> tuple[TopicModel, Notes]:
        """Serve at the same address; return the model and the events."""
        events = Notes()
        model = Background(
            lambda: serve(
                plan, None, self.address, self._folder / folder, on_event=events.append, **how
            )
        ).result()
        return model, events


def test_a_server_that_comes_back_goes_on_with_its_clients(tmp_path: Path) -> None:
    """From its log: no completed round is worked again, and none is lost."""
    plan = planned(ALL, validation_share=0.25, validate_every=2)
    first = Killing(plan, tmp_path, at=7)
    resumed, events = first.again(plan, resume=True)
    for name, each in first.partners.items():
        each.result()
        assert each.events.of("reconnecting")
        moments = [line[2] for line in left(tmp_path / name / "ledger.jsonl")]
        assert len(moments) == len(set(moments))
    assert events.of("round")[-1]["round"] == 9
    assert_same_bits(resumed, expected(plan, subjects(SIZES)))
    lines = (tmp_path / "run/events.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["event"] for line in lines]
    assert kinds[0] == "started"
    assert kinds.count("resumed") == 1


def test_a_server_that_begins_anew_is_joined_anyway(tmp_path: Path) -> None:
    plan = planned(ALL)
    first = Killing(plan, tmp_path, at=5)
    model, events = first.again(plan, "second")
    for name, each in first.partners.items():
        each.result()
        assert_same_bits(TopicModel.from_pretrained(tmp_path / name / "model"), model)
    assert [event["round"] for event in events.of("round")] == list(range(1, 10))
    assert_same_bits(model, expected(plan, subjects(SIZES)))


def test_a_client_of_another_study_is_sent_away(tmp_path: Path) -> None:
    """A server came back with another study: the client's own is over."""
    plan = planned()
    first = Killing(plan, tmp_path, at=1)
    quick = FederationSettings(min_clients=2, gather=5.0, wait=0.5)
    other = planned(quick, n_components=5)
    with pytest.raises(FederationError, match="Round 0 has fewer"):
        first.again(other, "second")
    for each in first.partners.values():
        assert str(each.error()) == (
            f"This client joined the study {plan.fingerprint}, the server now runs "
            f"{other.fingerprint}; restart the client to take part in that."
        )


def test_a_client_without_the_model_that_the_study_starts_from(tmp_path: Path) -> None:
    corpora = subjects(SIZES)
    start = train(planned(max_rounds=2), corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    other = train(planned(max_rounds=3), corpora, policies=dict.fromkeys(SIZES, OPEN_POLICY))
    for mine, message in ((None, "has none"), (other, "has another")):
        quick = PATIENT.model_copy(update={"gather": 1.0})
        starts = {"east": start, "south": start, "north": mine}
        with pytest.raises(FederationError, match=f"{message}; name the model with --start"):
            federated(
                planned(quick, max_rounds=1), corpora, tmp_path / message, start=start,
                starts=starts,
            )  # fmt: skip
        assert (tmp_path / message / "east/model").exists()
        assert not (tmp_path / message / "north").exists()


# A client that is restarted between two rounds, in every method: no bit is different


EVERYBODY = FederationSettings(min_clients=3, deadline=60, gather=60, wait=60, robust="none")
MANY = {"east": 60, "north": 40, "south": 25}
OTHERS = ["sync", "local steps", "lda"]


def studied(case: str) -> tuple[Any, dict[str, Any]]:
    if case.startswith("lda"):
        learning = "batch" if "batch" in case else "stochastic"
        method = {"name": "lda", "n_components": 4, "learning": learning, "max_rounds": 4}
        limits = {"min_document_frequency": 1}
        plan = Study.make(method=method, vocabulary=limits, secure=False)
        return plan, subjects(MANY)
    if case in OTHERS:
        steps = {"norm": "server", "optimizer": "fedavg", "local_steps": 2}
        return study(max_rounds=4, **(steps if " " in case else {"norm": case})), subjects(MANY)
    name, method = CLUSTERED[case]
    method = FSCCL | {"embedding": {"model": "x", "dimension": 16}} if name == "fsccl" else method
    corpora = spread(blobs(120, n_clusters=3, spread=0.3), 3, alpha=5.0)
    return clustered(name, **{"n_components": 3} | method | {"max_rounds": 4}), corpora


@pytest.mark.parametrize("case", [*OTHERS, *(case for case in CLUSTERED if "," not in case)])
def test_no_bit_is_different(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)
    plan, corpora = studied(case)
    expected = trained(plan, corpora)
    plan = plan.with_clients(corpora).model_copy(update={"federation": EVERYBODY})
    partners: dict[str, Partner] = {}
    events, nodes, address = Notes(), list[Any](), list[str]()
    last = sorted(corpora)[-1]

    def follow(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "listening":
            address.append(event["address"])
            for name, corpus in corpora.items():
                partners[name] = partner(address[0], name, corpus, tmp_path / name)
        if event["event"] == "round" and event["round"] == 2:
            partners[last].kill()
            until(lambda: not nodes[0].members[last].link)
            partners[last] = partner(address[0], last, corpora[last], tmp_path / last)
            comes_back(nodes[0], last)

    run = tmp_path / "server"
    model = serve(plan, None, f"{HOST}:0", run, on_event=follow, on_listen=nodes.append)
    for name, each in partners.items():
        each.result()
        assert_same_bits(TopicModel.from_pretrained(tmp_path / name / "model"), model)
    assert all((e["missing"], e["attempts"]) == ({}, 1) for e in events.of("round"))
    assert_same_bits(model, expected)
