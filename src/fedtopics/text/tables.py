"""Tables of documents, and the roles of their columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from fedtopics.errors import DataError, refuse
from fedtopics.extras import Registry
from fedtopics.text.columns import NOT_ARROW, Column

if TYPE_CHECKING:
    from fedtopics.text.rules import TextRules

TEXT_NAMES = ("text", "texts", "document", "documents", "doc", "content", "body", "abstract")
TOKEN_NAMES = ("tokens", "token")
ID_NAMES = ("id", "ids", "doc_id", "document_id", "identifier")
LABEL_NAMES = ("label", "labels", "class", "category")
EMBEDDING_NAMES = ("embedding", "embeddings")
OTHERS = {"client", "clients", "person", "time", "date", "year", "round", "title", "name", "url"}
USUAL_COLUMNS = OTHERS.union(TEXT_NAMES, TOKEN_NAMES, ID_NAMES, LABEL_NAMES, EMBEDDING_NAMES)
NAME = re.compile(r"[^\W\d][\w/()#%:-]*([ .][\w/()#%:-]+){0,2}")  # safe column name: not a text
HEAD = 100  # rows that show what a column has
HIDDEN = "(a name that may be a text)"
LONGEST_NAME = 40  # characters
NAMED = "with --columns text=NAME, text = in a study, or text=... in Python"
NO_SEPARATOR = (
    ", as no separator of , ; tab | was found (for another one, add a first line such as sep=^)"
)
T = TypeVar("T")

FORMATS: Registry[Callable[[Path], Any]] = Registry(
    "format of documents",
    "fedtopics.formats",
    {
        **dict.fromkeys((".csv", ".tsv"), "fedtopics.text.readers:read_csv"),
        **dict.fromkeys((".jsonl", ".ndjson"), "fedtopics.text.readers:read_json"),
        ".parquet": "fedtopics.text.readers:read_parquet",
        **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), "fedtopics.text.foreign:read_sheet"),
        **dict.fromkeys((".sav", ".zsav", ".dta"), "fedtopics.text.foreign:read_statistics"),
        ".sql": "fedtopics.text.foreign:read_query",
        "folder": "fedtopics.text.readers:read_folder",
    },
)
"""Readers by file suffix, such as ".csv", or "folder"."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; ``None`` means the usual names.

    With both `tokens` and `text`, tokens are the documents and the text is kept as well. A column
    that cannot be used is refused if named, and ignored if it only has a usual name. Columns of
    rounds, persons or times are read only if named; `by` gives the names of columns by which a
    study compares documents, by their names in the study. With `rules`, texts become lists of words
    by these rules instead of the study's. A file is read with the `encoding` of its text, or from
    the `sheet` of a workbook; columns of times with the `date_format` of `datetime.strptime`.
    """

    text: str | None = None
    tokens: str | None = None
    id: str | None = None
    label: str | None = None
    embedding: str | None = None
    rounds: str | None = None
    person: str | None = None
    time: str | None = None
    by: Mapping[str, str] = field(default_factory=dict)
    rules: TextRules | None = None
    encoding: str | None = None
    sheet: str | None = None
    date_format: str | None = None

    @property
    def options(self) -> dict[str, str]:
        """The options of a file's reader that are set."""
        options = {"encoding": self.encoding, "sheet": self.sheet}
        return {name: value for name, value in options.items() if value}


