"""The parameters of F-LDA, as a study names them, and the authors' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedtopics.inference.gibbs import GibbsSettings
from fedtopics.methods.core.settings import TopicSettings, check_seeds, seeds_in
from fedtopics.methods.flda.topic_lists import Linkage
from fedtopics.text.arrivals import ArrivalSettings
from fedtopics.text.rules import TextRules

# Algorithms 1 to 3. Every copy of the paper lacks lines of the first: two ways to read it.
_PAPER = {
    "absent_words": "ignored", "memory": 0.0, "n_words": 10, "spare_topics": 0, "relevance": 1.0,
    "stop": "coherence",
}  # fmt: skip
FLDA_PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper-transitive": {**_PAPER, "linkage": "single", "keep_unmatched": False, "refill": False},
    "paper-pairwise": {**_PAPER, "linkage": "pairs", "keep_unmatched": True, "refill": True},
}


class FLDASettings(TopicSettings, GibbsSettings, ArrivalSettings):
    """All parameters of F-LDA, as a study names them."""

    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = FLDA_PRESETS

    name: Literal["flda"] = Field("flda", description="the method")
    preset: Literal["default", "paper-transitive", "paper-pairwise"] = Field(
        "default",
        description='for what is not given: "paper-transitive" and "paper-pairwise" take the '
        "paper's algorithms, of which lines are lost, word by word",
    )
    max_rounds: int = Field(3, ge=1, description="most rounds")
    spare_topics: int | None = Field(
        None,
        ge=0,
        description="topics of a client besides n_components, free for what is new or its own; by "
        "default as many again",
    )
    n_words: int = Field(30, ge=2, description="words of a topic that leave a client")
    threshold: float | None = Field(
        None, gt=0, le=1,
        description="cosine from which two topics are the same; by default what one in a hundred "
        "pairs of topics of one client reaches",
    )  # fmt: skip
    linkage: Linkage = Field(
        "average",
        description="which topics are merged: the most alike first, at most one of a client "
        '("average"), all that a chain of pairs over the threshold connects ("single"), or each '
        'such pair by itself ("pairs"), so that a topic is in as many as it has partners',
    )
    absent_words: Literal["zero", "ignored"] = Field(
        "zero",
        description="a word that a merged topic lacks counts as zero in the mean of its weights, "
        "or is ignored there",
    )
    weighting: Literal["topics", "documents"] = Field(
        "topics",
        description="whether each topic of a mean counts the same, or its client's documents do",
    )
    refill: bool = Field(
        True, description="whether a client that is guided has as many topics as one that is not"
    )
    keep_unmatched: bool = Field(True, description="whether topics of one client alone stay")
    memory: float = Field(
        0.7, ge=0, le=1,
        description="how much a topic of the round before counts beside one of this round",
    )  # fmt: skip
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (), description='words of topics to begin with, which keep them: [["fever", "cough"]]'
    )
    min_new_documents: int = Field(
        100, ge=1, description="a client with fewer new documents skips the round"
    )
    patience: int = Field(
        1, ge=1, description="end after so many rounds in a row without new documents"
    )
    stop: Literal["documents", "coherence"] = Field(
        "documents",
        description='"coherence" ends with the first round whose topics are less coherent than '
        "those of the round before, which stay",
    )

    @model_validator(mode="after")
    def _seeds_fit(self) -> FLDASettings:
        check_seeds(self.seed_topics, self.n_components)
        if self.stop == "coherence" and self.coherence == "nothing":
            raise ValueError('stop = "coherence" needs a coherence that is not "nothing"')
        return self

    def read_by(self, text: TextRules) -> Self:
        """Return them with seed_topics as documents have these words."""
        seeds = seeds_in(text, self.seed_topics, self.n_components)
        return self.model_copy(update={"seed_topics": seeds})

    @property
    def adds_up(self) -> bool:
        """No: topics of clients are merged one by one."""
        return False

    @property
    def n_local(self) -> int:
        """Topics of a client that begins without seeds."""
        spare = self.n_components if self.spare_topics is None else self.spare_topics
        return self.n_components + spare
