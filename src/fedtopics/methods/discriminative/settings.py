"""The parameters of discriminative clustering, as a study names them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from fedtopics.methods.bounded.settings import BoundedClusters, Shares
from fedtopics.methods.clusters.settings import EmbeddedSettings
from fedtopics.methods.core.settings import MethodName


class SeparationSettings(EmbeddedSettings):
    """What discriminative clustering needs, be it alone or the start of FSTC."""

    candidates: tuple[int, ...] = Field(
        (),
        description="numbers of clusters to choose from, by how well the clusters of two halves of "
        "the documents agree; by default n_components it is",
    )
    shrinkage: float = Field(
        0.3, gt=0, description="of the scatter within clusters towards a ball, in its mean variance"
    )
    sizes: Literal["even", "free"] = Field(
        "even",
        description='whether all clusters together are brought to one size ("even") or are as '
        'large as they come ("free")',
    )
    tolerance: float = Field(
        1e-3, ge=0, description="stop when the clusters' sums change by less, relative to them"
    )
    finalists: int = Field(
        4, ge=1, description="starts that are gone on with, until one of them is the best"
    )

    @field_validator("candidates")
    @classmethod
    def _several(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(number < 2 for number in value) or list(value) != sorted(set(value)):
            raise ValueError("give each number of clusters once, from 2 on, in order")
        return value


class DiscriminativeSettings(BoundedClusters, SeparationSettings, MethodName):
    """All parameters of discriminative clustering, as a study names them."""

    SHARES: ClassVar[Shares] = Shares(BoundedClusters.CLUSTERS, {"classes": 0.18, "sizes": 0.02})
    with_privacy: ClassVar[dict[str, Any]] = BoundedClusters.with_privacy | {"tolerance": 0.0}

    name: Literal["discriminative"] = Field("discriminative", description="the method")
    max_rounds: int = Field(100, ge=1, description="most rounds")

    @property
    def own_exchanges(self) -> str:
        if self.candidates:
            return "their number is chosen by pairs of documents: leave candidates out"
        return ""
