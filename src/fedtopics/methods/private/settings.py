"""The parameters of topics with a bound for each document, as a study names them."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Literal

from pydantic import BaseModel, Field, field_validator

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.methods.settings import TopicSettings
from fedtopics.model.shown_words import Reading
from fedtopics.privacy import Privacy
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.encoders import sentence_encoder
from fedtopics.text.rules import TextRules
from fedtopics.text.words import is_word

Mode = Literal["embeddings", "both", "words"]
ENOUGH_DOCUMENTS, ENOUGH_EPSILON = 10_000, 3.0  # for variational rounds after clusters
COUNT = 0.005  # share of the budget, of the number of documents
OF_CLUSTERS = {
    "words": 0.15, "mean": 0.02, "products": 0.08, "clusters 1": 0.1, "clusters 2": 0.1,
    "histogram": 0.55,
}  # fmt: skip
SHARES: dict[Mode, dict[str, float]] = {
    "embeddings": OF_CLUSTERS,
    "both": {name: share / 2 for name, share in OF_CLUSTERS.items()}
    | {"topics 1": 0.25, "topics 2": 0.25},
    "words": {"words": 0.05, "sketch": 0.7, "topics 1": 0.25},
}
"""Of the rest of the budget, by mode and release; chosen by hand on 20ng and drawn documents."""
SHORTEST = 3  # letters of a public word; shorter pieces are hardly ever words


class PrivateChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["private"] = Field("private", description="the method")


class PrivateSettings(TopicSettings, PrivateChoice):
    """All parameters of topics with a bound for each document, as a study names them."""

    n_components: int = Field(20, ge=2, description="number of topics")
    mode: Literal["auto", "embeddings", "both", "words"] = Field(
        "auto",
        description='what documents are seen by: "embeddings", "both" (topics of words that begin '
        'with clusters of embeddings), "words" alone; "auto": words where not all clients have '
        "embeddings, both from 10,000 documents and epsilon 3 on, else embeddings",
    )
    words: tuple[str, ...] = Field(
        (), description="public words; by default those that the embedding model has as one piece"
    )
    nearest_words: int = Field(
        8, ge=1, le=100,
        description="words of a document, the nearest ones to its embedding, that describe its "
        "cluster; 16 for long texts",
    )  # fmt: skip
    embedding: EmbeddingSettings = Field(EmbeddingSettings(), description="of documents")
    alpha: float | None = Field(
        None, gt=0.01, description="Dirichlet prior of theta; by default 1 / n_components"
    )
    relevance: float | None = Field(
        0.5, ge=0, le=1, description="how topics are read: 1 by probability, 0 by lift"
    )
    # Of what other methods have there is one value: nothing else has a part of the budget.
    coherence: Literal["nothing"] = Field("nothing", description="needs counts of pairs of words")
    clients_per_round: None = Field(None, description="all clients take part")
    candidate_words: None = Field(None, description="needs coherence")
    stop_when: dict[str, float] = Field({}, max_length=0, description="rounds are few and given")
    over_time: None = Field(None, description="sums by period have no part of the budget")
    max_rounds: int = Field(7, ge=7, description="there are at most seven, each with its noise")

    @field_validator("words")
    @classmethod
    def _are_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(is_word, value)) or len(set(value)) < len(value):
            raise ValueError("words have to print, and to be different")
        return value

    @property
    def theta_prior(self) -> float:
        """The prior of theta."""
        return 1 / self.n_components if self.alpha is None else self.alpha

    @property
    def reading(self) -> Reading:
        """How topics are read."""
        return Reading() if self.relevance is None else Reading(self.relevance)

    def embedding_of(self, corpus: Corpus) -> EmbeddingSettings | None:
        """Return the kind of embeddings that documents have, or can get; none for words alone."""
        if self.mode in ("embeddings", "both"):
            return self.embedding
        can = corpus.embeddings is not None or find_spec("sentence_transformers")
        return self.embedding if self.mode == "auto" and can else None

    def check(self, text: TextRules) -> None:
        self.public_words(text)

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

    def shares(self, mode: Mode) -> dict[str, float]:
        """Return each release's share of the budget, which add up to 1."""
        rest = {name: share * (1 - COUNT) for name, share in SHARES[mode].items()}
        return {"documents": COUNT, **rest}

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
        pieces = (encoder.folder / "tokenizer.json").read_text("utf-8")
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
