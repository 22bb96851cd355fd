"""Files made to break who reads them: one clear sentence, in bounded time and memory."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedtopics.errors import DataError
from fedtopics.text import readers
from fedtopics.text.corpus import Corpus
from tests.helpers.damage import damages
from tests.helpers.documents import CANARY, refusal, write
from tests.helpers.formats import ods_row, write_ods


@pytest.mark.parametrize("content", [b"text\n" + b"a\n" * (4 << 20), bytes(8 << 20)])
@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.jsonl.gz", "bomb.tsv.gz"])
def test_what_unpacks_to_a_thousand_times_its_size(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "UNPACKED", 1 << 20)
    path = write(tmp_path / name, gzip.compress(content))
    assert f"{path} unpacks to more than 100 times its size" in refusal(path)


def test_small_files_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It compresses well, and is small.
    path = write(tmp_path / "texts.csv.gz", gzip.compress(b"text\n" + b"oak tree\n" * 50_000))
    assert len(Corpus.read(path)) == 50_000
    monkeypatch.setattr(readers, "UNPACKED", 0)
    assert "100 times" in refusal(path)


def bomb(rows: int, value: str, **how: Any) -> pa.Table:
    """A value that is there once, in each row."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), [value])
    return pa.table({"text": column}).cast(pa.schema([("text", how.get("kind", column.type))]))


@pytest.mark.parametrize(
    ("table", "how"),
    [
        (bomb(400_000, "oak"), {}),
        (bomb(400_000, "oak", kind=pa.string()), {}),
        (bomb(500, "oak " * 1000), {}),
        (
            bomb(500, "oak " * 1000, kind=pa.string()),
            {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
        ),
        (pa.table({"text": pa.nulls(400_000, pa.string())}), {}),
        (pa.table({"text": ["oak"] * 1_200_000, "id": pa.nulls(1_200_000)}), {}),
    ],
    ids=["short", "plain", "long", "prefixes", "missing", "rows"],
)
def test_a_parquet_whose_rows_are_one(
    table: pa.Table, how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before its rows are in the memory, a few at a time."""
    monkeypatch.setattr(readers, "UNPACKED", 1 << 20)
    path = tmp_path / "bomb.parquet"
    pq.write_table(table, path, compression="zstd", **how)
    assert path.stat().st_size < 20_000
    monkeypatch.setattr(pq, "read_table", None)
    assert f"{path} unpacks to more than 100 times its size" in refusal(path)
    monkeypatch.undo()
    assert len(Corpus.read(path)) == len(table)


def test_too_little_memory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> Any:
        raise pa.ArrowMemoryError("malloc of size 3 failed")

    monkeypatch.setattr(readers.FORMATS, "find", lambda kind: full)
    assert "needs more memory than this computer has" in refusal(
        write(tmp_path / "texts.parquet", b"")
    )


def test_a_parquet_with_any_damage_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": ["oak tree", "elm"] * 50, "id": range(100)}), path)
    refused = 0
    for damaged in damages(path.read_bytes(), 60):
        path.write_bytes(damaged)
        try:
            list(Corpus.read(path).batches())
        except DataError:
            refused += 1
    assert refused > 80


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.jsonl", b'{"text":' + b"[" * 50_000),
        ("deep.jsonl", b'{"text":' + b'{"a":' * 50_000),
        ("number.jsonl", b'{"text": 1e999999}\n'),
        ("twice.jsonl", b'{"text": "a", "text": "b"}\n'),
        ("kinds.jsonl", b'{"text": "a"}\n{"text": [1]}\n'),
        ("quote.csv", b'text\n"' + b"a\n" * 200_000),
        ("long.csv", b"text\n" + b"a" * (65 << 20)),
        ("wide.csv", b"text" + b",x" * 5000 + b"\noak\n"),
    ],
)
def test_files_that_break_readers(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert str(tmp_path / name) in refusal(tmp_path / name)


def test_some_bytes_of_zero_are_text(tmp_path: Path) -> None:
    """Programs that read PDF leave some; of a file of zeros, nobody knows what it was."""
    path = write(tmp_path / "odd.csv", b"text\n" + 400 * b"oak trees fell\0" + b"\n")
    assert len(Corpus.read(path)) == 1
    assert "many of its bytes are NUL" in refusal(write(path, b"text\n" + bytes(5000)))


def test_a_workbook_of_one_cell_far_away(tmp_path: Path) -> None:
    workbook = openpyxl.Workbook()
    for place, value in {"A1": "text", "A2": "oak", "XFD1048576": CANARY}.items():
        workbook.active[place] = value
    workbook.save(tmp_path / "far.xlsx")
    assert "too large for this computer's memory" in refusal(tmp_path / "far.xlsx")


def test_a_workbook_of_one_cell_that_is_repeated(tmp_path: Path) -> None:
    row = ods_row([CANARY], 'table:number-rows-repeated="1000000"').replace(
        "table-cell ", 'table-cell table:number-columns-repeated="1000000" '
    )
    write_ods(tmp_path / "many.ods", ods_row(["text"]) + row)
    assert "too large for this computer's memory" in refusal(tmp_path / "many.ods")
