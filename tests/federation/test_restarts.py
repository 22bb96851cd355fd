"""A client that is restarted between two rounds, in every method: no bit is different."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics.engines import adder
from fedtopics.federation.server import serve
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import FederationSettings
from fedtopics.model.topic_model import TopicModel
from tests.helpers.clustered import CLUSTERED, FSCCL
from tests.helpers.clusters import blobs, spread, trained
from tests.helpers.clusters import planned as clustered
from tests.helpers.federation import assert_same_bits, study, subjects
from tests.helpers.grpc_federation import HOST, Notes, Partner, comes_back, partner, until

ALL = FederationSettings(min_clients=3, deadline=60, gather=60, wait=60, robust="none")
SIZES = {"east": 60, "north": 40, "south": 25}
OTHERS = ["sync", "local steps", "lda"]


def studied(case: str) -> tuple[Any, dict[str, Any]]:
    if case.startswith("lda"):
        learning = "batch" if "batch" in case else "stochastic"
        method = {"name": "lda", "n_components": 4, "learning": learning, "max_rounds": 4}
        limits = {"min_document_frequency": 1}
        plan = Study.make(method=method, vocabulary=limits, secure=False)
        return plan, subjects(SIZES)
    if case in OTHERS:
        steps = {"norm": "server", "optimizer": "fedavg", "local_steps": 2}
        return study(max_rounds=4, **(steps if " " in case else {"norm": case})), subjects(SIZES)
    name, method = CLUSTERED[case]
    method = FSCCL | {"embedding": {"model": "x", "dimension": 16}} if name == "fsccl" else method
    corpora = spread(blobs(120, n_clusters=3, spread=0.3), 3, alpha=5.0)
    return clustered(name, **{"n_components": 3} | method | {"max_rounds": 4}), corpora


@pytest.mark.parametrize("case", [*OTHERS, *(case for case in CLUSTERED if "," not in case)])
def test_no_bit_is_different(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)
    plan, corpora = studied(case)
    expected = trained(plan, corpora)
    plan = plan.with_clients(corpora).model_copy(update={"federation": ALL})
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
