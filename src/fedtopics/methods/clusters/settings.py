"""Settings that several methods have which find clusters of documents."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, model_validator

from fedtopics.inference.clusters import ClusterShape
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.shown_words import CLASS_BASED, Reading
from fedtopics.text.embeddings import EmbeddingSettings


class KMeansStart(TopicSettings):
    """Settings of all methods that may begin with k-means."""

    starts: int = Field(8, ge=1, le=20, description="k-means starts, of which the best goes on")
    start_rounds: int = Field(60, ge=1, description="most rounds of k-means before what follows")


class ClusterSettings(KMeansStart, ClusterShape):
    """Settings of all methods that find clusters of documents."""

    n_components: int = Field(20, ge=2, description="number of clusters")

    @property
    def needed_embedding(self) -> EmbeddingSettings | None:
        """The kind of embeddings that documents need, if any."""
        return self.embedding if self.representation == "embedding" else None

    @property
    def readings(self) -> list[Reading]:
        """Clusters are described by words that are common in them and rare elsewhere."""
        return [CLASS_BASED] if self.relevance is None else [Reading(self.relevance)]


class EmbeddedSettings(ClusterSettings):
    """Settings of the methods that find clusters by embeddings alone."""

    @model_validator(mode="after")
    def _sees_embeddings(self) -> Any:
        if self.representation != "embedding":
            raise ValueError(
                f"representation {self.representation!r} is for the method kmeans; leave it out"
            )
        return self


class NetworkTraining(BaseModel):
    """How clients train their networks of short texts."""

    hidden: int = Field(128, ge=1, description="units of the adapter of embeddings")
    local_steps: int = Field(100, ge=1, description="minibatches a client takes in one round")
    batch_size: int = Field(200, ge=1, description="documents of a minibatch")
    learning_rate: float = Field(5e-4, gt=0, description="of adapter and head")
