"""k-means with differential privacy: embeddings by nearest centre, in sums with noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.inference.clusters import Centres
from fedtopics.inference.points import Numbers, sums_by_label
from fedtopics.methods.bounded import contributions, estimates
from fedtopics.methods.bounded.client import NOISE, ByEmbeddings, Shape, times
from fedtopics.methods.bounded.method import BoundedClustering
from fedtopics.methods.bounded.stages import Stage, WordsOfClusters
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.client import leaves
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.kmeans.client import KMeansSettings

DEAD_SHARE = 0.1  # of clusters may keep the centre that public words gave them


class NoisyKMeansClient(ByEmbeddings[KMeansSettings]):
    """The client-side code of k-means with differential privacy."""

    @staticmethod
    def rounds(settings: KMeansSettings) -> dict[str, str]:
        repeated = {"noisy_cluster_sums": times(settings.repeats)}
        return ByEmbeddings.FIRST | repeated | {"cluster_words": "once"}

    @leaves(
        "For each cluster the sum of its documents' embeddings, less a common origin and of "
        f"length 1; {NOISE}."
    )
    def noisy_cluster_sums(
        self, vocabulary: str, number: int, origin: Numbers, centres: Numbers
    ) -> dict[str, Any]:
        """Sum the points (n_clusters, n_dimensions) that are nearest to each centre."""
        where = self._where(origin, centres)
        self._check_request("noisy_cluster_sums", vocabulary, (), *where, number=number)
        points, nearest = contributions.placed(self.embeddings, origin, centres)
        points *= self._weights[:, None]
        sums, _ = sums_by_label(points, nearest, len(centres))
        return {"sums": self._noisy(f"clusters {number}", sums)}

    @leaves(
        "For each word and cluster, how often the word is among the nearest ones of the cluster's "
        f"documents, each of which counts as a vector of length 1; {NOISE}."
    )
    def cluster_words(
        self, vocabulary: str, origin: Numbers, centres: Numbers, columns: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Sum the nearest words of documents by cluster, (n_words, n_clusters)."""
        self._check_request("cluster_words", vocabulary, columns, *self._where(origin, centres))
        _, nearest = contributions.placed(self.embeddings, origin, centres)
        sums, _ = sums_by_label(self._nearest[:, columns], nearest, len(centres))
        return {"counts": self._noisy("histogram", sums.T)}

    def _where(self, origin: Numbers, centres: Numbers) -> list[tuple[Numbers, Shape]]:
        """Return what tells the cluster of an embedding, with the shapes that it has to have."""
        n, k = self.embeddings.shape[1], self.settings.n_components
        return [(origin, (n,)), (centres, (k, n))]


class ClusterSums(Stage):
    """What is in each cluster, by its embeddings: a round of spherical k-means."""

    def exchange(self, agreement: Agreement, state: Arrays) -> dict[str, Any]:
        template = {"sums": (self.n_topics, self.dimension)}
        payload = {"number": self.number, **where(state)}
        return self.ask(agreement, "noisy_cluster_sums", template, **payload)

    def step(self, agreement: Agreement, state: Arrays, reply: Mapping[str, Any]) -> Arrays:
        sigma = self.budget.sigma(f"clusters {self.number}")
        found, directions = reply["sums"], state["directions"]
        centres, alive = estimates.move(state["centres"], found, directions, sigma)
        dead = int(np.count_nonzero(~alive))
        if dead > DEAD_SHARE * self.n_topics:
            raise self.refusal(
                f"{dead} of {self.n_topics} clusters have too few documents to be told from noise"
            )
        return {"centres": centres, "sums": found}


class ClusterWords(WordsOfClusters):
    """Which words clusters have."""

    function = "cluster_words"

    @staticmethod
    def clusters(state: Arrays) -> dict[str, Numbers]:
        return where(state)


class NoisyKMeans(BoundedClustering):
    """k-means with differential privacy."""

    REPEATED = ClusterSums
    LAST = (ClusterWords,)
    INFERENCE = Centres


def where(state: Arrays) -> dict[str, Numbers]:
    """Return what tells the cluster of an embedding: an origin, and centres of length 1."""
    return {"origin": state["origin"], "centres": state["centres"] @ state["directions"].T}
