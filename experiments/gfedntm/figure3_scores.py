"""The scores of the synthetic experiment, by setting, model and scenario."""

import numpy as np

from experiments.gfedntm.figure3_runs import Case, alone
from experiments.report import Rows

SCORES = (("tss", "TSS of 50", 2), ("dss", "DSS", 0), ("dss_refined", "DSS refined", 0))
READINGS = (
    "softmax once",
    "softmax twice",
    "softmax three times, columns shifted",
    "as the decoder uses it",
)


class Scores:
    """The rows, by what they are of."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def of(self, case: Case, model: str, scenario: str, score: str) -> list[float]:
        """Return a score of each seed, the mean over clients where they are alone."""
        return list(self.by_seed(case, model, scenario, score).values())

    def by_seed(self, case: Case, model: str, scenario: str, score: str) -> dict[int, float]:
        """Return it by seed, in their order."""
        by_scenario: dict[int, dict[str, float]] = {}
        for row in self._rows:
            if (row["model"], Case(**row["case"])) == (model, case) and score in row:
                by_scenario.setdefault(row["seed"], {})[row["scenario"]] = row[score]
        wanted = {
            seed: alone(case, seed) if scenario == "alone" else (scenario,) for seed in by_scenario
        }
        return {
            seed: float(np.mean([by_scenario[seed][name] for name in names]))
            for seed, names in sorted(wanted.items())
            if by_scenario[seed].keys() >= {*names}
        }

    def readings(self, case: Case, scenario: str) -> dict[str, float]:
        """Return the paper's network's score under each reading, mean over clients and seeds."""
        scenarios = alone(case, 0) if scenario == "alone" else (scenario,)
        stored = [
            row["readings"]
            for row in self._rows
            if row["model"] == "paper"
            and Case(**row["case"]) == case
            and row["scenario"] in scenarios
        ]
        return {name: float(np.mean([one[name] for one in stored])) for name in READINGS if stored}


def gains_of(scores: Scores, case: Case, model: str) -> dict[str, float]:
    """Return by how much the federated model is better than clients alone, by score."""
    gains: dict[str, float] = {}
    for score, *_ in SCORES:
        common, single = (
            scores.by_seed(case, model, where, score) for where in ("federated", "alone")
        )
        differences = [common[seed] - single[seed] for seed in common.keys() & single.keys()]
        if not differences and score == "dss_refined":
            continue
        if not differences:
            return {}
        sign = 1 if score == "tss" else -1
        gains[score] = sign * float(np.mean(differences))
    return gains
