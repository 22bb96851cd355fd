"""Federated k-means: exact, from sums round after round, or k-FED, from one reply of each client.

In `lloyd` the clients sum the points that are nearest to each centre and the server divides: the
centres are those of k-means on pooled texts, from the same start, however texts are spread.
`KMeans` is what the server executes, `KMeansClient` what a client does. The baselines FBOW, FTF-IDF
and FSBERT of the FSTC paper are its presets.

References
----------
Dennis, Li and Smith, Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021,
algorithm 2 (k-FED).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.inference.clusters import Centres
from fedtopics.inference.points import Moments, Numbers, nearest, ranked, sums_by_label
from fedtopics.methods.aggregation import Template
from fedtopics.methods.agreement import Agreement
from fedtopics.methods.base import Checkpoint, Run
from fedtopics.methods.cluster_settings import ClusterSettings, KMeansSettings
from fedtopics.methods.clusters import (
    ALL,
    SEED,
    ClusterClient,
    ClusterServer,
    Found,
    check_told,
    find_moments,
    find_origin,
)

OnRound = Callable[["Partition", int, dict[str, Any]], None]
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
    """

    centres: Numbers
    sums: Numbers
    counts: Numbers
    starts: NDArray[np.int64]
    distances: Numbers

    def best(self, n: int) -> Partition:
        """Return the n with the smallest distances."""
        kept = ranked(self.distances)[:n]
        return Partition(*(array[kept] for array in vars(self).values()))


def lloyd(
    agreement: Agreement,
    origin: Numbers,
    centres: Numbers,
    rounds: Iterable[int],
    finalists: int = 1,
    half: int = ALL,
    known: Partition | None = None,
    on_round: OnRound | None = None,
) -> Partition:
    """Move centres to the mean of the points nearest to them, until they rest.

    Parameters
    ----------
    agreement : Agreement
    origin : float64 array of shape (n_dimensions,)
    centres : float64 array of shape (n_starts, n_clusters, n_dimensions)
    rounds : iterable of int
        Numbers of the rounds, as many as there may be.
    finalists : int
        How many of the starts are gone on with after the first ten rounds: those with the smallest
        distances.
    half : {0, 1, 2}
        Of a half of the documents, or of all.
    known : Partition, optional
        To go on with, in place of centres.
    on_round : function (Partition, round, report), optional
    """
    n_starts = len(centres)
    nothing = np.zeros_like(centres), np.zeros(centres.shape[:2])
    state = known or Partition(centres, *nothing, np.arange(n_starts), np.zeros(n_starts))
    for done, round_ in enumerate(rounds, 1):
        exchange = partial(_exchange, agreement, origin, state, round_, half)
        found, report = agreement.round(round_, exchange)
        check_told(found["counts"])
        kept = agreement.keep(round_)
        counts = found["counts"] + kept * state.counts
        sums = found["sums"] + kept * state.sums
        means = sums / np.maximum(counts, 1)[..., None]
        # A cluster that nobody is in stays where it is: its turn may come.
        moved = np.where(counts[..., None] > 0, means, state.centres)
        change = np.linalg.norm(moved - state.centres) / np.linalg.norm(moved)
        distances = found["distances"] + kept * state.distances
        state = Partition(moved, sums, counts, state.starts, distances)
        arrived = bool(change < AT_REST)
        if on_round is not None:
            told = {"loss": float(found["distances"].min()) / found["documents"]}
            told |= {"documents": found["documents"], "arrived": arrived}
            on_round(state, round_, {**told, **report})
        if arrived:
            break
        if done == TRIAL:
            state = state.best(finalists)
    return state.best(finalists)


def _exchange(
    agreement: Agreement, origin: Numbers, state: Partition, round_: int, half: int
) -> dict[str, Any]:
    template: Template = {
        "sums": state.sums.shape,
        "counts": state.counts.shape,
        "distances": state.distances.shape,
    }
    given = {"origin": origin, "centres": state.centres, "starts": state.starts.tolist()}
    return agreement.sum("cluster_sums", template, round=round_, half=half, **given)


