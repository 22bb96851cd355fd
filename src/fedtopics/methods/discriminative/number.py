"""The number of clusters: that of the clusterings which agree best between parts of the documents.

Two clusters of any elongated cloud agree as well, so the agreement counts that exceeds the one of
points which are drawn from a single cloud with the documents' moments. A single pair of parts
depends on how the documents happen to be divided, so the mean over several pairs counts.

References
----------
Hubert and Arabie, Comparing Partitions, 1985 (the agreement). Tibshirani and Walther, Cluster
Validation by Prediction Strength, 2005 (parts). Tibshirani, Walther and Hastie, Estimating the
Number of Clusters in a Data Set via the Gap Statistic, 2001 (points without clusters).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from fedtopics.contract.events import Candidate
from fedtopics.errors import StudyError
from fedtopics.inference.vectors import TINY, Numbers, unit_rows
from fedtopics.methods.clusters.client import ClusterSums
from fedtopics.methods.clusters.program import find_moments
from fedtopics.methods.clusters.settings import (
    MOST_ROUNDS,
    START_OF_CHOICE,
    DiscriminativeSettings,
    Part,
)
from fedtopics.methods.clusters.sums import Moments
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.settings import TOO_FEW, best_of
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.discriminative.known_points import agree_with_oneself
from fedtopics.methods.discriminative.separation import Separation, Split
from fedtopics.methods.kmeans.lloyd import start_with_kmeans

PER_PART = 1000  # documents, at least, if there are more than two parts
MOSTLY = 0.95  # of the documents have to be in parts, if there are more than two
PER_CLUSTER = 10  # documents of a part, at least; larger numbers are not tried
MOST_DRAWN = 16_000  # points
SEED = 0x6E756D  # keeps these random choices apart from other uses of the seed


def with_number(
    agreement: Agreement,
    settings: DiscriminativeSettings,
    origin: Numbers,
    moments: Moments,
    seed: int,
    notify: Callable[[Candidate], None],
) -> DiscriminativeSettings:
    """Return the settings with the number of clusters chosen, if there are candidates."""
    if not settings.candidates:
        return settings
    parts = _moments_of_parts(agreement, origin, moments.count)
    rng = np.random.default_rng([seed, SEED])
    points = unit_rows(moments.draw(min(moments.count, MOST_DRAWN), rng))
    drawn = agree_with_oneself(points, settings)
    drawn_parts: dict[Part, Moments] = {part: find_moments(drawn, origin, part) for part in parts}
    most = min(of_part.count for of_part in parts.values()) // PER_CLUSTER
    scores: dict[int, float] = {}
    for number in (n for n in settings.candidates if n <= most):
        mean_agreement = partial(
            _mean_agreement, settings=settings, number=number, origin=origin, seed=seed
        )
        scores[number] = mean_agreement(agreement, parts) - mean_agreement(drawn, drawn_parts)
        notify(Candidate(number, scores[number]))
    if not scores:
        raise StudyError(TOO_FEW)
    return settings.model_copy(update={"n_components": best_of(scores, settings.candidates)})


def _moments_of_parts(agreement: Agreement, origin: Numbers, documents: int) -> dict[Part, Moments]:
    """Return the moments of as many parts as possible that contain nearly all documents.

    Clients with few documents are in no part if there are many parts.
    """
    for n in (n_parts for n_parts in (8, 4) if n_parts <= documents // PER_PART):
        with suppress(StudyError):  # all clients have too few documents
            moments = {(i, n): find_moments(agreement, origin, (i, n)) for i in range(n)}
            if sum(of_part.count for of_part in moments.values()) >= MOSTLY * documents:
                return moments
    try:
        return {(i, 2): find_moments(agreement, origin, (i, 2)) for i in range(2)}
    except StudyError:
        raise StudyError(TOO_FEW) from None


def _mean_agreement(
    source: Agreement,
    parts: dict[Part, Moments],
    settings: DiscriminativeSettings,
    number: int,
    origin: Numbers,
    seed: int,
) -> float:
    """Return how well clusterings of two parts agree, the mean over pairs of parts."""
    clusterings = []
    for part, moments in parts.items():
        clusters = start_with_kmeans(
            source,
            START_OF_CHOICE,
            number,
            origin=origin,
            moments=moments,
            seed=seed + part[0],
            part=part,
        )
        separation = Separation(settings, origin, moments, part)
        split = separation.iterate(source, Split.of(clusters, "free"), MOST_ROUNDS)
        clusterings.append(separation.direct(split).weights())
    return float(
        np.mean(
            [
                _adjusted_rand_index(source, origin, first, second)
                for first, second in zip(clusterings[::2], clusterings[1::2], strict=True)
            ]
        )
    )


def _adjusted_rand_index(
    source: Agreement, origin: Numbers, first: Arrays, second: Arrays
) -> float:
    """Return how well two clusterings agree on pairs of documents of one client."""
    pairs = source.ask_once(ClusterSums.agreeing_pairs, origin=origin, first=first, second=second)[
        "pairs"
    ]
    most = (pairs["first"] + pairs["second"]) / 2
    return float((pairs["together"] - pairs["chance"]) / max(most - pairs["chance"], TINY))
