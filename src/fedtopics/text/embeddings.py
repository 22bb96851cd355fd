"""Embeddings of documents, computed at the client that holds them.

Texts and embeddings stay here, in a cache for its owner's eyes only: an embedding can be turned
back into much of its text. Clients use one model: those of two cannot be compared.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedtopics.errors import DataError, StudyError
from fedtopics.files import make_folder, open_private
from fedtopics.text.corpus import Corpus
from fedtopics.text.encoders import PACKAGED, Encoder, Vectors, same_model, sentence_encoder

STEP = 1024  # texts between two reports of progress, and at most lost when interrupted
PATIENCE = 30.0  # seconds that one process waits for another to write the cache


class EmbeddingSettings(BaseModel):
    """The model of a study's embeddings; the same at every client."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(
        PACKAGED, min_length=1, description="sentence-transformers model, by name or path"
    )
    dimension: int = Field(384, ge=1, description="length of an embedding")


def document_embeddings(
    corpus: Corpus,
    settings: EmbeddingSettings,
    *,
    embedding_model: str | None = None,
    cache: str | Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    encoder: Encoder | None = None,
    apart: bool = False,
) -> Vectors:
    """Return the embedding of each document: those the corpus has, or else the model's.

    They are float32 of shape (n_documents, dimension), zero where a document is empty, and of unit
    length: a client with other lengths would teach another scale. From the cache, the same text has
    the same bits each time; computed again, the last bits depend on the processor and on the texts
    beside it (they share a padded batch). Those computed `apart` follow from one text each.

    The client may have the study's model under another name, or in a folder: `embedding_model`; the
    cache is below `cache_folder()` where no other is named. `on_progress` is called with the
    numbers of documents done and of all; an encoder is used instead of loading the model. Another
    model than the study's, and embeddings that do not fit, are refused.

    Leaves the client
        Nothing. A model that is not on disk is fetched from the Hugging Face hub by its name.
    """
    check_embeddings(corpus, settings, embedding_model)
    if corpus.embeddings is not None:
        return _of_unit_length(np.ascontiguousarray(corpus.embeddings, np.float32))
    encoder = encoder or sentence_encoder(embedding_model or settings.model)
    folder = cache_folder() if cache is None else Path(cache)
    kind = f"{encoder.fingerprint} {settings.dimension}{' apart' if apart else ''}"
    with closing(_Cache(folder, kind)) as stored:
        encode = _apart(encoder) if apart else encoder
        computed = _computed(corpus, settings, encode, stored, on_progress or (lambda *_: None))
    return _of_unit_length(computed)


def check_embeddings(
    corpus: Corpus, settings: EmbeddingSettings, embedding_model: str | None = None
) -> None:
    """Refuse another model than the study's, and embeddings that do not fit, before any work."""
    if embedding_model is not None and not same_model(embedding_model, settings.model):
        raise StudyError(
            f"The study's embeddings are of the model {settings.model!r} and the client's own "
            f"model is {embedding_model!r}, whose embeddings cannot be compared with them; give "
            "the study's model, or the folder it is in."
        )
    if corpus.embeddings is None:
        return
    try:
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
            vectors = np.ascontiguousarray(corpus.embeddings, np.float32)
    except (TypeError, ValueError):
        raise DataError("Embeddings must be an array of numbers, one row a document.") from None
    if vectors.ndim != 2 or len(vectors) != len(corpus):
        raise DataError(
            f"There are {len(corpus)} documents and embeddings of shape {vectors.shape}; give one "
            "row a document."
        )
    if vectors.shape[1] != settings.dimension:
        raise DataError(
            f"The embeddings of the documents have {vectors.shape[1]} dimensions and the study's "
            f"model {settings.model!r} has {settings.dimension}; compute them with that model, or "
            "leave them out and they are computed here."
        )
    if bad := _not_finite(vectors):
        raise DataError(
            f"The embeddings of {bad} of {len(corpus)} documents have NaN or infinite numbers; "
            "compute them anew, or leave those documents out."
        )


def require_texts(corpus: Corpus, what_for: str) -> None:
    """Refuse embeddings without a text; `what_for` says what texts are for, or what else to do."""
    if corpus.embeddings is None:
        return
    blank = np.array([not text.strip() for batch in corpus.texts() for text in batch], bool)
    if missing := int(corpus.embeddings[blank].any(1).sum()):
        raise DataError(
            f"{missing} of {len(corpus)} documents have an embedding and no text; give the texts "
            f"{what_for}."
        )


