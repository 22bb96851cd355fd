"""The client side of k-means: sums by centre, or the client's own clusters (k-FED)."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedtopics.contract.interfaces import published
from fedtopics.inference.clusters import Centres
from fedtopics.inference.vectors import Numbers
from fedtopics.methods.clusters.client import ClusterClient, ClusterSums
from fedtopics.methods.clusters.settings import ClusterSettings
from fedtopics.methods.clusters.sums import sums_by_label


class KMeansSettings(ClusterSettings):
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        # The baselines of the FSTC paper, Table 2.
        "fbow": {"algorithm": "k-fed", "representation": "bow"},
        "ftfidf": {"algorithm": "k-fed", "representation": "tfidf"},
        "fsbert": {"algorithm": "lloyd", "representation": "embedding"},
    }
    BY_WORDS: ClassVar[bool] = True

    name: Literal["kmeans"] = Field("kmeans", description="the method")
    preset: Literal["default", "fbow", "ftfidf", "fsbert"] = Field(
        "default", description="preset for other settings: the FSTC paper's baseline of that name"
    )
    algorithm: Literal["lloyd", "k-fed"] = Field(
        "lloyd",
        description='"lloyd": in each round, clients compute sums and the server centres, as if '
        'texts were pooled; "k-fed": each client runs its own k-means, only once',
    )
    max_rounds: int = Field(100, ge=1, description="maximum number of rounds")

    @property
    def adds_up(self) -> bool:
        """False for k-FED, which merges the clients' centres."""
        return self.algorithm == "lloyd"


class KMeansClient(ClusterClient[KMeansSettings]):
    inference = Centres

    @staticmethod
    def rounds(settings: KMeansSettings) -> dict[str, str]:
        one_shot = settings.algorithm == "k-fed"
        embedded = settings.representation == "embedding"
        # k-FED needs only the mean; Lloyd's algorithm also draws its starts from the moments.
        first = ("means", "moments")[: 0 if not embedded else 1 if one_shot else 2]
        calls = dict.fromkeys(first, "once, before the first round")
        if one_shot or not embedded:
            calls["own_centres"] = "once"
        return calls if one_shot else calls | {"cluster_sums": "each round"}

    @published(
        "The centre and the number of documents of each cluster with enough documents; the number "
        "of all. Centres are merged, not summed, so all participants see each client's centres.",
        seen_by_all=True,
    )
    def own_centres(self, vocabulary: str, round: int, origin: Numbers) -> dict[str, Any]:
        """Cluster the client's documents by k-means (k-FED, step 1)."""
        self.check(vocabulary)
        points = self.part(ClusterSums).points(origin)
        number = min(self.settings.n_components, points.shape[0] // self.min_documents)
        if number == 0:
            none = {"centres": np.zeros((0, len(origin))), "counts": np.zeros(0)}
            return none | {"documents": 0}
        from sklearn.cluster import KMeans as LocalKMeans  # the server does not need it

        seed = self.secret.seed("clusters") % 2**31
        kmeans = LocalKMeans(number, n_init=self.settings.start.tries, random_state=seed)
        with warnings.catch_warnings():  # ignores fewer different documents than clusters
            warnings.simplefilter("ignore")
            labels = kmeans.fit_predict(points)
        sums, counts = sums_by_label(points, labels.astype(np.int64), number)
        enough = counts >= self.min_documents
        centres = sums[enough] / counts[enough][:, None]
        return {"centres": centres, "counts": counts[enough], "documents": len(self.usable)}
