"""Whole studies over gRPC with masked sums, of which two of five clients are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.engines import adder
from fedtopics.federation.server import serve
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus
from tests.helpers.federation import subjects
from tests.helpers.grpc_federation import HOST, Notes, Partner, partner

SIZES = {"east": 50, "middle": 45, "north": 40, "south": 35, "west": 30}
STAY = {name: size for name, size in SIZES.items() if name not in ("north", "south")}
METHODS: dict[str, dict[str, Any]] = {
    "lda": {"name": "lda", "n_components": 3, "max_rounds": 6, "batch_size": 20},
    "lda, all documents": {
        "name": "lda", "n_components": 3, "max_rounds": 6, "learning": "batch",
    },
    "nmf": {"name": "nmf", "n_components": 3, "max_rounds": 6},
    "prodlda": {
        "n_components": 3, "max_rounds": 6, "hidden": [16, 12], "batch_size": 16, "norm": "sync",
    },
}  # fmt: skip


def planned(method: dict[str, Any], secure: bool) -> Study:
    federation = {"min_clients": 3, "robust": "none"}
    plan = Study.make(
        method=method, vocabulary={"min_document_frequency": 1}, federation=federation,
        secure=secure,
    )  # fmt: skip
    return plan.with_clients(SIZES)


def run(plan: Study, folder: Path, killed: bool) -> tuple[Any, Notes, dict[str, Partner]]:
    """Run a study; with `killed` two clients are ended after two rounds, one in the midst."""
    events, partners = Notes(), {}
    corpora: dict[str, Corpus] = subjects(SIZES)

    def happens(event: dict[str, Any]) -> None:
        events.append(event)
        if event["event"] == "listening":
            for name, corpus in corpora.items():
                partners[name] = partner(event["address"], name, corpus, folder / name)
        if killed and event["event"] == "round" and event["round"] == 2:
            partners["north"].kill()
            partners["south"].kill()

    model = serve(plan, None, f"{HOST}:0", folder / "server", on_event=happens)
    return model, events, partners


@pytest.mark.parametrize("method", METHODS)
def test_two_of_five_are_killed(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adder, "GRACE", 0.0)
    masked, events, partners = run(planned(METHODS[method], True), tmp_path / "masked", True)
    plain, others, _ = run(planned(METHODS[method], False), tmp_path / "plain", True)
    for name, each in partners.items():
        if name in STAY:
            each.result()
        else:
            assert each.error()
    rounds = events.of("round")
    print([r.get("clients") for r in rounds], [r.get("clients") for r in others.of("round")])
    assert len(rounds) == 6
    assert masked.vocabulary.words == plain.vocabulary.words
    print(np.abs(masked.beta - plain.beta).max())
    np.testing.assert_allclose(masked.beta, plain.beta, atol=2e-6)
