"""Federated k-means: exact, with sums in each round, or k-FED, with one reply per client.

Published functions: `ClusterSums` in clusters/client.py, and `own_centres` here, for k-FED.
In k-FED, each client clusters its own documents once, and the centres are merged.

References
----------
Dennis, Li and Smith, Heterogeneity for the Win: One-Shot Federated Clustering, ICML 2021,
algorithm 2.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedtopics.contract.interfaces import EVERYONE, Clients, Run
from fedtopics.contract.published import NEVER, ONCE, Reply, of_method, published
from fedtopics.contract.replies import LIMIT, Bounds, Template, UpTo, sums
from fedtopics.errors import StudyError
from fedtopics.inference.vectors import Numbers, nearest_centres
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums, n_dimensions
from fedtopics.methods.clusters.program import ClusterProgram, find_moments
from fedtopics.methods.clusters.settings import KMeansSettings
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.groups import persons_by_label
from fedtopics.methods.core.training import Arrays, RoundResult
from fedtopics.methods.kmeans.lloyd import AT_REST, TRIAL, Lloyd, Partition, arrays_of, draw_centres
from fedtopics.methods.registry import Method
from fedtopics.text.rounding import POINT_STEP, by_lot, whole


def own_centre_bounds(settings: KMeansSettings, origin: Numbers) -> Template:
    clusters = UpTo("clusters", settings.n_components)
    most = LIMIT if settings.needed_embedding is None else 1.0  # points have length 1
    return {
        "centres": Bounds((clusters, len(origin)), most, -most),
        "counts": sums(clusters, per_document=1),
    }


WORD_STEP = 5.0  # of sums of weighted words in a model


class KMeansClient(ClusterClient[KMeansSettings]):
    @published(
        "The centre and the number of documents of each cluster with enough documents; the number "
        "of all. Centres are merged, not summed, so all participants see each client's centres.",
        "centres of clusters",
        often=of_method(
            KMeansSettings,
            lambda s: ONCE if s.algorithm == "k-fed" or s.needed_embedding is None else NEVER,
        ),
        reply=own_centre_bounds,
        largest=lambda s, n_words: {"origin": np.broadcast_to(0.0, n_dimensions(s, n_words))},
        seen_by_all=True,
    )
    def own_centres(self, round: int, origin: Numbers) -> Reply:
        """Cluster the client's documents by k-means (k-FED, step 1)."""
        points = self.part(ClusterSums).points(origin)
        number = min(
            self.settings.n_components, self.corpus.n_persons(self.usable) // self.min_persons
        )
        if number == 0:
            return {
                "centres": np.zeros((0, len(origin))),
                "counts": np.zeros(0),
                "documents": 0,
            }
        from sklearn.cluster import KMeans as LocalKMeans  # the server does not need it

        kmeans = LocalKMeans(
            number,
            n_init=self.settings.start.tries,
            random_state=self.secret.seed("clusters") % 2**31,
        )
        with warnings.catch_warnings(action="ignore"):  # of fewer different documents than clusters
            labels = kmeans.fit_predict(points).astype(np.int64)
        totals, counts = sums_by_label(points, labels, number)
        persons = persons_by_label(labels, number, self.corpus.owners_of(self.usable))
        enough = persons >= self.min_persons
        return {
            "centres": totals[enough] / counts[enough][:, None],
            "counts": counts[enough],
            "documents": self.over(self.usable),
        }


def merge_centres(replies: Mapping[str, Mapping[str, Any]], n_clusters: int) -> Numbers:
    """Merge the clients' own centres (steps 2 to 8); unlike in k-FED, means are weighted."""
    centres = np.concatenate([replies[name]["centres"] for name in sorted(replies)])
    counts = np.concatenate([replies[name]["counts"] for name in sorted(replies)])
    if len(centres) < n_clusters:
        raise StudyError(
            f"Together, the clients have only {len(centres)} clusters with enough documents, fewer "
            f"than n_components = {n_clusters}; lower n_components, or give more documents."
        )
    n_of_first_client = next(len(replies[name]["counts"]) for name in sorted(replies))
    chosen = list(range(min(max(n_of_first_client, 1), n_clusters)))
    while len(chosen) < n_clusters:
        distances = nearest_centres(centres, centres[chosen])[1]
        distances[chosen] = -1
        chosen.append(int(distances.argmax()))
    labels = nearest_centres(centres, centres[chosen])[0]
    sums, _ = sums_by_label(centres * counts[:, None], labels, n_clusters)
    weights = np.bincount(labels, counts, n_clusters)[:, None]
    return np.where(weights > 0, sums / np.maximum(weights, 1), centres[chosen])


