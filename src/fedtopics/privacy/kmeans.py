"""k-means with differential privacy: sums of embeddings by the nearest centre, with noise."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import published
from fedtopics.inference.clusters import Centres
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.clusters.sums import sums_by_label
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.kmeans.client import KMeansSettings
from fedtopics.privacy import contributions, estimates
from fedtopics.privacy.client import NOISE, ByEmbeddings, calls
from fedtopics.privacy.recipe import clustering
from fedtopics.privacy.stages import Releases

DEAD_SHARE = 0.1  # share of clusters that may keep their centre from public words


class NoisyKMeansClient(ByEmbeddings[KMeansSettings]):
    """The client-side code of k-means with differential privacy."""

    @staticmethod
    def rounds(settings: KMeansSettings) -> dict[str, str]:
        return calls(ByEmbeddings.FIRST, settings, "noisy_cluster_sums", "cluster_words")

    @published(
        "For each cluster, the sum of its documents' embeddings (less a common origin, scaled to "
        f"length 1), {NOISE}."
    )
    def noisy_cluster_sums(
        self, vocabulary: str, number: int, origin: Numbers, centres: Numbers
    ) -> dict[str, Any]:
        """Sum the points nearest to each centre, (n_clusters, n_dimensions)."""
        points, nearest = self._placed(
            "noisy_cluster_sums", vocabulary, (), origin=origin, centres=centres, number=number
        )
        points *= self._weights[:, None]
        sums, _ = sums_by_label(points, nearest, len(centres))
        return {"sums": self._noisy(f"clusters {number}", sums)}

    @published(
        "For each word and cluster, how often the word is among the nearest words of the cluster's "
        f"documents, as a sum in which a document is a vector of length 1, {NOISE}."
    )
    def cluster_words(
        self, vocabulary: str, origin: Numbers, centres: Numbers, columns: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Sum the nearest words of documents by cluster, (n_words, n_clusters)."""
        _, nearest = self._placed(
            "cluster_words", vocabulary, columns, origin=origin, centres=centres
        )
        sums, _ = sums_by_label(self._nearest[:, columns], nearest, len(centres))
        return {"counts": self._noisy("histogram", sums.T)}

    def _placed(
        self,
        function: str,
        vocabulary: str,
        columns: Any,
        origin: Numbers,
        centres: Numbers,
        number: int = 1,
    ) -> tuple[contributions.Vectors, NDArray[np.int64]]:
        """Check a request; return embeddings minus the origin, and the nearest centre of each."""
        n = self.embeddings.shape[1]
        k = self.settings.n_components
        shaped = (origin, (n,)), (centres, (k, n))
        self._check_request(function, vocabulary, columns, *shaped, number=number)
        return contributions.placed(self.embeddings, origin, centres)


def cluster_sums(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the new centres from sums of embeddings: a round of spherical k-means."""
    n_topics = releases.n_topics
    number = releases.number
    template = {"sums": (n_topics, releases.dimension)}
    payload = {"number": number, **clusters_of(state)}
    sums = releases.ask(agreement, "noisy_cluster_sums", template, **payload)["sums"]
    sigma = releases.budget.sigma(f"clusters {number}")
    centres, alive = estimates.move(state["centres"], sums, state["directions"], sigma)
    dead = int(np.count_nonzero(~alive))
    if dead > DEAD_SHARE * n_topics:
        raise releases.refusal(
            f"{dead} of {n_topics} clusters have too few documents to be distinct from noise"
        )
    return {"centres": centres, "sums": sums}


def clusters_of(state: Arrays) -> dict[str, Numbers]:
    """Return the origin, and centres of length 1, which determine the cluster of an embedding."""
    return {"origin": state["origin"], "centres": state["centres"] @ state["directions"].T}


def why_unsupported(settings: KMeansSettings) -> str:
    """Return why these settings have no sums with noise; see `Recipe`."""
    if settings.algorithm == "k-fed":
        return (
            "the clients' own centres, which k-FED merges, depend on all documents: set "
            'algorithm = "lloyd"'
        )
    if settings.representation != "embedding":
        return "centres of words would be only noise: leave out representation"
    return ""


RECIPE = clustering(
    NoisyKMeansClient,
    repeated=cluster_sums,
    function="cluster_words",
    clusters=clusters_of,
    kind=Centres,
    shares={"clusters": 0.2},
    why_unsupported=why_unsupported,
)
