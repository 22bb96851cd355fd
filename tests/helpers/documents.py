"""Documents in files and tables, for tests of what reads them."""

from pathlib import Path
from typing import Any

from fedtopics import Columns, Corpus

CANARY = "quetzalcoatl"


def texts(data: Any, columns: Columns | None = None) -> list[Any]:
    return Corpus.of(data, columns).documents.to_pylist()


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