@dataclass(frozen=True)
class KMeansState:
    origin: Numbers
    partition: Partition


class KMeans(ClusterProgram[KMeansSettings, KMeansState]):
    @property
    def stops(self) -> Mapping[str, float]:
        return {"tolerance": AT_REST, **super().stops}

    @property
    def last_round(self) -> int:
        return super().last_round if self.settings.adds_up else 1

    def agree(self, clients: Clients, run: Run) -> Agreement:
        """Agree on a vocabulary; if there is only one round, all clients take part in it."""
        agreement = super().agree(clients, run)
        return agreement if self.settings.adds_up else replace(agreement, draw=EVERYONE)

    def first_state(self, agreement: Agreement, run: Run) -> KMeansState:
        """Return origin and first centres, from moments of embeddings or from a k-FED exchange."""
        frequency = agreement.vocabulary.document_frequency
        origin = {
            "embedding": np.zeros(self.settings.embedding.dimension),
            "bow": np.ones(len(frequency)),
            "tfidf": np.log((1 + agreement.documents) / (1 + frequency)) + 1,  # rarity of words
        }[self.settings.representation]
        if self.settings.can_hide:
            moments = find_moments(agreement, origin)
            centres = draw_centres(
                self.settings.start, self.settings.n_components, moments, self.plan.seed
            )
            return KMeansState(origin, Partition.first(centres))
        partition = (
            self._merged(agreement.ask(KMeansClient.own_centres, round=1, origin=origin))
            if self.settings.adds_up
            else Partition.first(np.zeros((1, 0, len(origin))))  # the only round computes them
        )
        return KMeansState(origin, partition)

    def exchange(self, agreement: Agreement, state: KMeansState, round_: int) -> Reply:
        return (
            Lloyd(state.origin).exchange(agreement, state.partition, round_)
            if self.settings.adds_up
            else agreement.ask(KMeansClient.own_centres, round=1, origin=state.origin)
        )

    def step(
        self, agreement: Agreement, state: KMeansState, reply: dict[str, Any], round_: int
    ) -> RoundResult[KMeansState]:
        if not self.settings.adds_up:
            return RoundResult(
                replace(state, partition=self._merged(reply)),
                {"documents": sum(of_client["documents"] for of_client in reply.values())},
            )
        step = Lloyd(state.origin).step(agreement, state.partition, reply, round_)
        return RoundResult(KMeansState(state.origin, step.state), step.facts, step.change)

    def save(self, state: KMeansState) -> Arrays | None:
        """Return the arrays; while several starts remain, a run cannot be resumed."""
        return (
            None
            if len(state.partition.centres) > 1
            else {"origin": state.origin, **arrays_of(state.partition)}
        )

    def load(self, agreement: Agreement, arrays: Arrays) -> KMeansState:
        partition = {name: array for name, array in arrays.items() if name != "origin"}
        return KMeansState(arrays["origin"], Partition(**partition, rounds=TRIAL))

    def weights(self, agreement: Agreement, state: KMeansState, rounds: int) -> Arrays:
        best = state.partition.best(1)
        centres = best.centres[0]
        counts = best.counts[0][:, None]
        if not agreement.is_example:
            step = WORD_STEP if self.settings.needed_embedding is None else POINT_STEP
            # A power of two, because the number of documents would follow from another one.
            steps = 2.0 ** np.ceil(np.log2(step / np.maximum(counts, 1)))
            rounded = by_lot(centres / steps, agreement.coins, whole(counts[:, 0])) * steps
            centres = np.where(counts > 0, rounded, centres)
        return {"origin": state.origin, "centres": centres}

    def _merged(self, replies: Mapping[str, Mapping[str, Any]]) -> Partition:
        return Partition.first(merge_centres(replies, self.settings.n_components)[None])


METHOD = Method("kmeans", "k-means", KMeansSettings, KMeans, KMeansClient, shows="clusters")
