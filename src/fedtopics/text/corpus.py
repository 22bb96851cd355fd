"""Documents of one organisation, from wherever they are: rows in = rows out.

The texts are kept once, as Arrow arrays (two million documents are not two million Python
strings), and are handed out in batches. Nothing here leaves a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from fedtopics.errors import DataError

TEXT_NAMES = ("text", "texts", "document", "documents", "doc", "content", "body", "abstract")
TOKEN_NAMES = ("tokens", "token")
ID_NAMES = ("id", "ids", "doc_id", "document_id", "identifier")
LABEL_NAMES = ("label", "labels", "class", "category")
EMBEDDING_NAMES = ("embedding", "embeddings")
BATCH = 4096
BLOCK = 64 << 20  # bytes that Arrow parses at once: the longest row of a file

Document = str | list[str]


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; what is ``None`` is looked for under its usual names.

    With both `tokens` and `text`, the tokens are the documents and the text is kept beside them.
    A column of embeddings that cannot be used is refused if it is named here, else left out. One
    of rounds is never looked for.
    """

    text: str | None = None
    tokens: str | None = None
    id: str | None = None
    label: str | None = None
    embedding: str | None = None
    rounds: str | None = None


@dataclass(frozen=True)
class Corpus:
    """Documents in their original order, empty ones included.

    Parameters
    ----------
    ids : pyarrow.ChunkedArray of string, length n_documents
    documents : pyarrow.ChunkedArray of string, or of lists of strings (already tokenised)
    labels : pyarrow.ChunkedArray or None
        For measuring only; no method sees them.
    embeddings : float array of shape (n_documents, dimension) or None
        From a table, float32.
    raw : pyarrow.ChunkedArray of string, or None
        The texts of documents that are tokenised, for models that read sentences.
    rounds : pyarrow.ChunkedArray or None
        When documents came, as numbers of rounds or as times, for methods that learn as they come.

    Examples
    --------
    >>> corpus = Corpus.of(["Trees and shrubs", "", "Rivers and lakes"])
    >>> len(corpus), corpus.n_empty
    (3, 1)
    """

    ids: pa.ChunkedArray
    documents: pa.ChunkedArray
    labels: pa.ChunkedArray | None = None
    embeddings: NDArray[np.floating[Any]] | None = None
    raw: pa.ChunkedArray | None = None
    rounds: pa.ChunkedArray | None = None

    @classmethod
    def of(cls, data: Any, columns: Columns | None = None) -> Corpus:
        """Make a corpus of what Python programs usually hold.

        Parameters
        ----------
        data : Corpus, path, list of str, list of token lists, Series, DataFrame, Arrow table
            A DataFrame may come from pandas, polars or pyarrow.
        columns : Columns, optional
            Which columns of a table to read.

        Raises
        ------
        DataError
            If there is no document, or no column of text can be told.
        """
        if isinstance(data, Corpus):
            return data
        if isinstance(data, (str, Path)):
            if isinstance(data, str) and not Path(data).exists() and any(map(str.isspace, data)):
                raise DataError("One string was given, not a collection; give a list of strings.")
            return cls.read(data, columns)
        if isinstance(data, pa.Table):
            return cls._from_table(data, columns or Columns(), "the table")
        if hasattr(data, "columns") and hasattr(data, "__arrow_c_stream__"):
            return cls._from_table(pa.table(data), columns or Columns(), "the table")
        return cls._from_collection(data)

    @classmethod
    def read(cls, path: str | Path, columns: Columns | None = None) -> Corpus:
        """Read CSV, TSV, JSON lines, Parquet, or a folder of .txt files.

        CSV and JSON lines may be compressed (.gz). Text is UTF-8; a row has at most 64 MB.

        Raises
        ------
        DataError
            If the file is missing, is of another kind, cannot be parsed, or lacks a column.
        """
        path = Path(path)
        if not path.exists():
            raise DataError(f"There is no file or folder {path}; check the path.")
        if path.is_dir():
            return cls._from_folder(path)
        return cls._from_table(_read_table(path), columns or Columns(), str(path))

    @classmethod
    def _from_folder(cls, path: Path) -> Corpus:
        files = sorted(path.rglob("*.txt"))
        if not files:
            raise DataError(f"The folder {path} holds no .txt file; each document is one file.")
        texts = pa.chunked_array(
            [
                [_read_text(file) for file in files[i : i + BATCH]]
                for i in range(0, len(files), BATCH)
            ],
            type=pa.large_string(),
        )
        ids = [file.relative_to(path).as_posix() for file in files]
        return cls(pa.chunked_array([ids], pa.large_string()), texts)

    @classmethod
    def _from_collection(cls, data: Any) -> Corpus:
        if isinstance(data, np.ndarray) or not hasattr(data, "__arrow_c_stream__"):
            documents = _from_sequence(data)
        else:
            documents = pa.chunked_array(data)
        if len(documents) == 0:
            raise DataError("The corpus is empty; give at least one document.")
        kinds = (_is_text, _is_tokens, pa.types.is_null)
        if not any(is_it(documents.type) for is_it in kinds):
            raise DataError(
                f"Documents must be strings or lists of strings, not {documents.type}; "
                "give one text a row."
            )
        return cls(_numbered(len(documents)), _as_documents(documents))

    @classmethod
    def _from_table(cls, table: pa.Table, columns: Columns, where: str) -> Corpus:
        if table.num_rows == 0:
            raise DataError(f"The corpus in {where} is empty; give at least one document.")
        name = _document_column(table, columns, where)
        id_name = _find(table, columns.id, ID_NAMES, where)
        label_name = _find(table, columns.label, LABEL_NAMES, where)
        ids = table[id_name].cast(pa.large_string()) if id_name else _numbered(table.num_rows)
        return cls(
            pc.fill_null(ids, ""),
            _as_documents(table[name]),
            table[label_name] if label_name else None,
            _embedding_column(table, columns, where),
            _raw_column(table, columns, where),
            None if columns.rounds is None else table[_find(table, columns.rounds, (), where)],
        )

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def is_tokenised(self) -> bool:
        """Whether the documents are lists of words, taken as they are."""
        return _is_tokens(self.documents.type)

    @property
    def n_empty(self) -> int:
        """Number of documents without any character but white space, or without any token."""
        if self.is_tokenised:
            length = pc.list_value_length(self.documents)
        else:
            length = pc.binary_length(pc.utf8_trim_whitespace(self.documents))
        return int(pc.sum(pc.equal(length, 0)).as_py() or 0)

    def batches(self) -> Iterator[list[Document]]:
        """Hand out the documents in order, a few thousand at a time."""
        return _batches(self.documents)

    def texts(self) -> Iterator[list[str]]:
        """Hand out each document as one string, a few thousand at a time.

        The raw text where there is one, the text, or the tokens with spaces between them.
        """
        for batch in _batches(self.documents if self.raw is None else self.raw):
            yield [text if isinstance(text, str) else " ".join(text) for text in batch]

    def with_embeddings(self, embeddings: NDArray[np.floating[Any]]) -> Corpus:
        """Return the corpus with these embeddings, shape (n_documents, dimension)."""
        return replace(self, embeddings=embeddings)

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Corpus:
        """Return the corpus of these rows, in the given order."""
        index = pa.array(rows, pa.int64())
        return Corpus(
            self.ids.take(index),
            self.documents.take(index),
            None if self.labels is None else self.labels.take(index),
            None if self.embeddings is None else self.embeddings[np.asarray(rows, np.int64)],
            None if self.raw is None else self.raw.take(index),
            None if self.rounds is None else self.rounds.take(index),
        )


