"""How F-LDA's default threshold decides pairs of topics that a person has labelled."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.flda.models import DATA_SETS
from experiments.flda.runs import Settings, thresholds
from experiments.flda.similarities import PAIRS
from fedtopics.methods.flda.labelled_pairs import decided_alike, fit_curve, read_pairs

SEED = 50


def sentences(settings: Settings) -> Iterator[str]:
    """Say how many pairs each threshold decides as the person did."""
    for data in DATA_SETS:
        pairs = read_pairs(PAIRS / f"pairs-{data.name}.csv")
        values = {"regression": fit_curve(pairs).threshold, "paper": data.gamma}
        rounds = enumerate(thresholds(settings, data, SEED), 1)
        values |= {f"default, round {number}": value for number, value in rounds}
        for name, value in values.items():
            decided = decided_alike(pairs, value)
            yield f"{data.name}, {name}: {value:.3f} decides {decided} of {len(pairs)}"
