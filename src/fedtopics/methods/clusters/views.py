"""Views of texts: the same texts with words left out or replaced, for networks to learn from.

A view depends on the text and the number of the view alone, not on client or seed, so that it is
embedded once. Nothing here leaves the client.

References
----------
Zhang et al., Supporting Clustering with Contrastive Learning (SCCL), NAACL 2021, has a language
model replace words, or leaves words out. Here those replace a word that the study's own encoder
takes to be nearest to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from fedtopics.errors import FedTopicsError, StudyError
from fedtopics.files import read_text
from fedtopics.methods.core.events import Embedding
from fedtopics.methods.core.plan import Site
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import (
    EmbeddingSettings,
    document_embeddings,
    require_texts,
    sentence_encoder,
)

N_VIEWS = 2
NEAREST = 5  # words of which one takes a word's place
SHORTEST = 3  # letters of a word that is replaced; shorter pieces are hardly ever words
ROWS = 2048  # words whose neighbours are searched at a time

Neighbours = Mapping[str, Sequence[str]]
"""The words that may take a word's place."""


class ViewSettings(BaseModel):
    """How views differ from their text."""

    deletion: float = Field(
        0.0, ge=0, lt=1,
        description="share of a text's words that a view of it does without; it needs the model of "
        "the embeddings",
    )  # fmt: skip
    synonyms: float = Field(
        0.0, ge=0, le=1,
        description="share of a text's words in whose place a view of it has one of the five that "
        "the model of the embeddings takes to be nearest",
    )  # fmt: skip

    @property
    def n_views(self) -> int:
        """Number of views of a text: none, if they would not differ from it."""
        return N_VIEWS if self.deletion or self.synonyms else 0


def text_views(
    corpus: Corpus, settings: ViewSettings, embedding: EmbeddingSettings, site: Site
) -> list[list[str]]:
    """Return each view of all texts; DataError if documents have an embedding and no text."""
    if not settings.n_views:
        return []
    require_texts(corpus, "that views of them are made of")
    near = neighbours(embedding, site.embedding_model) if settings.synonyms else {}
    texts = list(chain.from_iterable(corpus.texts()))
    made = []
    for view in range(settings.n_views):
        other = substitute(texts, settings.synonyms, view, near) if near else texts
        made.append(list(shorten(other, settings.deletion, view)))
    return made


def embedded_views(
    corpus: Corpus, settings: ViewSettings, embedding: EmbeddingSettings, site: Site
) -> list[NDArray[np.float32]]:
    """Embed each view of all texts, of shape (n_documents, dimension).

    It takes minutes and may fail: both should come before the first round.
    """
    try:
        return [
            document_embeddings(
                Corpus.of(texts),
                embedding,
                embedding_model=site.embedding_model,
                on_progress=lambda done, of: site.notify(Embedding(done, of, site.name)),
            )
            for texts in text_views(corpus, settings, embedding, site)
        ]
    except FedTopicsError as error:
        raise StudyError(
            f"Client {site.name!r} cannot embed views of its texts: {error} Or set deletion = 0 "
            "and synonyms = 0 in the study."
        ) from None


def shorten(texts: Iterable[str], share: float, view: int) -> Iterator[str]:
    """Leave out each word with a probability of `share`, but never all words of a text.

    Examples
    --------
    >>> list(shorten(["oak and beech", "fir", ""], 0.5, view=0))
    ['and', 'fir', '']
    """
    for text in texts:
        words = text.split()
        rng = _generator(text, view)
        kept = rng.random(len(words)) >= share
        if words and not kept.any():
            kept[rng.integers(len(words))] = True
        yield " ".join(word for word, stays in zip(words, kept, strict=True) if stays)


def substitute(texts: Iterable[str], share: float, view: int, near: Neighbours) -> Iterator[str]:
    """Replace each word that has neighbours by one of them with a probability of `share`.

    Words are found in lower case, without marks around them.

    Examples
    --------
    >>> list(substitute(["An Oak, a fir"], 1.0, view=0, near={"oak": ["elm", "ash"]}))
    ['An ash a fir']
    """
    for text in texts:
        words = text.split()
        rng = _generator(text, N_VIEWS + view)
        replaced, numbers = rng.random(len(words)) < share, rng.integers(NEAREST, size=len(words))
        drawn = zip(words, replaced, numbers, strict=True)
        yield " ".join(
            others[number % len(others)] if goes and (others := near.get(_bare(word))) else word
            for word, goes, number in drawn
        )


def _generator(text: str, stream: int) -> np.random.Generator:
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.default_rng([stream, int.from_bytes(digest[:8])])


def _bare(word: str) -> str:
    """Return a word in lower case, without what is no letter around it."""
    letters = [i for i, letter in enumerate(word) if letter.isalpha()]
    return word[letters[0] : letters[-1] + 1].lower() if letters else ""


@lru_cache(maxsize=1)  # the same for all clients of a process
def neighbours(embedding: EmbeddingSettings, model: str | None) -> Neighbours:
    """Return the words nearest to each word that the model's tokenizer knows whole.

    They are near by the embeddings of single words. Raise StudyError if the tokenizer is none of
    word pieces.
    """
    name = model or embedding.model
    pieces = json.loads(read_text(sentence_encoder(name).folder / "tokenizer.json"))
    known = pieces["model"]["vocab"]
    if not isinstance(known, dict):
        raise StudyError(
            f"The model {name!r} has no pieces that are whole words; set synonyms = 0 in the study."
        )
    words = [word for word in known if len(word) >= SHORTEST and word.isalpha()]
    return nearest_words(
        words, document_embeddings(Corpus.of(words), embedding, embedding_model=model)
    )


def nearest_words(words: Sequence[str], vectors: NDArray[np.float32]) -> Neighbours:
    """Return for each word the others of the highest cosine, the nearest first.

    Vectors have unit length, shape (n_words, n_dimensions).

    Examples
    --------
    >>> nearest_words(["oak", "elm", "sea"], np.array([[1, 0], [0.8, 0.6], [0, 1]]))["oak"]
    ['elm', 'sea']
    """
    found = {}
    n = min(NEAREST, len(words) - 1)
    for start in range(0, len(words), ROWS):
        cosines = vectors[start : start + ROWS] @ vectors.T
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -np.inf
        some = np.argpartition(-cosines, n - 1, 1)[:, :n]  # not sorted, which takes a minute of all
        order = np.take_along_axis(cosines, some, 1).argsort(1)[:, ::-1]
        for row, others in enumerate(np.take_along_axis(some, order, 1)):
            found[words[start + row]] = [words[other] for other in others]
    return found
