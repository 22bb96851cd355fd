"""Settings of federated NMF."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from fedtopics.inference.nmf import NMFShape
from fedtopics.methods.core.settings import ChoosesNumber, TopicSettings, check_seeds


class NMFSettings(ChoosesNumber, TopicSettings, NMFShape):
    name: Literal["nmf"] = Field("nmf", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(3, ge=1, description="maximum number of rounds")
    tolerance: float = Field(
        0.0,
        ge=0,
        description="stop when the topics change by less than this, relative to their norm",
    )
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (),
        description="words with which the first topics begin and to which they stay near: "
        '[["fever", "cough"]]',
    )
    strength: float = Field(
        0.01,
        ge=0,
        le=1,
        description="how strongly a topic is kept near its seed_topics: the weight of synthetic "
        "documents with only these words, as a share of all documents",
    )

    @model_validator(mode="after")
    def _seeds_fit(self) -> NMFSettings:
        if self.seed_topics and self.candidates:
            raise ValueError("seed_topics need a fixed number of topics; set n_components")
        check_seeds(self.seed_topics, self.n_components)
        return self
