"""The parameters of federated k-means, as a study names them, and the baselines' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from fedtopics.methods.bounded.settings import BoundedClusters, Shares
from fedtopics.methods.clusters.settings import ClusterSettings
from fedtopics.methods.core.settings import MethodPreset

KMEANS_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The baselines of the FSTC paper, Table 2.
    "fbow": {"algorithm": "k-fed", "representation": "bow"},
    "ftfidf": {"algorithm": "k-fed", "representation": "tfidf"},
    "fsbert": {"algorithm": "lloyd", "representation": "embedding"},
}


class KMeansSettings(BoundedClusters, ClusterSettings, MethodPreset):
    """All parameters of federated k-means, as a study names them."""

    SHARES: ClassVar[Shares] = Shares(BoundedClusters.CLUSTERS, {"clusters": 0.2})

    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = KMEANS_PRESETS

    name: Literal["kmeans"] = Field("kmeans", description="the method")
    preset: Literal["default", "fbow", "ftfidf", "fsbert"] = Field(
        "default", description="for what is not given: the FSTC paper's baseline of that name"
    )
    algorithm: Literal["lloyd", "k-fed"] = Field(
        "lloyd",
        description='"lloyd": sums at the clients, centres at the server, round after round, as if '
        'texts were pooled; "k-fed": each client its own k-means, once',
    )
    max_rounds: int = Field(100, ge=1, description="most rounds")

    @property
    def own_exchanges(self) -> str:
        if self.algorithm == "k-fed":
            return (
                "clients' own centres, which are merged one by one, depend on all documents: set "
                'algorithm = "lloyd"'
            )
        if self.representation != "embedding":
            return "centres of words would be noise alone: leave representation out"
        return ""

    @property
    def adds_up(self) -> bool:
        """Not in k-FED, which merges centres of clients one by one."""
        return self.algorithm == "lloyd"
