"""Simulate three years of releases of one client, with waiting and company.

    python -m experiments.disclosure.releases

Each month, new persons arrive, old ones write again, and some are erased. A person writes a
geometric number of letters with a mean of 3.8. The rule is that of the package.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fedtopics import Corpus
from fedtopics.federation.memory import Header, Memory, Release

MEAN_LETTERS = 3.8


@dataclass(frozen=True)
class Scenario:
    """How many persons come and go, and how often a model is trained."""

    start: int = 5000  # persons
    new: float = 100  # persons a month
    returning: float = 100  # persons a month who write one more letter
    erased: float = 2  # persons a month
    every: int = 1  # months between two releases
    months: int = 36
    least: int = 10  # persons


class Cost(NamedTuple):
    """What the rule costs until the last release."""

    releases: int
    used: float  # share of the documents that the last release uses
    put_aside: float  # share of the documents that are in no release any more
    stopped: int  # releases that a rule without company would refuse


def simulated(scenario: Scenario, seed: int = 0) -> Cost:
    """Simulate the releases of a scenario with the memory of the package."""
    rng = np.random.default_rng(seed)
    memory = Memory(Header(secret=f"{seed:064x}"))  # drawn by lot, but the same each time
    writers: list[int] = []  # of each letter
    erased: set[int] = set()
    persons = 0
    stopped = 0
    numbers = range(0, scenario.months, scenario.every)
    for month in range(scenario.months):
        arriving = rng.poisson(scenario.new) if month else scenario.start
        for person in range(persons, persons + arriving):
            writers += [person] * rng.geometric(1 / MEAN_LETTERS)
        persons += arriving
        if month:
            alive = np.setdiff1d(np.arange(persons), list(erased))
            writers += rng.choice(alive, rng.poisson(scenario.returning), replace=False).tolist()
            erased |= {*rng.choice(alive, rng.poisson(scenario.erased), replace=False).tolist()}
        if month in numbers:
            letters = [n for n, person in enumerate(writers) if person not in erased]
            corpus = replace(
                Corpus.of([f"letter {n}" for n in letters]),
                persons=pa.chunked_array([[f"person {writers[n]}" for n in letters]]),
            )
            choice = memory.choose(corpus, scenario.least, study=str(month))
            memory.record(choice, Release(study=str(month)))
            stopped += choice.company > 0
    used = len(choice.rows) / len(corpus)
    return Cost(len(numbers), used, 1 - used - len(choice.waiting) / len(corpus), stopped)


def main() -> None:
    """Print a table of scenarios."""
    scenarios = [
        Scenario(),
        Scenario(every=3),
        Scenario(every=3, least=5),
        Scenario(every=12),
        Scenario(start=500, new=10, returning=10, erased=0.2, every=3),
        Scenario(start=500, new=3, returning=3, erased=0.2),
    ]
    print(
        "| persons | new a month | months between releases | least | used | put aside | refused |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for scenario in scenarios:
        cost = simulated(scenario)
        print(
            f"| {scenario.start:,} | {scenario.new:g} | {scenario.every} | {scenario.least} | "
            f"{cost.used:.1%} | {cost.put_aside:.1%} | {cost.stopped} of {cost.releases} |"
        )


if __name__ == "__main__":
    main()
