"""Each format in each state of a file: all rows are read, or one sentence says why not."""

import gzip
import os
import re
import sqlite3
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedtopics import Columns, Corpus
from fedtopics.text import foreign
from tests.helpers.documents import CANARY, columns_of, refusal, texts, write
from tests.helpers.formats import FORMATS, TEXT_FORMATS, write_as

# Separators, quotes and line ends within texts, empty and missing ones, numbers, blanks.
TEXTS = [f'{CANARY}, "elms"; firs\tand | ash\nfell', "", None, "naïve Äpfel für 5 €", "  5", "end"]
READ = [text or "" for text in TEXTS]
SET = 'set encoding = "{0}" in the client\'s table, --columns encoding={0}, or Columns in Python'


def read_here(path: Path, option: str, package: tuple[str, str]) -> Any:
    """Read a file of another program without a process of its own, which takes a while."""
    return foreign.READERS[package[0]](str(path), option)


def assert_read(path: Path, columns: Columns | None = None) -> None:
    corpus = columns_of(Corpus.read(path, columns))
    assert corpus["documents"] == READ
    assert [name.removesuffix(".txt") for name in corpus["ids"]] == [f"d{row}" for row in range(6)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_was_written_is_read(suffix: str, tmp_path: Path) -> None:
    assert_read(write_as(tmp_path / f"north{suffix}", TEXTS))


def test_a_program_next_to_the_documents_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that reads a workbook has the same modules as this one."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pyarrow.py", "raise SystemExit")
    assert_read(write_as(tmp_path / "north.xlsx", TEXTS))


@pytest.mark.parametrize("suffix", TEXT_FORMATS)
@pytest.mark.parametrize(
    ("coding", "named"),
    [
        ("utf-8-sig", None),
        ("utf-8-sig", "utf-8"),
        ("utf-16", None),
        ("utf-16", "utf-16-le"),
        ("utf-32", None),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "cp1252"),
    ],
)
def test_encodings(coding: str, named: str | None, suffix: str, tmp_path: Path) -> None:
    assert_read(write_as(tmp_path / f"north{suffix}", TEXTS, coding), Columns(encoding=named))


@pytest.mark.parametrize("suffix", TEXT_FORMATS)
@pytest.mark.parametrize(
    ("coding", "named", "says"),
    [
        ("utf-16-le", None, f"is UTF-16 without a byte order mark; {SET.format('utf-16-le')}."),
        ("utf-16-be", None, f"is UTF-16 without a byte order mark; {SET.format('utf-16-be')}."),
        (
            "cp1252",
            None,
            f": {SET.format('cp1252')}, and compare some letters, or save it as UTF-8",
        ),
        ("utf-8", "ascii", "is not ascii; "),
        (
            "utf-8",
            "utf8x",
            "no encoding 'utf8x'; give a name such as utf-8, utf-16 or cp1252, which",
        ),
    ],
)
def test_encodings_that_do_not_fit(
    coding: str, named: str | None, says: str, suffix: str, tmp_path: Path
) -> None:
    """Nothing is guessed; what it may be is said."""
    path = write_as(tmp_path / f"north{suffix}", TEXTS, coding)
    assert says in refusal(path, Columns(encoding=named))


