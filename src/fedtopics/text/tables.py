"""Tables of documents: files by format, and what their columns hold.

CSV, TSV, JSON lines, Parquet, a folder of .txt files, and what others register in `FORMATS`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from fedtopics.errors import DataError, FedTopicsError
from fedtopics.extras import Registry
from fedtopics.files import read_text, require_file

if TYPE_CHECKING:
    from fedtopics.text.rules import TextRules

TEXT_NAMES = ("text", "texts", "document", "documents", "doc", "content", "body", "abstract")
TOKEN_NAMES = ("tokens", "token")
ID_NAMES = ("id", "ids", "doc_id", "document_id", "identifier")
LABEL_NAMES = ("label", "labels", "class", "category")
EMBEDDING_NAMES = ("embedding", "embeddings")
BLOCK = 64 << 20  # bytes that Arrow parses at once: the longest row of a file
UNPACKED, TIMES = 256 << 20, 100  # bytes that any file may unpack to, and how often its size
PIECE = 1 << 20  # bytes
ROWS = 1 << 16  # of a Parquet file that are measured at once
FILES = 4096  # of a folder, in one Arrow array
FOLDER = "folder"

Reader = Callable[[Path], pa.Table]
FORMATS: Registry[Reader] = Registry("format of documents", "fedtopics.formats")
"""Readers by the suffix of files, such as ".csv", and that of folders."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; what is ``None`` is looked for under its usual names.

    With both `tokens` and `text`, the tokens are the documents and the text is kept beside them.
    A column of embeddings that cannot be used is refused if it is named here, else left out. One
    of rounds, authors or times is never looked for. With `rules` texts become lists of words by
    these, whatever a study's rules are.
    """

    text: str | None = None
    tokens: str | None = None
    id: str | None = None
    label: str | None = None
    embedding: str | None = None
    rounds: str | None = None
    author: str | None = None
    time: str | None = None
    rules: TextRules | None = None


def find_column(
    table: pa.Table, wanted: str | None, usual: Sequence[str], where: str
) -> str | None:
    """Return the name of a column: the wanted one, or else the first of the usual ones."""
    names = table.column_names
    lower = {name.lower(): name for name in reversed(names)}
    usually = next((lower[name] for name in usual if name in lower), None)
    if wanted is not None and wanted not in names:
        raise DataError(f"There is no column {wanted!r} in {where}; it has: {', '.join(names)}.")
    name = usually if wanted is None else wanted
    if names.count(name) > 1:
        raise DataError(f"Several columns of {where} are named {name!r}; rename all but one.")
    return name


def document_column(table: pa.Table, columns: Columns, where: str) -> str:
    """Return the name of the column of documents: as named, usually named, or the only text."""
    wanted = columns.text if columns.tokens is None else columns.tokens
    name = find_column(table, wanted, TEXT_NAMES + TOKEN_NAMES, where)
    strings = [f.name for f in table.schema if is_text(f.type)]
    if name is None and len(strings) == 1:
        name = find_column(table, strings[0], (), where)
    if name is None:
        raise DataError(
            f"Cannot tell which column of {where} holds the text; name one of: "
            f"{', '.join(table.column_names)}."
        )
    kind = table[name].type
    if not is_text(kind) and not is_tokens(kind):
        raise DataError(
            f"Column {name!r} of {where} is {kind}; it must hold strings, or lists of strings."
        )
    return name


def raw_column(table: pa.Table, columns: Columns, where: str) -> pa.ChunkedArray | None:
    """Return the texts beside tokens, if both columns are named; refuse other than strings."""
    if columns.tokens is None or columns.text is None:
        return None
    name = find_column(table, columns.text, (), where)
    if not is_text(table[name].type):
        raise DataError(f"Column {name!r} of {where} is {table[name].type}; it must hold strings.")
    return as_documents(table[name])


def embedding_column(
    table: pa.Table, columns: Columns, where: str
) -> NDArray[np.floating[Any]] | None:
    """Return the embeddings, float32 of shape (n_documents, dimension), if there is a column."""
    name = find_column(table, columns.embedding, EMBEDDING_NAMES, where)
    if name is None:
        return None
    column = table[name]
    if is_list(column.type) and pa.types.is_floating(column.type.value_type):
        return _embeddings(column, name, where, strict=columns.embedding is not None)
    if columns.embedding is None:
        return None  # a column that happens to be called so
    raise DataError(f"Column {name!r} of {where} is {column.type}; it must hold lists of floats.")


def _embeddings(
    column: pa.ChunkedArray, name: str, where: str, strict: bool
) -> NDArray[np.floating[Any]]:
    """Return the rows; where nobody asked for them, NaN for those that cannot be used."""
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


def as_documents(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return strings or lists of strings as the large types of Arrow; what is null is empty."""
    if is_tokens(column.type):
        column = column.cast(pa.large_list(pa.large_string()))
        if pc.list_flatten(column).null_count:
            raise DataError("Documents must not have missing words; leave them out.")
        return pc.if_else(pc.is_null(column), pa.scalar([], column.type), column)
    return pc.fill_null(column.cast(pa.large_string()), "")


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as Python's own, None for none; DataError if some cannot be."""
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):
        raise DataError(
            f"Some values of a column of {column.type} cannot be read: times beyond the year 9999, "
            "or of an unknown time zone; write them as texts, as in 2026-03-01."
        ) from None
    return values


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_tokens(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists of strings."""
    return is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type))


def read_table(path: Path) -> pa.Table:
    """Read a file by its suffix, which may be followed by .gz, or a folder; see `Corpus.read`."""
    require_file(path, DataError)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    kind = FOLDER if path.is_dir() else kind.lower()
    if kind not in FORMATS.names:
        known = ", ".join(name for name in FORMATS.names if name != FOLDER)
        raise DataError(
            f"{path} is of an unknown kind {kind or '(no suffix)'}; "
            f"give one of {known}, or a folder of .txt files."
        )
    if path.suffix == ".gz":
        _check_unpacked(path)
    try:
        table = FORMATS.find(kind)(path)
        table.validate(full=True)  # not every reader looks whether strings are UTF-8
        return table
    except FedTopicsError:
        raise
    except MemoryError:
        raise DataError(
            f"{path} needs more memory than there is once it is read; give a part of its rows."
        ) from None
    except Exception:  # of a registered reader: almost any kind
        # The reader's message may quote a row: it is not passed on.
        raise DataError(
            f"{path} cannot be read as {kind}; it must be UTF-8 text, or Parquet, with the same "
            "columns in each row and, for CSV, a header and quotes around texts with commas."
        ) from None


def _check_unpacked(path: Path) -> None:
    """Refuse what unpacks to so many times its size that it can be no text: it fills the memory."""
    with suppress(OSError, EOFError, zlib.error), gzip.open(path) as file:
        while file.read(PIECE):
            if file.tell() > _most(path):
                raise _bomb(path, "give the unpacked file")


def _most(path: Path) -> int:
    """Return the bytes that a file may unpack to."""
    return max(UNPACKED, TIMES * path.stat().st_size)


def _bomb(path: Path, remedy: str) -> DataError:
    return DataError(
        f"{path} unpacks to more than {TIMES} times its size, as no text does; look what is in it, "
        f"and {remedy}."
    )


def _read_folder(path: Path) -> pa.Table:
    """Read a document from each .txt file of a folder; its name is the document's."""
    files = sorted(path.rglob("*.txt"))
    if not files:
        raise DataError(f"The folder {path} holds no .txt file; each document is one file.")
    parts = [files[i : i + FILES] for i in range(0, len(files), FILES)]
    texts = [[_read_text(file) for file in part] for part in parts]
    names = [[file.relative_to(path).as_posix() for file in part] for part in parts]
    kind = pa.large_string()
    return pa.table({"id": pa.chunked_array(names, kind), "text": pa.chunked_array(texts, kind)})


def _read_text(file: Path) -> str:
    require_file(file, DataError)
    try:
        return read_text(file)
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8; convert it.") from None


def _read_csv(path: Path, delimiter: str = ",") -> pa.Table:
    read = pa.csv.ReadOptions(block_size=BLOCK)
    parse = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    with pa.csv.open_csv(path, read, parse) as reader:
        names = reader.schema.names
    # In a file of one column, an empty line is an empty document.
    parse.ignore_empty_lines = len(names) > 1
    # Every column as text: a column of numbers is still somebody's text, identifier or label.
    convert = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()))
    return pa.csv.read_csv(path, read, parse, convert)


