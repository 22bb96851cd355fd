"""Every method in small, with rounds of some of six clients."""

from typing import Any

from fedtopics import Study
from fedtopics.federation.policy import OPEN_POLICY
from tests.helpers.federation import ANY_WORDS, study

NAMES = [f"c{i}" for i in range(6)]
SIZES = dict.fromkeys(NAMES, 30)
POLICIES = dict.fromkeys(NAMES, OPEN_POLICY)
CLUSTERS = {"n_components": 3, "max_rounds": 6, "embedding": {"dimension": 7}}
NETWORK = {"hidden": 8, "local_steps": 5}
METHODS: dict[str, dict[str, Any]] = {
    "gfedntm": {"max_rounds": 6},
    "gfedntm, local steps": {
        "max_rounds": 6,
        "norm": "server",
        "optimizer": "fedavg",
        "local_steps": 2,
    },
    "lda": {"name": "lda", "n_components": 4, "max_rounds": 6},
    "lda, batch": {"name": "lda", "n_components": 4, "max_rounds": 6, "learning": "batch"},
    "nmf": {"name": "nmf", "n_components": 4, "max_rounds": 6},
    "mixture": {"name": "mixture", **CLUSTERS},
    "kmeans": {"name": "kmeans", **CLUSTERS},
    "discriminative": {"name": "discriminative", **CLUSTERS},
    "fstc": {"name": "fstc", "network": NETWORK, **CLUSTERS},
    "fsccl": {"name": "fsccl", "network": NETWORK | {"deletion": 0}, **CLUSTERS},
}


def planned(case: str, size: int | None = 2) -> Study:
    method = METHODS[case] | {"clients_per_round": size}
    if "name" not in method:
        return study(**method)
    return Study.make(
        method=method, vocabulary=ANY_WORDS, aggregation="plain", federation={"outliers": "none"}
    )
