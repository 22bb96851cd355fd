"""A client that is a sum of devices: the topics are those of a study of all devices."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtopics.datasets import synthetic_lda
from fedtopics.federation.policy import Policy
from fedtopics.federation.simulation import train
from fedtopics.federation.study import Study

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_tiers.py"


@pytest.mark.parametrize(
    ("method", "near"),
    [({"name": "lda", "learning": "batch"}, 1e-5), ({"name": "nmf"}, 1e-3)],  # NMF's start: float32
)
def test_sums_of_sums_are_the_sums_of_all(method: dict[str, Any], near: float) -> None:
    example = runpy.run_path(str(EXAMPLE))
    drawn = synthetic_lda(5, 300, 8, shared_topics=3, n_documents=100, n_validation=1)
    devices = {name: documents.corpus() for name, documents in drawn.training.items()}
    names = sorted(devices)
    study = Study.make(
        method={"n_components": 8, "max_rounds": 10, **method},
    )
    clients = {
        "north": {name: devices[name] for name in names[::3]},
        "south": {name: devices[name] for name in names[1::3] + names[2::3]},
    }
    tiers = example["train_in_tiers"](study, clients)
    flat = train(study, devices, policies=dict.fromkeys(devices, Policy(min_documents=10)))
    assert tiers.topics() == flat.topics()
    np.testing.assert_allclose(tiers.beta, flat.beta, atol=near)
    assert tiers.documents == {"north": 200, "south": 300}
    np.testing.assert_allclose(tiers.share, flat.share, atol=near)
