"""The parameters of federated NMF, as a study names them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedtopics.inference.nmf import NMFShape
from fedtopics.methods.bounded.settings import Bounded, Shares
from fedtopics.methods.core.settings import MethodName, check_seeds, seeds_in
from fedtopics.text.rules import TextRules


class NMFSettings(Bounded, NMFShape, MethodName):
    """All parameters of federated NMF, as a study names them."""

    ONCE: ClassVar[int] = 2
    SHARES: ClassVar[Shares] = Shares(
        {"words": 0.05, "sketch": 0.5}, {"factors": 0.4, "products": 0.05}
    )
    with_privacy: ClassVar[dict[str, Any]] = {"coherence": "nothing", "max_rounds": 8}

    name: Literal["nmf"] = Field("nmf", description="the method")
    n_components: int = Field(20, ge=2, description="number of topics")
    max_rounds: int = Field(40, ge=1, description="most rounds")
    tolerance: float = Field(
        0.0, ge=0, description="stop when the topics change by less, relative to their norm"
    )
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (),
        description='words that the first topics begin with and are held to: [["fever", "cough"]]',
    )
    strength: float = Field(
        0.01, ge=0, le=1,
        description="how firmly a topic is held to its words: as by made-up documents of these "
        "words alone, this share of all documents",
    )  # fmt: skip

    @model_validator(mode="after")
    def _seeds_fit(self) -> NMFSettings:
        check_seeds(self.seed_topics, self.n_components)
        return self

    def read_by(self, text: TextRules) -> Self:
        """Return them with seed_topics as documents have these words."""
        seeds = seeds_in(text, self.seed_topics, self.n_components)
        return self.model_copy(update={"seed_topics": seeds})

    @property
    def stops(self) -> dict[str, float]:
        return {"tolerance": self.tolerance}