@dataclass(frozen=True, repr=False)  # its own repr would print documents
class Table:
    """Columns and their names; each column is a list of parts, as `Column` takes them."""

    where: str  # the path of a file, or "the table"
    names: tuple[str, ...]
    parts: tuple[Sequence[Any], ...]
    n_rows: int
    how: str = ""  # how it was read, such as 'separated by ";"'
    has_types: bool = True  # else columns are strings, and the first line may not be a header

    @classmethod
    def of(cls, data: Any, where: str = "the table") -> Table:
        """Return a table from Arrow, pandas, polars or a reader; see `is_table`."""
        if isinstance(data, Table):
            return data
        if hasattr(data, "iloc"):  # pandas'
            index = {
                name: data.index.get_level_values(level)
                for level, name in enumerate(data.index.names)
                if name is not None
            }
            names = [*map(str, data.columns), *map(str, index)]
            columns = [data.iloc[:, i] for i in range(data.shape[1])] + [*index.values()]
        else:
            try:
                data = data if hasattr(data, "get_columns") else pa.table(data)  # else polars'
            except NOT_ARROW:
                raise DataError(f"Arrow cannot read {where}; give another form of it.") from None
            columns = data.columns if isinstance(data, pa.Table) else data.get_columns()
            names = data.column_names if isinstance(data, pa.Table) else data.columns
        return cls(
            where=where,
            names=tuple(names),
            parts=tuple([column] for column in columns),
            n_rows=len(data),
        )

    def find(self, wanted: str | None, usual: Sequence[str] = ()) -> str | None:
        """Return the wanted column's name, or the first of the usual ones."""
        lower = {name.strip().lower(): name for name in reversed(self.names)}
        usually = next((lower[name] for name in usual if name in lower), None)
        if wanted is not None and wanted not in self.names:
            raise DataError(f"There is no column {wanted!r} in {self.where}; {self.listed}.")
        return usually if wanted is None else wanted

    def column(self, name: str) -> Column:
        """Return a column; DataError if the name is missing or repeated."""
        if self.names.count(str(self.find(name))) > 1:
            raise DataError(
                f"Several columns of {self.where} are named {name!r}; rename all but one."
            )
        return Column(self.parts[self.names.index(name)], f"{_called(name)} of {self.where}")

    def read_column(
        self, wanted: str | None, usual: Sequence[str], read: Callable[[Column], T]
    ) -> T | None:
        """Return a column after `read`; None if it is missing, or unusable and not `wanted`."""
        name = self.find(wanted, usual)
        if name is None:
            return None
        try:
            return read(self.column(name))
        except DataError:
            if wanted is not None:
                raise
            return None

    def without(self, name: str) -> Table:
        places = [i for i, other in enumerate(self.names) if other != name]
        return replace(
            self,
            names=tuple(self.names[i] for i in places),
            parts=tuple(self.parts[i] for i in places),
        )

    def document_column(self, columns: Columns) -> str:
        """Return the name of the documents' column: the named, a usual, or the only text column."""
        wanted = columns.text if columns.tokens is None else columns.tokens
        name = self.find(wanted, TEXT_NAMES + TOKEN_NAMES)
        if name is None and self.has_types:
            texts = [
                name
                for name, parts in zip(self.names, self.parts, strict=True)
                if Column(parts, "").has_text
            ] or self.names
            name = texts[0] if len(texts) == 1 else None
        refuse(
            {
                f"{self.where} has {self._one}, and its first line may be a document; add the word "
                f"text as first line, or give the column's name {NAMED}.": (
                    name is None and len(self.names) == 1
                ),
                f"It is not clear which column of {self.where} has the text ({self.listed}); "
                f"rename that column to text, or give its name {NAMED}.": name is None,
            },
            error=DataError,
        )
        return str(name)

    def source(self, name: str) -> str:
        """Describe the source of a column's texts, and how they were read."""
        return self.how if self.is_folder else f"{_called(name)} of {self.where}{self.how}"

    def head(self, name: str) -> Column:
        """Return the first rows of a column."""
        parts = self.parts[self.names.index(name)]
        return Column([part[:HEAD] for part in parts[:1]], _called(name))

    @property
    def is_folder(self) -> bool:
        """Whether the table was read from the files of a folder."""
        return self.has_types and Path(self.where).is_dir()

    @property
    def _one(self) -> str:
        return "one column" if self.how else f"one column{NO_SEPARATOR}"

    @property
    def listed(self) -> str:
        """The columns' names for an error message, unless they may be the first document."""
        has_header = self.has_types or any(name.lower() in USUAL_COLUMNS for name in self.names)
        return (
            f"it has: {', '.join(_shown(name) for name in self.names if name)}"
            if has_header
            else f"it has {self._one}"
            if len(self.names) == 1
            else f"it has {len(self.names)} columns, whose names are not shown, as the first row "
            "may be a document"
        )


def _called(name: str) -> str:
    """Return a column's name for an error; a name that may be a text is hidden."""
    return "a column" if _shown(name) == HIDDEN else f"column {name!r}"


def _shown(name: str) -> str:
    return name if len(name) <= LONGEST_NAME and NAME.fullmatch(name) else HIDDEN


def is_table(data: Any) -> bool:
    """Whether data are a table of Arrow, pandas or polars."""
    return isinstance(data, (Table, pa.Table)) or (
        hasattr(data, "columns") and hasattr(data, "__arrow_c_stream__")
    )
