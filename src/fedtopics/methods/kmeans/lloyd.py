"""Lloyd's algorithm with sums: each centre moves to the mean of the points nearest to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.clusters.client import ClusterSums
from fedtopics.methods.clusters.program import check_enough, find_moments
from fedtopics.methods.clusters.settings import WHOLE, Part, StartSettings
from fedtopics.methods.clusters.sums import Moments, ranked
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import RoundResult, iterate

Clusterings = TypeVar("Clusterings", bound=Any)
TRIAL = 10  # rounds after which only the best start continues
SEED = 1  # seed of the starts, in addition to the study's
AT_REST = 1e-9  # centres that move by less, relative to their norm, have converged


@dataclass(frozen=True)
class Partition:
    """Several k-means clusterings of the same points, and the sums that they are computed from."""

    centres: Numbers  # of shape (n_starts, n_clusters, n_dimensions)
    sums: Numbers  # of the same shape: of the points nearest to the previous centres
    counts: Numbers  # of shape (n_starts, n_clusters)
    starts: NDArray[np.int64]  # the number of each clustering's start
    distances: Numbers  # squared distances to the nearest previous centres, summed over points
    rounds: int = 0

    @classmethod
    def first(cls, centres: Numbers) -> Partition:
        n_starts = len(centres)
        return cls(
            centres,
            sums=np.zeros_like(centres),
            counts=np.zeros(centres.shape[:2]),
            starts=np.arange(n_starts),
            distances=np.zeros(n_starts),
        )

    def best(self, n: int) -> Partition:
        return chosen_start(self, ranked(self.distances)[:n])


def arrays_of(clusterings: Clusterings) -> dict[str, NDArray[Any]]:
    return {name: array for name, array in vars(clusterings).items() if name != "rounds"}


def chosen_start(clusterings: Clusterings, rows: NDArray[np.int64]) -> Clusterings:
    return replace(
        clusterings, **{name: array[rows] for name, array in arrays_of(clusterings).items()}
    )


@dataclass(frozen=True)
class Lloyd:
    """Rounds of k-means from several starts, with points measured from an origin."""

    origin: Numbers
    finalists: int = 1  # number of best starts that continue after the first ten rounds
    part: Part = WHOLE  # of the documents

    def exchange(self, agreement: Agreement, state: Partition, round_: int) -> dict[str, Any]:
        return agreement.ask(
            ClusterSums.cluster_sums,
            round=round_,
            origin=self.origin,
            centres=state.centres,
            starts=state.starts.tolist(),
            part=self.part,
        )

    def step(
        self, agreement: Agreement, state: Partition, reply: dict[str, Any], round_: int
    ) -> RoundResult[Partition]:
        check_enough(reply["counts"])
        earlier_weight = agreement.weight_of_earlier_sums(round_)
        counts = reply["counts"] + earlier_weight * state.counts
        sums = reply["sums"] + earlier_weight * state.sums
        means = sums / np.maximum(counts, 1)[..., None]
        # An empty cluster keeps its centre, because it may get points later.
        moved = np.where(counts[..., None] > 0, means, state.centres)
        change = np.linalg.norm(moved - state.centres) / np.linalg.norm(moved)
        after = Partition(
            centres=moved,
            sums=sums,
            counts=counts,
            starts=state.starts,
            distances=reply["distances"] + earlier_weight * state.distances,
            rounds=state.rounds + 1,
        )
        return RoundResult(
            after.best(self.finalists) if after.rounds == TRIAL else after,
            {
                "loss": float(reply["distances"].min()) / reply["documents"],
                "documents": reply["documents"],
            },
            float(change),
        )


def start_with_kmeans(
    agreement: Agreement,
    start: StartSettings,
    n_clusters: int,
    origin: Numbers,
    seed: int,
    finalists: int = 1,
    moments: Moments | None = None,
    part: Part = WHOLE,
    centres: Numbers | None = None,
) -> Partition:
    """Cluster embeddings by k-means, by default from starts drawn with the points' moments."""
    if centres is None:
        moments = moments or find_moments(agreement, origin, part)
        centres = draw_centres(start, n_clusters, moments, seed)
    return iterate(
        agreement,
        rounds=Lloyd(origin, finalists, part),
        state=Partition.first(centres),
        numbers=repeat(0, start.rounds),
        stops={"tolerance": AT_REST},
    ).best(finalists)


def draw_centres(start: StartSettings, k: int, moments: Moments, seed: int) -> Numbers:
    """Draw the starts, shape (n_starts, n_clusters, n_dimensions)."""
    if moments.count < k:
        raise StudyError(
            f"Together, the clients have only {moments.count} documents, fewer than n_components = "
            f"{k}; lower n_components, or give more documents."
        )
    return moments.draw(start.tries * k, np.random.default_rng([seed, SEED])).reshape(
        start.tries, k, -1
    )
