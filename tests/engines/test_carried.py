"""Studies over an engine that carries a message and its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study
from fedtopics.model.topic_model import TopicModel
from tests.helpers.carriers import clients, run
from tests.helpers.federation import embedded, study, subjects
from tests.helpers.ledgers import left
from tests.helpers.streams import DRIFT, flda, stream
from tests.methods.test_exactness import assert_same_bits

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