def pool(corpora: Sequence[Corpus]) -> Corpus:
    """Put corpora one after the other: the centralised scenario, where texts may be pooled.

    Labels, embeddings, raw texts and rounds are kept when every corpus has them.
    """
    raw = [c.raw for c in corpora]
    labels = [c.labels for c in corpora]
    embeddings = [c.embeddings for c in corpora]
    rounds = [c.rounds for c in corpora]
    two_forms = "Some corpora are tokenised and some are not; give all in one form."
    two_kinds = "The corpora have labels of different types; convert all to strings."
    two_rounds = "The corpora have rounds of different types; convert all to numbers or to dates."
    return Corpus(
        _concatenate([c.ids for c in corpora], two_forms),
        _concatenate([c.documents for c in corpora], two_forms),
        None if any(x is None for x in labels) else _concatenate(labels, two_kinds),
        None if any(x is None for x in embeddings) else np.concatenate(embeddings),  # type: ignore[arg-type]
        None if any(x is None for x in raw) else _concatenate(raw, two_forms),
        None if any(x is None for x in rounds) else _concatenate(rounds, two_rounds),
    )


def _batches(column: pa.ChunkedArray) -> Iterator[list[Document]]:
    for chunk in column.chunks:
        for start in range(0, len(chunk), BATCH):
            yield cast("list[Document]", chunk.slice(start, BATCH).to_pylist())


