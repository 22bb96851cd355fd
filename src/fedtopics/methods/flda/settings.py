"""The settings of F-LDA, and the authors' values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fedtopics.contract.published import EACH_ROUND, NEVER, Often
from fedtopics.inference.gibbs import GibbsSettings
from fedtopics.methods.core.settings import TopicSettings, check_seeds
from fedtopics.methods.flda.arrivals import ArrivalSettings
from fedtopics.methods.flda.topic_lists import Linkage

# Algorithms 1 to 3. Every copy of the paper lacks lines of Algorithm 1: here are two readings.
_PAPER = {
    "absent_words": "ignored",
    "memory": 0.0,
    "n_words": 10,
    "spare_topics": 0,
    "relevance": 1.0,
    "stop": "coherence",
}


class FLDASettings(TopicSettings, GibbsSettings, ArrivalSettings):
    agrees_first: ClassVar[bool] = False
    PRESETS: ClassVar[Mapping[str, dict[str, Any]]] = {
        "paper-transitive": _PAPER
        | {"linkage": "single", "keep_unmatched": False, "refill": False},
        "paper-pairwise": _PAPER | {"linkage": "pairs", "keep_unmatched": True, "refill": True},
    }

    name: Literal["flda"] = Field("flda", description="the method")
    preset: Literal["default", "paper-transitive", "paper-pairwise"] = Field(
        "default",
        description='preset for other settings: "paper-transitive" and "paper-pairwise" are two '
        "literal readings of the paper's algorithms, of which lines are missing",
    )
    max_rounds: int = Field(3, ge=1, description="maximum number of rounds")
    spare_topics: int | None = Field(
        None,
        ge=0,
        description="number of topics of a client without guidance, in addition to n_components; "
        "by default n_components",
    )
    n_words: int = Field(30, ge=2, description="number of words of a topic that a client sends")
    threshold: float | None = Field(
        None,
        gt=0,
        le=1,
        description="least cosine of two topics that are the same; by default the value that one "
        "in a hundred pairs of topics of one client reaches",
    )
    linkage: Linkage = Field(
        "average",
        description="which topics are merged: the most similar first, at most one of each client "
        '("average"), all topics that a chain of pairs over the threshold connects '
        '("single"), or each pair over the threshold ("pairs", where a topic can be in several '
        "merged topics)",
    )
    absent_words: Literal["zero", "ignored"] = Field(
        "zero",
        description="whether a topic that lacks a word counts as zero in the mean of the word's "
        "weights, or is ignored in that mean",
    )
    weighting: Literal["topics", "documents"] = Field(
        "topics",
        description="whether topics have equal weights in a mean, or are weighted by their "
        "clients' numbers of documents",
    )
    refill: bool = Field(
        True, description="whether clients with guidance have as many topics as those without"
    )
    keep_unmatched: bool = Field(True, description="whether topics of only one client are kept")
    memory: float = Field(
        0.7,
        ge=0,
        le=1,
        description="weight of a topic of the previous round, relative to one of this round",
    )
    seed_topics: tuple[tuple[str, ...], ...] = Field(
        (), description='words of the first topics, which keep them: [["fever", "cough"]]'
    )
    min_new_documents: int = Field(
        100, ge=1, description="a client with fewer new documents skips the round"
    )
    patience: int = Field(
        1, ge=1, description="end after this many consecutive rounds without new documents"
    )
    stop: Literal["documents", "coherence"] = Field(
        "documents",
        description='"coherence" ends with the first round whose topics are less coherent than '
        "those of the previous round; the previous topics are kept",
    )

    @model_validator(mode="after")
    def _seeds_fit(self) -> FLDASettings:
        check_seeds(self.seed_topics, self.n_components)
        if self.stop == "coherence" and self.coherence == "nothing":
            raise ValueError('stop = "coherence" needs a coherence other than "nothing"')
        return self

    def most_words(self, max_words: int) -> int:
        return self.n_components * self.n_words

    @property
    def scoring(self) -> Often:
        return EACH_ROUND if self.stop == "coherence" else NEVER

    @property
    def adds_up(self) -> bool:
        return False

    @property
    def n_local(self) -> int:
        spare = self.n_components if self.spare_topics is None else self.spare_topics
        return self.n_components + spare