def begin_with_kmeans(
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
    centres = draw_centres(settings, moments, seed)
    return lloyd(agreement, origin, centres, repeat(0, settings.start_rounds), finalists, half)


def before_rounds(settings: ClusterSettings) -> dict[str, str]:
    """Say which functions `begin_with_kmeans` calls, and how often."""
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


class KMeans(ClusterServer[KMeansSettings]):
    """The server's half."""

    inference = Centres

    def cluster(self, agreement: Agreement, run: Run) -> Found:
        """Find centres."""
        if self.settings.algorithm == "k-fed":
            next(run.rounds(0, 1))  # all is in one
            origin, centres = self._first(agreement)
            return Found({"origin": origin, "centres": centres[0]}, 1)
        saved = run.restore()
        if saved is not None:
            origin = saved.arrays["origin"]
            known = Partition(**{name: saved.arrays[name] for name in Partition.__annotations__})
            centres = known.centres
        else:
            known = None
            origin, centres = self._first(agreement)
        done = 0 if saved is None else saved.round
        last = done

        def note(state: Partition, round_: int, report: Mapping[str, Any]) -> None:
            nonlocal last
            last = round_
            run.event("round", round=round_, **report)
            # Before one start is left it is begun anew; after what arrived there is no round.
            if run.due(round_) and len(state.centres) == 1 and not report["arrived"]:
                run.checkpoint(Checkpoint(round_, {"origin": origin, **vars(state)}, {}))

        rounds = run.rounds(done, self.settings.max_rounds)
        state = lloyd(agreement, origin, centres, rounds, known=known, on_round=note)
        return Found({"origin": origin, "centres": state.centres[0]}, last)

    def _first(self, agreement: Agreement) -> tuple[Numbers, Numbers]:
        """Return what points are measured from, and the first centres."""
        settings = self.settings
        if settings.representation != "embedding":
            origin = self._word_weights(agreement)
        elif settings.algorithm == "lloyd":
            origin, moments = find_moments(agreement, settings.embedding.dimension)
            return origin, draw_centres(settings, moments, self.seed)
        else:
            origin = find_origin(agreement, settings.embedding.dimension)
        template: Template = {"centres": ("clusters", len(origin)), "counts": ("clusters",)}
        replies = agreement.call("own_centres", template, round=1, origin=origin)
        return origin, merge_centres(replies, settings.n_components)[None]

    def _word_weights(self, agreement: Agreement) -> Numbers:
        """Return one for each word, or how rare it is among the documents of all clients."""
        frequency = agreement.vocabulary.document_frequency
        if self.settings.representation == "bow":
            return np.ones(len(frequency))
        rarity: Numbers = np.log((1 + agreement.documents) / (1 + frequency)) + 1
        return rarity


def merge_centres(replies: Mapping[str, Mapping[str, Any]], n_clusters: int) -> Numbers:
    """Merge the clients' own centres (k-FED, steps 2 to 8).

    The first client's centres are taken; others are added as long as there are too few, each as
    far from those before as there is one. Then each is the mean of the clients' centres nearest to
    it, weighted by their documents (k-FED: each the same).

    Raises
    ------
    StudyError
        If there are fewer centres than clusters.
    """
    centres = np.concatenate([replies[name]["centres"] for name in sorted(replies)])
    counts = np.concatenate([replies[name]["counts"] for name in sorted(replies)])
    if len(centres) < n_clusters:
        raise StudyError(
            f"The clients have {len(centres)} clusters of enough documents together, fewer than "
            f"n_components = {n_clusters}; ask for fewer, or give more documents."
        )
    first = next(len(replies[name]["counts"]) for name in sorted(replies))
    chosen = list(range(min(max(first, 1), n_clusters)))
    while len(chosen) < n_clusters:
        distances = nearest(centres, centres[chosen])[1]
        distances[chosen] = -1
        chosen.append(int(distances.argmax()))
    labels = nearest(centres, centres[chosen])[0]
    sums, _ = sums_by_label(centres * counts[:, None], labels, n_clusters)
    weights = np.bincount(labels, counts, n_clusters)[:, None]
    return np.where(weights > 0, sums / np.maximum(weights, 1), centres[chosen])


class KMeansClient(ClusterClient[KMeansSettings]):
    """The client's half."""

    method = "kmeans"
    version = 1
    inference = Centres
    published: ClassVar[tuple[str, ...]] = (
        "vocabulary", "adopt", "means", "moments", "cluster_sums", "own_centres", "sizes",
        "shares", "word_sums", "pairs",
    )  # fmt: skip

    @staticmethod
    def rounds(settings: KMeansSettings) -> dict[str, str]:
        """Say which functions a study with these settings calls in its rounds, and how often."""
        one_shot = settings.algorithm == "k-fed"
        embedded = settings.representation == "embedding"
        first = ("means", "moments")[: 0 if not embedded else 1 if one_shot else 2]
        calls = dict.fromkeys(first, "once, before the first round")
        if one_shot or not embedded:
            calls["own_centres"] = "once"
        return calls if one_shot else calls | {"cluster_sums": "each round"}

    def own_centres(
        self,
        vocabulary: str,
        round: int,  # noqa: A002
        origin: Numbers,
    ) -> dict[str, Any]:
        """Find k-means clusters of the documents here (k-FED, step 1).

        Leaves the client
            The centre and the number of documents of each cluster of enough of them; the number
            of all.
        """
        self.check(vocabulary)
        points = self.points(origin)
        number = min(self.settings.n_components, points.shape[0] // self.min_documents)
        if number == 0:
            none = {"centres": np.zeros((0, len(origin))), "counts": np.zeros(0)}
            return none | {"documents": 0}
        from sklearn.cluster import KMeans as LocalKMeans  # the server does without it

        own_seed = np.random.default_rng([*self._seed, SEED]).integers(2**31)
        kmeans = LocalKMeans(number, n_init=self.settings.starts, random_state=int(own_seed))
        with warnings.catch_warnings():  # of fewer different documents than clusters
            warnings.simplefilter("ignore")
            labels = kmeans.fit_predict(points)
        sums, counts = sums_by_label(points, labels.astype(np.int64), number)
        enough = counts >= self.min_documents
        centres = sums[enough] / counts[enough][:, None]
        return {"centres": centres, "counts": counts[enough], "documents": len(self.known)}