def _concatenate(parts: Iterable[Any], complaint: str) -> pa.ChunkedArray:
    """Put columns one after the other, as the type that holds them all."""
    tables = [pa.table({"": part}) for part in parts]
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(0)
    except pa.ArrowException:
        raise DataError(complaint) from None


def _from_sequence(data: Any) -> pa.ChunkedArray:
    if getattr(data, "ndim", 1) == 2 and data.shape[1] == 1:
        data = data[:, 0]
    if isinstance(data, np.ndarray) and data.ndim != 1:
        raise DataError(
            f"Documents must be one column of texts, not an array of shape {data.shape}."
        )
    mixed = "Documents must all be strings, or all lists of strings; convert what is neither."
    try:
        rows = [data[i : i + BATCH] for i in range(0, len(data), BATCH)]
        chunks = [pa.array(list(part)) for part in rows]
    except (pa.ArrowException, TypeError, KeyError, UnicodeEncodeError):
        raise DataError(mixed) from None
    return _concatenate(chunks, mixed) if chunks else pa.chunked_array([], pa.large_string())


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8; convert it.") from None


def _read_table(path: Path) -> pa.Table:
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    readers = {
        ".csv": lambda: _read_csv(path, ","),
        ".tsv": lambda: _read_csv(path, "\t"),
        ".jsonl": lambda: _read_json(path),
        ".ndjson": lambda: _read_json(path),
        ".parquet": lambda: pa.parquet.read_table(path),
    }
    if kind.lower() not in readers:
        raise DataError(
            f"{path} is of an unknown kind {kind or '(no suffix)'}; "
            f"give one of {', '.join(readers)}, or a folder of .txt files."
        )
    try:
        table = readers[kind.lower()]()
        table.validate(full=True)  # not every reader looks whether strings are UTF-8
        return table
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        # Arrow's own message may quote a row: it is not passed on.
        raise DataError(
            f"{path} cannot be read as {kind}; it must be UTF-8 text, or Parquet, with the same "
            "columns in each row and, for CSV, a header and quotes around texts with commas."
        ) from None


def _read_csv(path: Path, delimiter: str) -> pa.Table:
    read = pa.csv.ReadOptions(block_size=BLOCK)
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pa.csv.open_csv(path, read, parse) as reader:
        names = reader.schema.names
    # In a file of one column, an empty line is an empty document.
    parse.ignore_empty_lines = len(names) > 1
    # Every column as text: a column of numbers is still somebody's text, identifier or label.
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()))
    return pa.csv.read_csv(path, read, parse, convert)


