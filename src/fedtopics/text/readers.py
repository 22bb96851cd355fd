"""Readers of files by suffix, as tables with one row per document; see `Corpus.read`."""

import csv
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from inspect import signature
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TextIO, TypeVar

import pyarrow as pa
import pyarrow.parquet

from fedtopics.errors import DataError, FedTopicsError, refuse
from fedtopics.files import open_file, require_file
from fedtopics.text.columns import NOT_ARROW, is_unicode
from fedtopics.text.encodings import (
    HEAD,
    UTF8,
    beginning_of,
    encoding_of,
    not_utf8,
    other_kind,
)
from fedtopics.text.tables import FORMATS, Table

BLOCK = 64 << 20  # characters: the longest text of a file
UNPACKED = 256 << 20  # bytes of an unpacked file, at most
TIMES = 100  # and at most this multiple of its packed size
PIECE = 1 << 20  # bytes
ROWS = 1 << 16  # rows of a Parquet file measured at once
PART = 4096  # rows in one Arrow array
PART_SIZE = 16 << 20  # characters in one Arrow array
FOLDER = "folder"
MOST_COLUMNS = 2000  # of a JSON file, in which each row can have names of its own
SEPARATORS = ",;\t|"
SAMPLED_CHARACTERS = 1 << 18  # characters to find the separator
SAMPLED_ROWS = 100  # rows to find the separator
EXCEL = re.compile(r'"?sep=([^\s\w"]|\t)"?[\r\n]+', re.IGNORECASE)  # first line with the separator
BINARY = {".parquet", ".xlsx", ".xlsm", ".xls", ".ods", ".sav", ".zsav", ".dta"}
AS_TEXT = "rename it to end in .csv, .jsonl or .txt, or if it is a web page, save it as a workbook"
NO_OPTIONS: Mapping[str, str] = {}
OF_SYSTEMS = {"__macosx", "thumbs.db", "desktop.ini"}  # not documents, like names with a dot
T = TypeVar("T")


def files_of(path: Path) -> list[Path]:
    """Return the sorted files of a pattern such as parts/*.parquet, or the path if none fits."""
    path = path.expanduser()
    if "*" not in path.name or path.exists():
        return [path]
    return sorted(p for p in path.parent.glob("*") if fnmatch(p.name, path.name)) or [path]


def read_table(path: Path, kind: str = "", options: Mapping[str, str] = NO_OPTIONS) -> Table:
    """Read a folder, or a file by its suffix before a possible .gz; see `Corpus.read`.

    `options` are those of the format's reader: an encoding, or the sheet of a workbook.
    """
    path = path.expanduser()
    require_file(path, DataError)
    kind = kind or (FOLDER if path.is_dir() else _suffix(path).lower())
    suffixes = ", ".join(name for name in FORMATS.names if name != FOLDER)
    refuse(
        {
            f"There is no file or folder {path}; check the path.": not path.exists(),
            f"{path} is of the unknown kind {kind or '(no suffix)'}; "
            f"give one of {suffixes}, or a folder of .txt files.": kind not in FORMATS.names,
        },
        error=DataError,
    )
    if _is_packed(path):  # it could unpack to many times its size and fill the memory
        with suppress(OSError, EOFError, zlib.error), gzip.open(path) as file:
            while file.read(PIECE):
                if file.tell() > _most(path):
                    raise _bomb(path, "give the unpacked file")
    read = FORMATS.find(kind)
    for name in options:
        if name not in signature(read).parameters:
            raise DataError(f"{path} has no {name} to choose; leave {name} out.")
    try:
        return Table.of(read(path, **options), str(path))
    except FedTopicsError:
        raise
    except MemoryError:
        raise DataError(
            f"{path} needs more memory than this computer has; give only some of its rows."
        ) from None
    except Exception as error:  # a registered reader may raise anything
        if isinstance(error, OSError) and error.strerror:
            where = error.filename or path
            raise DataError(f"{where} cannot be opened: {error.strerror}.") from None
        # The reader's message may quote a row, so it is dropped.
        raise DataError(_of_other_kind(path, kind)) from None


