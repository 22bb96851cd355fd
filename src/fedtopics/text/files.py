"""Files of documents: CSV, TSV, JSON lines, Parquet, and texts of one document each."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from fedtopics.errors import DataError
from fedtopics.text.columns import is_list

BLOCK = 64 << 20  # bytes that Arrow parses at once: the longest row of a file


def read_text(file: Path) -> str:
    """Read a text in UTF-8.

    Raises
    ------
    DataError
        If it is in another encoding.
    """
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8; convert it.") from None


def read_table(path: Path) -> pa.Table:
    """Read CSV, TSV, JSON lines (these may end in .gz) or Parquet, by the suffix.

    Raises
    ------
    DataError
        If the file is of another kind or cannot be parsed.
    """
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
    if is_list(kind):
        return pa.list_(_as_written(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind
