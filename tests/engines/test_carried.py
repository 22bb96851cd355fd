"""Studies over an engine that carries a message and its answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtopics.federation.simulation import train
from fedtopics.model.topic_model import TopicModel
from tests.helpers.carriers import METHODS, POLICIES, SIZES, clients, planned, run
from tests.helpers.federation import assert_same_bits, embedded, subjects
from tests.helpers.ledgers import left
from tests.helpers.streams import DRIFT, flda, stream


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
