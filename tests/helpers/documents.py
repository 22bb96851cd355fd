"""Documents in files and tables, for tests of what reads them."""

from pathlib import Path
from typing import Any

import pytest

from fedtopics import Columns, Corpus
from fedtopics.errors import DataError

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


def refusal(path: Path, columns: Columns | None = None) -> str:
    """Return the one sentence on a file that cannot be read: it names it, and quotes nothing."""
    with pytest.raises(DataError) as error:
        Corpus.read(path, columns)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    assert CANARY not in message
    return message
