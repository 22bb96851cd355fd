"""The parameters of the mixture of embeddings and words, as a study names them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedtopics.inference.mixture import MixtureShape
from fedtopics.methods.clusters.settings import KMeansStart
from fedtopics.methods.core.settings import MethodName
from fedtopics.text.embeddings import EmbeddingSettings


class MixtureSettings(KMeansStart, MixtureShape, MethodName):
    """All parameters of the mixture of embeddings and words, as a study names them."""

    name: Literal["mixture"] = Field("mixture", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    start_rounds: int = Field(20, ge=1, description="most rounds of k-means before what follows")
    max_rounds: int = Field(50, ge=1, description="most rounds")
    tolerance: float = Field(
        1e-3, ge=0, description="stop when the topics' sums change by less, relative to them"
    )

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        return self.embedding

    @property
    def stops(self) -> dict[str, float]:
        return {"tolerance": self.tolerance}
