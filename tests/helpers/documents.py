"""Documents in files and tables, for tests of what reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns

CANARY = "quetzalcoatl"


def texts(data: Any, columns: Columns | None = None) -> list[Any]:
    return Corpus.of(data, columns).documents.to_pylist()


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
