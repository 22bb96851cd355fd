"""Documents in a folder or file that grows while a study runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fedtopics import files
from fedtopics.errors import DataError, InputError
from fedtopics.text.corpus import Corpus
from fedtopics.text.readers import open_text, text_files
from fedtopics.text.tables import Columns

ROWS_ONLY = (".jsonl", ".ndjson")
LINES = (".csv", ".tsv", *ROWS_ONLY)


class Follow:
    """Reads a growing folder or file, which may not exist yet; `notify` gets reading errors.

    The documents that it returns are those that `choose` takes from all that were read.
    """

    def __init__(self, path: Path, columns: Columns, notify: Callable[[str], None]) -> None:
        files.require_file(path, DataError)
        self._path = path
        self._columns = columns
        self._notify = notify
        self._last = Corpus.of([""]).take([])
        self.choose: Callable[[Corpus], Corpus] = lambda corpus: corpus

    @property
    def by_name(self) -> bool:
        """Whether names identify documents, as they do for files in a folder."""
        return self._path.is_dir()

    def __call__(self) -> Corpus:
        """Return the current documents, or those of the last successful reading."""
        try:
            if self._path.is_file() and self._path.suffix.lower() in LINES:
                self._last = self._read(self._complete_lines())
            elif self._path.is_file() or text_files(self._path)[0]:
                self._last = Corpus.read(self._path, self._columns)
        except (InputError, OSError) as error:  # the file may be moved or written meanwhile
            self._notify(str(error))
        return self.choose(self._last)

    def _complete_lines(self) -> str:
        """Return the complete lines; bytes that are not UTF-8 are kept as surrogates."""
        with open_text(self._path, self._columns.encoding or "") as file:
            return _lines(file.read())

    def _read(self, complete: str) -> Corpus:
        if len(complete.splitlines()) < (1 if self._path.suffix.lower() in ROWS_ONLY else 2):
            return self._last  # no row yet, or only a header
        with TemporaryDirectory() as folder:
            copy = Path(folder) / self._path.name
            copy.write_bytes(complete.encode(errors="surrogateescape"))
            try:
                corpus = Corpus.read(copy, replace(self._columns, encoding=None))
            except DataError as error:
                if self._path.suffix.lower() not in ROWS_ONLY and is_open(complete):
                    return self._without_open_row(complete)
                error.args = (str(error).replace(str(copy), str(self._path)),)
                raise
            return replace(corpus, source=corpus.source.replace(str(copy), str(self._path)))

    def _without_open_row(self, complete: str) -> Corpus:
        """Read the rows before one whose text has a line end, and is still being written."""
        self._notify(f"The last row of {self._path} has an open quote; it is read when that ends.")
        while is_open(complete):
            complete = _lines(complete[: complete.rfind('"')])
        return self._read(complete)


def is_open(rows: str) -> bool:
    """Whether a quote is open at the end of rows; quotes in texts are doubled."""
    return rows.count('"') % 2 > 0


def _lines(content: str) -> str:
    """Return the complete lines."""
    return content[: max(content.rfind("\n"), content.rfind("\r")) + 1]
