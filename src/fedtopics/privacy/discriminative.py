"""Discriminative clustering with differential privacy, from noisy sums of weighted embeddings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.interfaces import published
from fedtopics.inference.clusters import Discriminants, centred
from fedtopics.inference.vectors import Discriminant, Numbers, blocks
from fedtopics.methods.clusters.settings import DiscriminativeSettings
from fedtopics.methods.clusters.sums import Moments, weighted_sums
from fedtopics.methods.core.agreement import Agreement
from fedtopics.methods.core.training import Arrays
from fedtopics.methods.discriminative.separation import Separation, Split
from fedtopics.privacy import contributions
from fedtopics.privacy.client import NOISE, ByEmbeddings, calls
from fedtopics.privacy.recipe import clustering
from fedtopics.privacy.stages import Releases

LEAST_SIZE = 0.1  # assumed minimum size of a cluster, relative to clusters of equal size


class NoisyDiscriminativeClient(ByEmbeddings[DiscriminativeSettings]):
    """The client-side code of discriminative clustering with differential privacy."""

    @staticmethod
    def rounds(settings: DiscriminativeSettings) -> dict[str, str]:
        return calls(ByEmbeddings.FIRST, settings, "noisy_class_sums", "class_words")

    @published(
        "For each cluster, the sum of documents' shares of it, and the sum of embeddings (less a "
        "common origin, scaled to length 1) times these shares. A document's shares add up to 1. "
        f"The sums are sent {NOISE}."
    )
    def noisy_class_sums(self, vocabulary: str, number: int, **clusters: Numbers) -> dict[str, Any]:
        """Sum, for each cluster, points weighted by memberships, and memberships."""
        points, members = self._members("noisy_class_sums", vocabulary, (), number, **clusters)
        members *= self._weights[:, None]
        sums, sizes = weighted_sums(points, blocks(members), self.settings.n_components)
        return {
            "classes": self._noisy(f"classes {number}", sums),
            "sizes": self._noisy(f"sizes {number}", sizes),
        }

    @published(
        "For each word and cluster, how often the word is among a document's nearest words, times "
        f"its share of it, as a sum in which a document is a matrix of length 1 or less, {NOISE}."
    )
    def class_words(
        self, vocabulary: str, columns: NDArray[np.int64], **clusters: Numbers
    ) -> dict[str, Any]:
        """Sum the nearest words of documents by their memberships, (n_words, n_clusters)."""
        _, members = self._members("class_words", vocabulary, columns, 1, **clusters)
        return {"counts": self._noisy("histogram", self._nearest[:, columns].T @ members)}

    def _members(
        self,
        function: str,
        vocabulary: str,
        columns: Any,
        number: int,
        *,
        origin: Numbers,
        projection: Numbers,
        directions: Numbers,
        bias: Numbers,
    ) -> tuple[NDArray[np.float32], Numbers]:
        """Check a request; return unit embeddings less the origin, and their shares."""
        n = self.embeddings.shape[1]
        k = self.settings.n_components
        d = directions.shape[-1]
        shaped = (origin, (n,)), (projection, (n, d)), (directions, (k, d)), (bias, (k,))
        self._check_request(function, vocabulary, columns, *shaped, number=number)
        points = centred(self.embeddings, origin)
        discriminant = Discriminant(projection, directions, bias, self.settings.temperature)
        return points, contributions.memberships(points, discriminant)


def class_sums(releases: Releases, agreement: Agreement, state: Arrays) -> Arrays:
    """Find the new clusters from weighted sums: a round of discriminative clustering."""
    directions = state["directions"]
    k = releases.n_topics
    template = {"classes": (k, releases.dimension), "sizes": (k,)}
    payload = {"number": releases.number, **clusters_of(state)}
    reply = releases.ask(agreement, "noisy_class_sums", template, **payload)
    sizes = np.maximum(reply["sizes"], LEAST_SIZE * agreement.documents / k)
    # In all other directions, the sums are mostly noise.
    projected = reply["classes"] @ directions
    no_mean = np.zeros(directions.shape[1])
    moments = Moments(agreement.documents, no_mean, state["scatter"])
    bias = state.get("bias", np.zeros(k))
    split = Split(
        sums=projected[None],
        weights=sizes[None],
        bias=bias[None],
        apart=np.zeros(1),
        even=np.array([releases.settings.separation.sizes == "even"]),
    )
    clusters = Separation(releases.settings, state["origin"], moments).direct(split).weights()
    missing = min(k - 1, releases.dimension) - clusters["projection"].shape[1]
    padding = [(0, 0), (0, missing)]  # to the width of a model, with empty directions
    return {
        "projection": np.pad(directions @ clusters["projection"], padding),
        "axes": np.pad(clusters["directions"], padding),
        "bias": clusters["bias"],
        "sums": reply["classes"],
    }


def clusters_of(state: Arrays) -> dict[str, Numbers]:
    """Return the arrays that determine the cluster of an embedding; at first, only its centres."""
    if "projection" not in state:
        return {
            "origin": state["origin"],
            "projection": state["directions"],
            "directions": state["centres"],
            "bias": np.zeros(len(state["centres"])),
        }
    return {
        "origin": state["origin"],
        "projection": state["projection"],
        "directions": state["axes"],
        "bias": state["bias"],
    }


def why_unsupported(settings: DiscriminativeSettings) -> str:
    """Return why these settings have no sums with noise; see `Recipe`."""
    if settings.inference is Discriminants:
        return ""
    return 'sums by word have no noise: leave out word_weight, and sizes = "both"'


RECIPE = clustering(
    NoisyDiscriminativeClient,
    repeated=class_sums,
    function="class_words",
    clusters=clusters_of,
    kind=Discriminants,
    shares={"classes": 0.18, "sizes": 0.02},
    why_unsupported=why_unsupported,
    preset="single",
    separation={"tolerance": 0.0},
)
