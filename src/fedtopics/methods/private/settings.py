"""The parameters of topics with a bound for each document, as a study names them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

from pydantic import BaseModel, Field

from fedtopics.methods.bounded import NearestWords, PublicWords, Recipe
from fedtopics.model.shown_words import Reading
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings
from fedtopics.text.rules import TextRules


class PrivateChoice(BaseModel):
    """What a study's [method] begins with."""

    name: Literal["private"] = Field("private", description="the method")


class PrivateSettings(PublicWords, NearestWords, PrivateChoice):
    """All parameters of topics with a bound for each document, as a study names them."""

    n_components: int = Field(20, ge=2, description="number of topics")
    mode: Literal["auto", "embeddings", "both", "words"] = Field(
        "auto",
        description='what documents are seen by: "embeddings", "both" (topics of words that begin '
        'with clusters of embeddings), "words" alone; "auto": words where not all clients have '
        "embeddings, both from 10,000 documents and epsilon 3 on, else embeddings",
    )
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

    @property
    def unbounded(self) -> str:
        return ""

    @property
    def recipe(self) -> Recipe:
        alpha = 1 / self.n_components if self.alpha is None else self.alpha
        reading = Reading() if self.relevance is None else Reading(self.relevance)
        seen: Any = {"embedding": self.embedding, "nearest_words": self.nearest_words}
        return Recipe(self.mode, self.n_components, self.words, alpha, reading=reading, **seen)

    def embedding_of(self, corpus: Corpus) -> EmbeddingSettings | None:
        """Return the kind of embeddings that documents have, or can get; none for words alone."""
        if self.mode in ("embeddings", "both"):
            return self.embedding
        can = corpus.embeddings is not None or find_spec("sentence_transformers")
        return self.embedding if self.mode == "auto" and can else None

    def check(self, text: TextRules) -> None:
        self.recipe.public_words(text)
