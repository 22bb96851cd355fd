"""What runs in place of a method's own exchanges in a study with [privacy]: a recipe.

All such methods share one program and one client's half, in the package `private`. They differ in
what documents are seen by, and in how many rounds share the budget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.files import read_text
from fedtopics.methods.settings import TopicSettings
from fedtopics.model.shown_words import Reading
from fedtopics.privacy import Privacy
from fedtopics.text.embeddings import EmbeddingSettings, sentence_encoder
from fedtopics.text.rules import TextRules
from fedtopics.text.words import is_word

Mode = Literal["embeddings", "both", "words", "factors", "classes"]
ENOUGH_DOCUMENTS, ENOUGH_EPSILON = 10_000, 3.0  # for variational rounds after clusters
COUNT = 0.005  # share of the budget, of the number of documents
SHORTEST = 3  # letters of a public word; shorter pieces are hardly ever words
MOST_ROUNDS = 50  # among which a budget is shared out
NEAREST = 8
RELEVANCE = 0.5  # by which topics are read, where the study does not say


@dataclass(frozen=True)
class Shares:
    """Shares of the budget, but for the number of documents; they add up to 1."""

    once: Mapping[str, float]
    repeated: Mapping[str, float]  # of all rounds together
    rounds: int  # unless a study says how many

    def of(self, rounds: int) -> dict[str, float]:
        """Return the share of each release, with so many rounds."""
        each = {
            f"{name} {number + 1}": share / rounds
            for number in range(rounds) for name, share in self.repeated.items()
        }  # fmt: skip
        return {n: share * (1 - COUNT) for n, share in {**self.once, **each}.items()}


OF_CLUSTERS = {"words": 0.15, "mean": 0.02, "products": 0.08, "histogram": 0.55}
SHARES: dict[Mode, Shares] = {
    "embeddings": Shares(OF_CLUSTERS, {"clusters": 0.2}, 2),
    "both": Shares(
        {name: share / 2 for name, share in OF_CLUSTERS.items()},
        {"clusters": 0.1, "topics": 0.5}, 2,
    ),
    "words": Shares({"words": 0.05, "sketch": 0.7}, {"topics": 0.25}, 1),
    "factors": Shares({"words": 0.05, "sketch": 0.5}, {"factors": 0.4, "products": 0.05}, 2),
    "classes": Shares(OF_CLUSTERS, {"classes": 0.18, "sizes": 0.02}, 2),
}  # fmt: skip
"""By mode; chosen by hand on 20ng and drawn documents."""


@dataclass(frozen=True)
class Recipe:
    """What is asked of clients, and what their documents are seen by."""

    mode: Literal["auto", Mode]
    n_components: int
    words: tuple[str, ...]
    alpha: float  # prior of theta
    rounds: int | None = None  # of what is repeated
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    nearest_words: int = NEAREST
    reading: Reading = field(default_factory=Reading)
    own: Any = None  # settings of the method, that stages of its own read

    def shares(self, mode: Mode) -> dict[str, float]:
        """Return each release's share of the budget, which add up to 1."""
        return {"documents": COUNT} | SHARES[mode].of(self.rounds_of(mode))

    def rounds_of(self, mode: Mode) -> int:
        """Return how often what is repeated is asked."""
        return self.rounds or SHARES[mode].rounds

    def choose(self, documents: float, embedded: bool, privacy: Privacy | None) -> tuple[Mode, str]:
        """Return what documents are seen by, and why; `documents` is a number with noise."""
        if self.mode != "auto":
            return self.mode, "the study says so"
        if not embedded:
            return "words", "not all clients have embeddings"
        epsilon = "no bound" if privacy is None else f"epsilon {privacy.epsilon:g}"
        why = f"there are about {documents:,.0f} documents, and {epsilon}"
        enough = privacy is None or privacy.epsilon >= ENOUGH_EPSILON
        return ("both" if enough and documents >= ENOUGH_DOCUMENTS else "embeddings"), why

    def public_words(self, text: TextRules) -> list[str]:
        """Return the words that are known without a document.

        Raises
        ------
        StudyError
            If the study names none, and its embedding model is not here or has other pieces.
        """
        if self.words:
            return list(self.words)
        try:
            encoder = sentence_encoder(self.embedding.model)
        except FedTopicsError as error:
            raise StudyError(
                "A private study has topics of public words, as which words documents have is not "
                "public, and this one names none: give a list of the language or the field as "
                f"words in [method], or let all participants have its embedding model. {error}"
            ) from None
        pieces = read_text(encoder.folder / "tokenizer.json")
        model = json.loads(pieces)["model"]
        if model.get("type", "WordPiece") != "WordPiece":
            raise StudyError(
                f"The model {self.embedding.model!r} has no pieces that are whole words; give a "
                "public list of words with words."
            )
        split = text.analyser()
        return [
            piece
            for piece in model["vocab"]
            if len(piece) >= SHORTEST and piece.isalpha() and split(piece) == [piece]
        ]


class PublicWords(TopicSettings):
    """Settings of methods that can have a recipe."""

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


class NearestWords(BaseModel):
    """How documents that are seen by embeddings show words."""

    nearest_words: int = Field(
        NEAREST, ge=1, le=100,
        description="words of a document, the nearest ones to its embedding, that describe its "
        "cluster in a study with privacy; 16 for long texts",
    )  # fmt: skip


class Bounded(PublicWords):
    """Settings of a method that has a recipe in studies with [privacy], in place of its rounds.

    Of its rounds so many are `ONCE`: words and first topics or clusters, and words at the end.
    """

    ONCE: ClassVar[int]

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

    def made(self, mode: Mode, **more: Any) -> Recipe:
        """Return the recipe of a mode with these settings."""
        n, relevance = self.n_components, self.relevance
        usual: dict[str, Any] = {
            "alpha": 1 / n, "reading": Reading(RELEVANCE if relevance is None else relevance),
            "rounds": self.max_rounds - self.ONCE, "own": self,
        }  # fmt: skip
        return Recipe(mode, n, self.words, **{**usual, **more})


class BoundedClusters(Bounded, NearestWords):
    """As `Bounded`, of a method that finds clusters of embeddings."""

    ONCE: ClassVar[int] = 3
    MODE: ClassVar[Mode]
    with_privacy: ClassVar[dict[str, Any]] = {"coherence": "nothing", "max_rounds": 5}

    embedding: EmbeddingSettings = Field(EmbeddingSettings(), description="of documents")

    @property
    def recipe(self) -> Recipe:
        """As of all methods: clusters of embeddings, from sums with noise."""
        return self.made(self.MODE, embedding=self.embedding, nearest_words=self.nearest_words)