def _read_json(path: Path) -> pa.Table:
    read = pa.json.ReadOptions(block_size=BLOCK)
    table = pa.json.read_json(path, read)
    schema = pa.schema([(field.name, _as_written(field.type)) for field in table.schema])
    if schema == table.schema:
        return table
    return pa.json.read_json(path, read, pa.json.ParseOptions(explicit_schema=schema))


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Return the type of what the file says: Arrow makes dates of strings that look like them."""
    if _is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _find(table: pa.Table, given: str | None, usual: Sequence[str], where: str) -> str | None:
    names = table.column_names
    lower = {name.lower(): name for name in reversed(names)}
    usually = next((lower[name] for name in usual if name in lower), None)
    found = usually if given is None else given
    if given is not None and given not in names:
        raise DataError(f"There is no column {given!r} in {where}; it has: {', '.join(names)}.")
    if names.count(found) > 1:
        raise DataError(f"Several columns of {where} are named {found!r}; rename all but one.")
    return found


def _document_column(table: pa.Table, columns: Columns, where: str) -> str:
    if columns.tokens is not None:
        found = _find(table, columns.tokens, (), where)
    elif columns.text is not None:
        found = _find(table, columns.text, (), where)
    else:
        found = _find(table, None, TEXT_NAMES + TOKEN_NAMES, where)
        strings = [f.name for f in table.schema if _is_text(f.type)]
        if found is None and len(strings) == 1:
            found = _find(table, strings[0], (), where)
    if found is None:
        raise DataError(
            f"Cannot tell which column of {where} holds the text; name one of: "
            f"{', '.join(table.column_names)}."
        )
    kind = table[found].type
    if not _is_text(kind) and not _is_tokens(kind):
        raise DataError(
            f"Column {found!r} of {where} is {kind}; it must hold strings, or lists of strings."
        )
    return found


def _raw_column(table: pa.Table, columns: Columns, where: str) -> pa.ChunkedArray | None:
    if columns.tokens is None or columns.text is None:
        return None
    name = _find(table, columns.text, (), where)
    if not _is_text(table[name].type):
        raise DataError(f"Column {name!r} of {where} is {table[name].type}; it must hold strings.")
    return _as_documents(table[name])


def _embedding_column(
    table: pa.Table, columns: Columns, where: str
) -> NDArray[np.floating[Any]] | None:
    name = _find(table, columns.embedding, EMBEDDING_NAMES, where)
    if name is None:
        return None
    column = table[name]
    if _is_list(column.type) and pa.types.is_floating(column.type.value_type):
        return _embeddings(column, name, where, strict=columns.embedding is not None)
    if columns.embedding is None:
        return None  # a column that happens to be called so
    raise DataError(f"Column {name!r} of {where} is {column.type}; it must hold lists of floats.")


def _embeddings(
    column: pa.ChunkedArray, name: str, where: str, strict: bool
) -> NDArray[np.floating[Any]]:
    """Return the rows; where nobody asked for them, NaN for those that cannot be used.

    What needs embeddings refuses NaN later, and what does not never looks at them.
    """
    place = f"{name!r} of {where}"
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    usual = int(np.bincount(lengths[lengths > 0], minlength=1).argmax())
    another = f"have an embedding of another length than {usual}"
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite
        flat = np.ascontiguousarray(
            pc.list_flatten(column.filter(pa.array(lengths == usual))).to_numpy(), np.float32
        )
    vectors = np.full((len(column), usual), np.nan, np.float32)
    vectors[lengths == usual] = flat.reshape(-1, usual) if usual else np.nan
    if strict:
        bad = ~np.isfinite(vectors).all(axis=1) & (lengths == usual)
        _refuse_rows(lengths == 0, place, "have no embedding", "give each row one")
        _refuse_rows(lengths != usual, place, another, "give all the same length")
        _refuse_rows(bad, place, "have missing, NaN or infinite numbers", "compute these anew")
    return vectors


def _refuse_rows(bad: NDArray[np.bool_], place: str, problem: str, remedy: str) -> None:
    if bad.any():
        raise DataError(
            f"In column {place}, {int(bad.sum())} of {len(bad)} rows {problem}, the first of them "
            f"row {int(bad.argmax()) + 1} (counted from 1); {remedy}."
        )


def _numbered(n: int) -> pa.ChunkedArray:
    return pa.chunked_array([pc.cast(pa.array(np.arange(n)), pa.large_string())])


def _as_documents(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_tokens(column.type):
        column = column.cast(pa.large_list(pa.large_string()))
        if pc.list_flatten(column).null_count:
            raise DataError("Documents must not have missing words; leave them out.")
        return pc.if_else(pc.is_null(column), pa.scalar([], column.type), column)
    return pc.fill_null(column.cast(pa.large_string()), "")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    views = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_it(kind) for is_it in views)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_tokens(kind: pa.DataType) -> bool:
    return _is_list(kind) and (_is_text(kind.value_type) or pa.types.is_null(kind.value_type))
