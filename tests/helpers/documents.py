"""Documents in files and tables, for tests of what reads them."""

from pathlib import Path
from typing import Any

from fedtopics import Columns, Corpus

CANARY = "quetzalcoatl"


def texts(data: Any, columns: Columns | None = None) -> list[Any]:
    return Corpus.of(data, columns).documents.to_pylist()


def columns_of(corpus: Corpus) -> dict[str, list[Any]]:
    """The columns that a corpus has, except its embeddings."""
    names = ("documents", "ids", "labels", "persons", "times", "rounds")
    columns = {name: getattr(corpus, name) for name in names}
    return {name: column.to_pylist() for name, column in columns.items() if column is not None}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