def _of_other_kind(path: Path, kind: str) -> str:
    """Say what a file is that cannot be read."""
    head = beginning_of(path) if path.is_file() else b""
    is_text = kind in BINARY and head and 0 not in head
    is_ = other_kind(head) or (f"is a text; {AS_TEXT}" if is_text else "")
    return (
        f"{path} {is_}."
        if is_ and kind not in re.findall(r"\.\w+", is_)
        else f"{path} cannot be read as {kind}; it is damaged, a different kind of file, or too "
        "large for this computer's memory."
    )


def _suffix(path: Path) -> str:
    """Return the suffix of a file, before a possible .gz."""
    return Path(path.stem).suffix if _is_packed(path) else path.suffix


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz" and not path.is_dir()


def _most(path: Path) -> int:
    """Return the largest allowed size of an unpacked file, in bytes."""
    return max(UNPACKED, TIMES * path.stat().st_size)


def _bomb(path: Path, remedy: str) -> DataError:
    return DataError(
        f"{path} unpacks to more than {TIMES} times its size, which no text does; check its "
        f"content, and {remedy}."
    )


@contextmanager
def open_text(path: Path, wanted: str = "", newline: str | None = "") -> Iterator[TextIO]:
    """Open a text file; bytes that are not UTF-8 become surrogates, which columns refuse."""
    with _unpacked(path) as file:
        head = file.read(HEAD)
        file.seek(0)
        if is_ := other_kind(head, wanted):
            raise DataError(f"{path} {is_}.")
        try:
            encoding = encoding_of(head, wanted)
            errors = "surrogateescape" if encoding == UTF8 else "strict"
            text = io.TextIOWrapper(file, encoding, errors, newline)
        except (LookupError, ValueError):
            raise DataError(
                f"{path} cannot be read, as there is no encoding {wanted!r}; give a name such as "
                "utf-8, utf-16 or cp1252, which Windows calls ANSI."
            ) from None
        try:
            with text:
                yield text
        except UnicodeError:
            remedy = (
                _advice(path, wanted) if wanted else "it is not complete, so copy or save it again"
            )
            raise DataError(f"{path} is not {encoding}; {remedy}.") from None


def _unpacked(path: Path) -> IO[bytes]:
    return gzip.open(path) if _is_packed(path) else open_file(path)  # type: ignore[return-value]


def _advice(path: Path, wanted: str = "") -> str:
    """Return what to do with a file that is not UTF-8."""
    with _unpacked(path) as file:
        return not_utf8(file, wanted)


def text_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the .txt files of a folder and its links, and what else is in it."""
    texts: list[Path] = []
    others: list[Path] = []
    seen = set()

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise DataError(f"{error.filename} cannot be opened: {error.strerror}.")

    # Not rglob, which skips unreadable folders silently, and links to folders.
    for inside, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        # A link may lead to a folder that was read already, as to one above itself.
        real = os.path.realpath(inside)
        is_new = real not in seen
        seen.add(real)
        others += [Path(inside, folder) for folder in folders if is_new and _is_hidden(folder)]
        folders[:] = sorted(folder for folder in folders if is_new and not _is_hidden(folder))
        for path in (Path(inside, name) for name in names if is_new):
            is_text = path.suffix.lower() == ".txt" and not _is_hidden(path.name) and path.exists()
            (texts if is_text else others).append(path)
    return sorted(texts), sorted(others)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in OF_SYSTEMS


def _unread(others: Sequence[Path]) -> str:
    """Say how many files of a folder are not read, and why."""
    broken = sum(not path.exists() for path in others)
    counts = {"hidden or not .txt": len(others) - broken, "linked to nothing": broken}
    return ", ".join(f"{n:,} {why}" for why, n in counts.items() if n)


def read_folder(path: Path, encoding: str = "") -> Table:
    """Read each .txt file of a folder as one document, named after the file."""
    files, others = text_files(path)
    unread = _unread(others)
    if not files:
        but = f" (not read: {unread})" if others else ""
        raise DataError(
            f"The folder {path} has no .txt file{but}; {_pattern_for(path)}give one file per "
            "document."
        )

    def rows() -> Iterator[tuple[str, str]]:
        for file in files:
            with open_text(file, encoding, None) as text:
                # A name can have bytes that are not UTF-8.
                name = os.fsencode(file.relative_to(path).as_posix())
                yield name.decode(errors="backslashreplace"), text.read()

    return Table(
        where=str(path),
        names=("id", "text"),
        parts=_collected(
            rows(), 2, lambda row: f"{files[row]} is not UTF-8; {_advice(files[row])}."
        ),
        n_rows=len(files),
        how=f"{len(files):,} .txt files of {path}" + (f" (not read: {unread})" if others else ""),
    )


def _pattern_for(folder: Path) -> str:
    """Return the pattern for a folder's tables, if it has any."""
    paths = [path for path in folder.iterdir() if not _is_hidden(path.name)]
    endings = [
        _suffix(path) + path.suffix * _is_packed(path)
        for path in paths
        if _suffix(path) in FORMATS.names
    ]
    return (
        f"for its tables, give '{folder / f'*{max(endings)}'}' in quotes, else " if endings else ""
    )


