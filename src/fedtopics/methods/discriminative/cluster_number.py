"""How many clusters there are, from sums of the clients alone.

Hubert and Arabie, Comparing Partitions, 1985. Tibshirani and Walther, Cluster Validation by
Prediction Strength, 2005.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TypeVar

from fedtopics.inference.points import TINY, Numbers
from fedtopics.methods.clusters.program import moments_about
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.events import Candidate, Event
from fedtopics.methods.core.replies import AgreeingPairs
from fedtopics.methods.core.training import Arrays, iterate
from fedtopics.methods.discriminative.separation import Separation, Split
from fedtopics.methods.discriminative.settings import SeparationSettings
from fedtopics.methods.kmeans.lloyd import start_with_kmeans

Settings = TypeVar("Settings", bound=SeparationSettings)
MOST_ROUNDS = 40  # of a clustering that only serves to choose the number of clusters


def with_number(
    agreement: Agreement, settings: Settings, origin: Numbers, seed: int,
    notify: Callable[[Event], None],
) -> Settings:  # fmt: skip
    """Return the settings with the number of clusters for which two halves of the documents agree.

    Each half is clustered by itself; both clusterings then label all documents, and their agreement
    is the adjusted Rand index over pairs of documents of one client: sums of four numbers. Without
    candidates the settings stay. `notify` gets the agreement of each, from 0 (by chance) to 1.
    """
    scores: dict[int, float] = {}
    halves = [moments_about(agreement, origin, half) for half in (0, 1) if settings.candidates]
    for number in settings.candidates:
        candidate = settings.model_copy(update={"n_components": number})
        clusterings = []
        for half, moments in enumerate(halves):
            separation = Separation(candidate, origin, moments, half)
            first = start_with_kmeans(
                agreement, candidate, origin, moments, seed, settings.finalists, half
            )
            numbers = repeat(0, MOST_ROUNDS)
            split = iterate(agreement, separation, Split.of(first), numbers).best()
            clusterings.append(separation.direct(split).weights())
        scores[number] = _agreement(agreement, origin, *clusterings)
        notify(Candidate(number, scores[number]))
    best = max(scores, key=lambda number: scores[number], default=settings.n_components)
    return settings.model_copy(update={"n_components": best})


def _agreement(agreement: Agreement, origin: Numbers, first: Arrays, second: Arrays) -> float:
    """Return the adjusted Rand index of two clusterings, over pairs of documents of one client."""
    template = {"pairs": AgreeingPairs()}
    payload = {"origin": origin, "first": first, "second": second}
    work = partial(agreement.sum, "agreeing_pairs", template, **payload)
    pairs = agreement.clients.round(0, work)[0]["pairs"]
    most = (pairs["first"] + pairs["second"]) / 2
    return float((pairs["together"] - pairs["chance"]) / max(most - pairs["chance"], TINY))
