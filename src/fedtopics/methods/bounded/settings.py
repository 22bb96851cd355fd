"""Settings of the methods that keep differential privacy, and the budget's share of each sum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, field_validator

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.files import read_text
from fedtopics.methods.core.settings import TopicSettings
from fedtopics.model.shown_words import Reading
from fedtopics.text.embeddings import EmbeddingSettings, sentence_encoder
from fedtopics.text.rules import TextRules
from fedtopics.text.words import is_word

COUNT = 0.005  # share of the budget, of the number of documents
SHORTEST = 3  # letters of a public word; shorter pieces are hardly ever words
MOST_ROUNDS = 50  # among which a budget is shared out
RELEVANCE = 0.5  # by which topics are read, where the study does not say


@dataclass(frozen=True)
class Shares:
    """Shares of the budget, but for the number of documents; they add up to 1.

    They were chosen by hand on 20ng and synthetic documents.
    """

    once: Mapping[str, float]
    repeated: Mapping[str, float]  # of all rounds together

    def of(self, rounds: int) -> dict[str, float]:
        """Return the share of each release, with so many rounds."""
        each = {
            f"{name} {number + 1}": share / rounds
            for number in range(rounds) for name, share in self.repeated.items()
        }  # fmt: skip
        released = {n: share * (1 - COUNT) for n, share in {**self.once, **each}.items()}
        return {"documents": COUNT} | released


class Bounded(TopicSettings):
    """Settings of a method that can keep differential privacy.

    Of its rounds so many are `ONCE`: words and first topics or clusters, and words at the end.
    """

    ONCE: ClassVar[int]
    SHARES: ClassVar[Shares]

    words: tuple[str, ...] = Field(
        (),
        description="public words, for a study with privacy; by default those that the embedding "
        "model has as one piece",
    )

    @field_validator("words")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(is_word, value)) or len(set(value)) < len(value):
            raise ValueError("words have to print, and to be different")
        return value

    @property
    def unbounded(self) -> str:
        """As of all methods: what has no noise, or no end."""
        if why := self.own_exchanges:
            return why
        if self.coherence != "nothing":
            return 'counts of pairs of words have no noise: set coherence = "nothing"'
        if self.over_time:
            return "sums by period have no noise: leave over_time out"
        tolerance: float = getattr(self, "tolerance", 0.0)
        if self.stop_when or tolerance:
            return "rounds are few and given beforehand: leave out stop_when and tolerance"
        if not self.ONCE < self.max_rounds <= MOST_ROUNDS:
            return (
                "each round has a part of the budget: set max_rounds, "
                f"{self.ONCE + 1} to {MOST_ROUNDS}, of which {self.ONCE} are for words and a start"
            )
        return ""

    @property
    def own_exchanges(self) -> str:
        """Why these settings need exchanges that have no noise; nothing if they do not."""
        return ""

    @property
    def repeats(self) -> int:
        """How often a study with privacy asks for what it repeats."""
        return self.max_rounds - self.ONCE

    @property
    def shares(self) -> dict[str, float]:
        """Each release's share of the budget; they add up to 1."""
        return self.SHARES.of(self.repeats)

    @property
    def reading(self) -> Reading:
        """How topics are read in a study with privacy: nothing is left to choose it by."""
        return Reading(RELEVANCE if self.relevance is None else self.relevance)

    @property
    def encoder_of_words(self) -> EmbeddingSettings:
        """The embedding model whose pieces are public words where the study names none."""
        return EmbeddingSettings()

    def public_words(self, text: TextRules) -> list[str]:
        """Return the words that are known without a document.

        StudyError if the study names none, and its embedding model is not here or has other pieces.
        """
        if self.words:
            return text.given(self.words)[0]
        name = self.encoder_of_words.model
        try:
            encoder = sentence_encoder(name)
        except FedTopicsError as error:
            raise StudyError(
                "A study with privacy has topics of public words, as which words documents have is "
                "not public, and this one names none: give a list of the language or the field as "
                f"words in [method], or let all participants have its embedding model. {error}"
            ) from None
        pieces = read_text(encoder.folder / "tokenizer.json")
        model = json.loads(pieces)["model"]
        if model.get("type", "WordPiece") != "WordPiece":
            raise StudyError(
                f"The model {name!r} has no pieces that are whole words; give a public list of "
                "words with words."
            )
        split = text.analyser()
        return [
            piece
            for piece in model["vocab"]
            if len(piece) >= SHORTEST and piece.isalpha() and split(piece) == [piece]
        ]


class BoundedClusters(Bounded):
    """As `Bounded`, of a method that finds clusters of embeddings."""

    ONCE: ClassVar[int] = 3
    CLUSTERS: ClassVar[dict[str, float]] = {
        "words": 0.15, "mean": 0.02, "products": 0.08, "histogram": 0.55,
    }  # fmt: skip
    with_privacy: ClassVar[dict[str, Any]] = {"coherence": "nothing", "max_rounds": 5}

    nearest_words: int = Field(
        8, ge=1, le=100,
        description="words of a document, the nearest ones to its embedding, that describe its "
        "cluster in a study with privacy; 16 for long texts",
    )  # fmt: skip
    embedding: EmbeddingSettings = Field(EmbeddingSettings(), description="of documents")

    @property
    def encoder_of_words(self) -> EmbeddingSettings:
        return self.embedding