@pytest.mark.parametrize("suffix", FORMATS)
def test_files_without_rows(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_apart", read_here)
    says = {"": "has no .txt file; give one file", ".jsonl": "is empty; give at least one doc"}
    assert says.get(suffix, "has a header and no rows; give at least one document") in refusal(
        write_as(tmp_path / f"north{suffix}", [])
    )


@pytest.mark.parametrize("suffix", TEXT_FORMATS[1:])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (".parquet", "is a Parquet file; rename it to end in .parquet."),
        (".xlsx", "is a ZIP file, as those of Excel and LibreOffice are; rename it to end in"),
        (".ods", "is a ZIP file, as those of Excel and LibreOffice are; rename it to end in"),
        (".sav", "is an SPSS file; rename it to end in .sav."),
        (".dta", "is a Stata file; rename it to end in .dta."),
        (".csv.gz", "is a gzip file; rename it to end in .gz, as in data.csv.gz."),
    ],
)
def test_a_suffix_of_a_text(kind: str, says: str, suffix: str, tmp_path: Path) -> None:
    content = write_as(tmp_path / f"right{kind}", TEXTS).read_bytes()
    packed = gzip.compress(content) if suffix == ".csv.gz" else content
    assert says in refusal(write(tmp_path / f"wrong{suffix}", packed))


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"%PDF-1.7", "is a PDF; save its text."),
        (b"{\\rtf1", "is a file in Rich Text Format; save its text."),
        (b"\xd0\xcf\x11\xe0", "is a file of an older Office, or one with a password; rename it"),
        (b"SQLite format 3\0", "is an SQLite database; write a query for it into a file that"),
        (b"ARROW1\0\0", "is a Feather file; save it as Parquet."),
    ],
)
def test_first_bytes_that_no_text_has(first: bytes, says: str, tmp_path: Path) -> None:
    assert says in refusal(write(tmp_path / "wrong.csv", first + f"text\n{CANARY}\n".encode()))


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        *((suffix, f"id,text\nd0,{CANARY}\n".encode()) for suffix in FORMATS[5:]),
        (".parquet", b""),
        (".xlsx", b""),
    ],
)
def test_a_text_with_a_suffix_of_another_format(
    suffix: str, content: bytes, tmp_path: Path
) -> None:
    says = f"cannot be read as {suffix}; it is damaged, a different kind of file, or too large for"
    says = "is a text; rename it to end in .csv, .jsonl or .txt" if content else says
    assert (says if suffix != ".sql" else "needs a comment with the database's address") in refusal(
        write(tmp_path / f"wrong{suffix}", content)
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_what_is_no_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"north{suffix}"
    os.mkfifo(path)
    assert "is a pipe, a socket or a device; give a regular file." in refusal(path)
    path.unlink()
    path.mkdir()
    assert "has no .txt file; give one file per document." in refusal(path)
    assert texts(write(path / "a.txt", "oak").parent) == ["oak"], "a folder, whatever its name"


LINES = re.compile("\r\n?")
XML = "[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]|^=|_x"
# What a format cannot hold, and what becomes of the rest of a text.
HOLDS: dict[str, tuple[str, Callable[[str], str]]] = {
    **dict.fromkeys((".csv", ".tsv", ".csv.gz", ".jsonl", ".parquet", ".sql"), ("(?!)", str)),
    "": ("[\0-\b]", lambda text: LINES.sub("\n", text.removeprefix("\ufeff"))),
    ".xlsx": (XML, lambda text: text if text.strip(" \t\n") else ""),
    ".ods": (XML, lambda text: LINES.sub("\n", text)),
    ".sav": ("\0", lambda text: text.rstrip(" ")),
    ".dta": ("\0", str),
}
ANY = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@pytest.mark.parametrize("suffix", FORMATS)
@settings(derandomize=True, deadline=None, max_examples=25)
@example(rows=["a", "", None, "\ufeff", "\r", "\0", "b "])
@given(rows=st.lists(st.none() | ANY, min_size=1, max_size=9))
def test_texts_of_any_characters(
    suffix: str, rows: list[str | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    left_out, read = HOLDS[suffix]
    held = [row if row is None else re.sub(left_out, "", row) for row in rows]
    # With a long column, few bytes are NUL; else the file would be refused.
    path = write_as(
        tmp_path_factory.mktemp("any") / f"any{suffix}", held, more=["oak " * 50] * len(rows)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign, "_apart", read_here)
        assert texts(path) == [read(text or "") for text in held]


def test_a_folder_of_tables_names_their_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "letters.parquet"
    folder.mkdir()
    for part in "01":
        write_as(folder / f"part-{part}.parquet", [part, None])
    assert (
        f"for its tables, give '{folder}/*.parquet' in quotes, else give one file per"
        in refusal(folder)
    )
    for pattern in ("*.parquet", "part-*.parquet"):
        assert texts(folder / pattern) == ["0", "", "1", ""]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([["Anna Schmidt", CANARY], ["Bert", "well"]], "2 columns, whose names are not shown, as"),
        ([[CANARY], ["well"]], "has one column, and its first line may be a document"),
        ([["letters", None], ["id", "body"], [1, "oak"]], "has a column without a name; delete"),
        ([["text", "x"], ["oak", 1e20], ["elm", None]], ["oak", "elm"]),
        ([["text", "x"], ["oak", date(2026, 1, 2)], [5, datetime(2026, 1, 2, 3)]], ["oak", "5"]),
        ([["text", None], ["oak", None], [None, None], ["elm", "a note"]], ["oak", "", "elm"]),
    ],
)
def test_rows_of_a_sheet(rows: list[list[Any]], says: str | list[str], tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    hidden = book.create_sheet("hidden")
    hidden.append(["text"])
    hidden.sheet_state = "veryHidden"
    for row in rows:
        book.active.append(row)
    book.save(path := tmp_path / "north.xlsx")
    assert (says in refusal(path)) if isinstance(says, str) else texts(path) == says


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("-- sqlite:///{0}\nselect 'oak' as text where 'a%' like 'a%'", ""),
        ("-- sqlite:///{0}\nselect nothing", "has a query that failed; try it"),
        ("-- sqlite:///{0}\nattach 'new.db' as new", "does not begin with SELECT or WITH"),
        ("-- of letters\nselect 1", "has a first line that is not the address of a database"),
        ("select 1", "needs a comment with the database's address as first line"),
    ],
)
def test_queries(query: str, says: str, tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").close()
    path = write(tmp_path / "north.sql", query.format("a.db"))
    assert says in refusal(path) if says else texts(path) == ["oak"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.db", "north.sql"]


def test_stata_of_earlier_times(tmp_path: Path) -> None:
    """It names no encoding; weeks, months and quarters are numbers since 1960."""
    table = pd.DataFrame({"text": ["café"], "when": pd.to_datetime(["2010-05-01"])})
    table.to_stata(path := tmp_path / "old.dta", version=114, write_index=False)
    assert "is of a Stata before 14, which names no encoding; set one" in refusal(path)
    assert columns_of(Corpus.read(path, Columns(encoding="cp1252")))["documents"] == ["café"]
    for unit, day in {"tw": "2010-04-30", "tm": "2010-05-01", "tq": "2010-04-01"}.items():
        table.to_stata(path, version=118, write_index=False, convert_dates={"when": unit})
        times = Corpus.read(path, Columns(time="when")).times
        assert times is not None and str(times[0]).startswith(day)
