"""The parameters of FSCCL, as a study names them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedtopics.methods.clusters.settings import EmbeddedSettings, NetworkTraining
from fedtopics.methods.clusters.views import ViewSettings
from fedtopics.methods.core.settings import MethodName


class FSCCLSettings(EmbeddedSettings, NetworkTraining, ViewSettings, MethodName):
    """All parameters of FSCCL, as a study names them."""

    UNBOUNDED: ClassVar[str] = "its network is trained on pairs of documents"

    name: Literal["fsccl"] = Field("fsccl", description="the method")
    max_rounds: int = Field(40, ge=1, description="rounds")
    deletion: float = Field(
        0.2, ge=0, lt=1,
        description="share of a text's words that a view of it does without; it needs the model of "
        "the embeddings; with 0, and no synonyms, there is dropout alone",
    )  # fmt: skip
    dropout: float = Field(
        0.1, ge=0, lt=1, description="share of an embedding's numbers that a view does without"
    )
    contrast_temperature: float = Field(
        0.5, gt=0, description="of the likeness of views: the lower, the more the nearest count"
    )
    contrastive_weight: float = Field(
        10.0, ge=0, description="of the contrastive loss, beside that of clustering: eta"
    )