def _read_tsv(path: Path) -> pa.Table:
    return _read_csv(path, "\t")


def _read_json(path: Path) -> pa.Table:
    read = pa.json.ReadOptions(block_size=BLOCK)
    table = pa.json.read_json(path, read)
    schema = pa.schema([(field.name, _as_written(field.type)) for field in table.schema])
    if schema == table.schema:
        return table
    return pa.json.read_json(path, read, pa.json.ParseOptions(explicit_schema=schema))


def _read_parquet(path: Path) -> pa.Table:
    """Read a file that has been measured: a value that is there once can be in each of its rows.

    No value is longer than its column's pages, so a few rows at a time keep within the memory.
    """
    most, unpacked = _most(path), 0
    with pa.parquet.ParquetFile(path) as file:
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        longest = max((group.total_byte_size for group in groups), default=0)
        rows = min(ROWS, max(1, most // max(1, longest)))
        for batch in file.iter_batches(rows):
            unpacked += len(batch) + sum(_plain(column).nbytes for column in batch.columns)
            if longest > most or unpacked > most:
                raise _bomb(path, "give the documents as another file")
    return pa.parquet.read_table(path)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column as it is read later, without a list of its different values."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _as_written(kind: pa.DataType) -> pa.DataType:
    """Return the type of what the file says: Arrow makes dates of strings that look like them."""
    if is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


for _suffix, _reader in {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".parquet": _read_parquet,
    FOLDER: _read_folder,
}.items():
    FORMATS.register(_suffix, _reader)