def _collected(
    rows: Iterable[Sequence[str]], width: int, complaint: Callable[[int], str]
) -> tuple[list[pa.Array], ...]:
    """Return columns of strings, in parts; raise DataError for a row that is not UTF-8."""
    columns: tuple[list[pa.Array], ...] = tuple([] for _ in range(width))
    done = 0
    for part in _in_parts(rows, lambda row: sum(map(len, row))):
        try:
            for column, cells in zip(columns, zip(*part, strict=True), strict=True):
                column.append(pa.array(cells, pa.large_string()))
        except UnicodeEncodeError:
            bad = next(i for i, row in enumerate(part) if not all(map(is_unicode, row)))
            raise DataError(complaint(done + bad)) from None
        done += len(part)
    return columns


def _in_parts(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield rows in lists of limited length and size."""
    part: list[T] = []
    total = 0
    for row in rows:
        part.append(row)
        total += size(row)
        if len(part) >= PART or total >= PART_SIZE:
            yield part
            part = []
            total = 0
    if part:
        yield part


def read_csv(path: Path, encoding: str = "") -> Table:
    """Read a CSV file; its header and first rows show the separator."""
    csv.field_size_limit(max(BLOCK, csv.field_size_limit()))
    with open_text(path, encoding) as file:
        sample = file.read(SAMPLED_CHARACTERS)
        separator = _separator(path, sample, not file.read(1))
    with open_text(path, encoding) as file:
        if EXCEL.match(sample):
            file.readline()
        rows = _csv_rows(path, file, separator)
        names = [name.strip() for name in next(rows, ())]
        if not all(map(is_unicode, names)):
            raise DataError(f"The first line of {path} is not UTF-8; {_advice(path)}.")
        parts = _collected(
            rows, len(names), lambda row: f"Row {row + 1} of {path} is not UTF-8; {_advice(path)}."
        )
    return Table(
        where=str(path),
        names=tuple(names),
        parts=parts,
        n_rows=sum(map(len, parts[0])) if parts else 0,
        how=f", separated by {json.dumps(separator)}" if len(names) > 1 else "",
        has_types=False,
    )


def _separator(path: Path, sample: str, whole: bool) -> str:
    """Return the separator with which the header and first rows have equally many fields."""
    if match := EXCEL.match(sample):
        return match[1]
    fits = {}
    for separator in SEPARATORS:
        lines = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
        rows = [*islice((row for row in lines if any(map(str.strip, row))), SAMPLED_ROWS)]
        rows = rows if whole or len(rows) in (1, SAMPLED_ROWS) else rows[:-1]  # may be incomplete
        if rows and len(rows[0]) > 1:
            fits[separator] = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
    best = [separator for separator in fits if fits[separator] == max(fits.values())]
    if ".tsv" in path.name.lower() and "\t" in best:
        return "\t"
    if len(best) > 1 and fits[best[0]] == 1:
        raise DataError(
            f"{path} can be separated by {' or by '.join(map(json.dumps, best))}; add a first "
            f"line that names the separator, such as sep={best[-1]}"
        )
    return best[0] if best else ","


def _csv_rows(path: Path, file: TextIO, separator: str) -> Iterator[list[str]]:
    """Yield the header and the rows; raise DataError with the number of the first invalid row."""
    number = width = 0  # number of the row, and of its fields
    try:
        for row in csv.reader(file, delimiter=separator, strict=True):
            if len(row) < 2 and width != 1 and not any(map(str.strip, row)):
                continue  # an empty line; with one column, it would be a document
            width = width or len(row)
            row = row or [""]  # an empty document
            if len(row) != width:
                raise _broken(
                    path, number, f"has {len(row)} field{'s' * (len(row) > 1)}, the header {width}"
                )
            yield row
            number += 1
    except csv.Error as error:
        problems = {
            "limit": f"has more than {BLOCK:,} characters in a field",
            "end of data": "contains a quote that is never closed",
            "": "has text after a closing quote",
        }
        problem = next(text for sign, text in problems.items() if sign in str(error))
        raise _broken(path, number, problem) from None


def _broken(path: Path, number: int, problem: str) -> DataError:
    row = f"row {number}" if number else "the header"
    return DataError(
        f"{path} cannot be read: {row} {problem}; put quotes around texts that contain separators, "
        "quotes or line breaks, and double the quotes in them."
    )


def read_json(path: Path, encoding: str = "") -> Table:
    columns: dict[str, list[Any]] = {}
    done = 0
    with open_text(path, encoding) as file:
        for part in _in_parts(filter(str.strip, file), len):
            rows = [_object(line, row, path) for row, line in enumerate(part, done + 1)]
            for name in dict.fromkeys(chain(columns, *rows)):
                columns.setdefault(name, [pa.nulls(done)]).append(
                    _packed([row.get(name) for row in rows])
                )
            done += len(rows)
            if len(columns) > MOST_COLUMNS:
                raise DataError(
                    f"{path} has more than {MOST_COLUMNS:,} different names; give fewer columns."
                )
    return Table(where=str(path), names=tuple(columns), parts=tuple(columns.values()), n_rows=done)


def _object(line: str, row: int, path: Path) -> dict[str, Any]:
    if not is_unicode(line):
        raise DataError(f"Row {row} of {path} is not UTF-8; {_advice(path)}.")
    with suppress(ValueError, RecursionError):
        cells = json.loads(line, object_pairs_hook=_once)
        if isinstance(cells, dict):
            return cells
    raise DataError(
        f'Row {row} of {path} is not a JSON object with distinct names, such as {{"text": "..."}}; '
        "correct it, or leave it out."
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    cells = dict(pairs)
    if len(cells) < len(pairs):
        raise ValueError
    return cells


def _packed(values: list[Any]) -> Any:
    """Return values of one type as an Arrow array, to save memory, and other values unchanged."""
    if len({type(value) for value in values if value is not None}) < 2:
        with suppress(*NOT_ARROW):
            return pa.array(values)
    return values


def read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file after measuring it: one stored value can stand for many rows."""
    most = _most(path)
    unpacked = 0
    with pa.parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        # A list can repeat one stored value, so values count as well as bytes.
        longest = max((max([of.total_byte_size, *_bytes_of_rows(of)]) for of in groups), default=0)
        # No value is longer than its column's pages, so a few rows fit into the memory.
        for batch in file.iter_batches(min(ROWS, max(1, most // max(1, longest)))):
            unpacked += len(batch) + sum(_plain(column).nbytes for column in batch.columns)
            if longest > most or unpacked > most:
                raise _bomb(path, "give the documents as another file")
        return file.read()


def _bytes_of_rows(group: pa.parquet.RowGroupMetaData) -> Iterator[int]:
    """Yield the bytes of an average row's values, by column."""
    for number in range(group.num_columns):
        yield 8 * group.column(number).num_values // max(group.num_rows, 1)


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