def cache_folder() -> Path | None:
    """Return the folder of the caches: $FEDTOPICS_CACHE ("off": none), or below ~/.cache."""
    named = os.environ.get("FEDTOPICS_CACHE")
    if named:
        return None if named == "off" else Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedtopics"


def _computed(
    corpus: Corpus,
    settings: EmbeddingSettings,
    encoder: Callable[[list[str]], Vectors],
    cache: _Cache,
    on_progress: Callable[[int, int], None],
) -> Vectors:
    result = np.zeros((len(corpus), settings.dimension), np.float32)
    first: dict[bytes, int] = {}  # the row of each text met so far: none is encoded twice
    done = 0
    steps = (b[i : i + STEP] for b in corpus.texts() for i in range(0, len(b), STEP))
    for texts in steps:
        rows = {
            row: (hashlib.sha256(text.encode()).digest(), text)
            for row, text in enumerate(texts, done)
            if text.strip()
        }
        new = {key: text for key, text in rows.values() if key not in first}
        cached = cache.get(new, settings.dimension)
        missing = {key: text for key, text in new.items() if key not in cached}
        if missing:
            vectors = _encoded(encoder, list(missing.values()), settings)
            fresh = dict(zip(missing, vectors, strict=True))
            cache.put(fresh)
            cached |= fresh
        for row, (key, _) in rows.items():
            result[row] = result[first[key]] if key in first else cached[key]
            first.setdefault(key, row)
        done += len(texts)
        on_progress(done, len(corpus))
    return result


def _apart(encoder: Encoder) -> Callable[[list[str]], Vectors]:
    return lambda texts: np.concatenate([encoder([text]) for text in texts])


def _encoded(
    encoder: Callable[[list[str]], Vectors], texts: list[str], settings: EmbeddingSettings
) -> Vectors:
    vectors = np.asarray(encoder(texts), np.float32)
    if vectors.shape[1] != settings.dimension:
        raise StudyError(
            f"The model {settings.model!r} gives embeddings of {vectors.shape[1]} dimensions and "
            f"the study says {settings.dimension}; set dimension to {vectors.shape[1]} in the "
            "study, or check which model it means."
        )
    if bad := _not_finite(vectors):
        raise StudyError(
            f"The model {settings.model!r} gives NaN or infinite numbers for {bad} of "
            f"{len(texts)} texts; its weights may be damaged: fetch it anew."
        )
    return vectors


def _of_unit_length(vectors: Vectors) -> Vectors:
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1)).astype(np.float32)


def _not_finite(vectors: Vectors) -> int:
    return int((~np.isfinite(vectors).all(axis=1)).sum())


class _Cache:
    """Embeddings on this computer's disk, by the digest of their text; no text is in it.

    The work goes on without it when the disk is full, read-only or damaged. SQLite's locks let
    several processes use it; its plain journal also works on network disks, where WAL does not.
    """

    def __init__(self, folder: Path | None, model: str) -> None:
        self._database: sqlite3.Connection | None = None
        if folder is None:
            return
        self._path = folder / f"embeddings-{hashlib.sha256(model.encode()).hexdigest()[:32]}.sqlite"
        with self._or_without():
            make_folder(folder)
            open_private(self._path, "ab").close()
            self._database = sqlite3.connect(self._path, timeout=PATIENCE)
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS embeddings (digest BLOB PRIMARY KEY, vector BLOB)"
            )

    def get(self, keys: Mapping[bytes, str], dimension: int) -> dict[bytes, Vectors]:
        vectors: dict[bytes, Vectors] = {}
        query = "SELECT vector FROM embeddings WHERE digest = ?"
        if self._database is not None:
            with self._or_without():
                for key in keys:
                    for (value,) in self._database.execute(query, (key,)).fetchall():
                        if len(value) == 4 * dimension:
                            vectors[key] = np.frombuffer(value, "<f4")
        return vectors

    def put(self, vectors: Mapping[bytes, Vectors]) -> None:
        if self._database is not None:
            rows = [(key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]
            with self._or_without(), self._database:
                # What another process wrote first stays: its bits may have been used already.
                self._database.executemany("INSERT OR IGNORE INTO embeddings VALUES (?, ?)", rows)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _or_without(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            self.close()
            warnings.warn(
                f"The cache {self._path} cannot be used ({error}); embeddings are computed "
                "without it. Delete it, or set FEDTOPICS_CACHE to another folder or to off.",
                stacklevel=2,
            )
