"""Lloyd's algorithm over sums: centres move to the mean of the points nearest to them.

The centres are those of k-means on pooled texts, from the same start, however texts are spread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.points import Moments, Numbers, ranked
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.cluster_client import ALL, SEED
from fedtopics.methods.cluster_settings import ClusterSettings
from fedtopics.methods.clusters import check_enough
from fedtopics.methods.training import Arrays, Step, iterate

TRIAL = 10  # rounds after which the best start goes on alone
AT_REST = 1e-9  # centres that move by less, relative to their norm, have arrived


@dataclass(frozen=True)
class Partition:
    """Some k-means clusterings of the same points, and the sums they were made of.

    Parameters
    ----------
    centres : float64 array of shape (n_starts, n_clusters, n_dimensions)
    sums : float64 array of that shape
        Of the points nearest to the centres before.
    counts : float64 array of shape (n_starts, n_clusters)
    starts : int64 array of shape (n_starts,)
        Which of the first starts each goes on from.
    distances : float64 array of shape (n_starts,)
        Squared, to the nearest of the centres before, summed over points.
    rounds : int
        By which it was made.
    """

    centres: Numbers
    sums: Numbers
    counts: Numbers
    starts: NDArray[np.int64]
    distances: Numbers
    rounds: int = 0

    @classmethod
    def first(cls, centres: Numbers) -> Partition:
        """Return the partition that only has centres yet."""
        n_starts = len(centres)
        nothing = np.zeros_like(centres), np.zeros(centres.shape[:2])
        return cls(centres, *nothing, np.arange(n_starts), np.zeros(n_starts))

    def best(self, n: int) -> Partition:
        """Return the n with the smallest distances."""
        kept = ranked(self.distances)[:n]
        kept_arrays = {name: array[kept] for name, array in self.arrays().items()}
        return Partition(**kept_arrays, rounds=self.rounds)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        names = (field.name for field in fields(self) if field.name != "rounds")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, arrays: Arrays) -> Partition:
        """Turn named arrays back, of which there may be others."""
        names = (field.name for field in fields(cls) if field.name != "rounds")
        return cls(**{name: arrays[name] for name in names}, rounds=TRIAL)


@dataclass(frozen=True)
class Lloyd:
    """Rounds of k-means from several starts.

    Parameters
    ----------
    origin : float64 array of shape (n_dimensions,)
        What points are measured from.
    finalists : int
        How many of the starts are gone on with after the first ten rounds: those with the smallest
        distances.
    half : {0, 1, 2}
        Of a half of the documents, or of all.
    """

    origin: Numbers
    finalists: int = 1
    half: int = ALL

    @property
    def stops(self) -> Mapping[str, float]:
        return {"tolerance": AT_REST}

    def exchange(self, agreement: Agreement, state: Partition, round_: int) -> dict[str, Any]:
        """Ask for the sums of the points nearest to each centre."""
        template: Template = {
            "sums": state.sums.shape,
            "counts": state.counts.shape,
            "distances": state.distances.shape,
        }
        payload = {"centres": state.centres, "starts": state.starts.tolist(), "half": self.half}
        payload |= {"origin": self.origin}
        return agreement.sum("cluster_sums", template, round=round_, **payload)

    def step(
        self, agreement: Agreement, state: Partition, found: dict[str, Any], round_: int
    ) -> Step[Partition]:
        """Move centres to the mean of the points nearest to them."""
        check_enough(found["counts"])
        kept = agreement.keep(round_)
        counts = found["counts"] + kept * state.counts
        sums = found["sums"] + kept * state.sums
        means = sums / np.maximum(counts, 1)[..., None]
        # A cluster that nobody is in stays where it is: its turn may come.
        moved = np.where(counts[..., None] > 0, means, state.centres)
        change = np.linalg.norm(moved - state.centres) / np.linalg.norm(moved)
        distances = found["distances"] + kept * state.distances
        after = Partition(moved, sums, counts, state.starts, distances, state.rounds + 1)
        if after.rounds == TRIAL:
            after = after.best(self.finalists)
        loss = float(found["distances"].min()) / found["documents"]
        return Step(after, {"loss": loss, "documents": found["documents"]}, float(change))


def start_with_kmeans(
    agreement: Agreement,
    settings: ClusterSettings,
    origin: Numbers,
    moments: Moments,
    seed: int,
    finalists: int,
    half: int = ALL,
) -> Partition:
    """Find k-means clusters of embeddings before the first round, from several starts.

    The starts are drawn from the normal distribution with the points' moments: no document is
    named, and they do not depend on how documents are spread over clients.
    """
    first = Partition.first(draw_centres(settings, moments, seed))
    numbers: Iterable[int] = repeat(0, settings.start_rounds)
    return iterate(agreement, Lloyd(origin, finalists, half), first, numbers).best(finalists)


def calls_of_start(settings: ClusterSettings) -> dict[str, str]:
    """Say which functions `start_with_kmeans` calls, and how often."""
    often = f"at most {settings.start_rounds} times, before the first round"
    calls = dict.fromkeys(("means", "moments"), "once, before the first round")
    return calls | {"cluster_sums": often}


def draw_centres(settings: ClusterSettings, moments: Moments, seed: int) -> Numbers:
    """Draw the starts, shape (n_starts, n_clusters, n_dimensions).

    Raises
    ------
    StudyError
        If there are fewer documents than clusters.
    """
    if moments.count < settings.n_components:
        raise StudyError(
            f"The clients have {moments.count} documents together, fewer than n_components = "
            f"{settings.n_components}; ask for fewer, or give more documents."
        )
    rng = np.random.default_rng([seed, SEED])
    drawn = moments.draw(settings.starts * settings.n_components, rng)
    return drawn.reshape(settings.starts, settings.n_components, -1)
