"""Files of documents by format: CSV, TSV, JSON lines, Parquet, and a folder of .txt files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from fedtopics.errors import DataError, FedTopicsError
from fedtopics.extras import Registry
from fedtopics.text.columns import is_list

BLOCK = 64 << 20  # bytes that Arrow parses at once: the longest row of a file
UNPACKED, TIMES = 256 << 20, 100  # bytes that any file may unpack to, and how often its size
PIECE = 1 << 20  # bytes
ROWS = 1 << 16  # of a Parquet file that are measured at once
FILES = 4096  # of a folder, in one Arrow array
FOLDER = "folder"

Reader = Callable[[Path], pa.Table]
FORMATS: Registry[Reader] = Registry("format of documents", "fedtopics.formats")
"""Readers by the suffix of files, such as ".csv", and that of folders."""


def read_table(path: Path) -> pa.Table:
    """Read a file by its suffix, which may be followed by .gz, or a folder; see `Corpus.read`."""
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
    try:
        return file.read_text(encoding="utf-8")
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
