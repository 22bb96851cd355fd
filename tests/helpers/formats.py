"""Documents in each format that people have, for tests of what reads them."""

import gzip
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pyreadstat

from tests.helpers.documents import write

ODS = "application/vnd.oasis.opendocument.spreadsheet"
NAMES = "urn:oasis:names:tc:opendocument:xmlns"
# Around the rows: LibreOffice writes the empty rest of a sheet as one row that is repeated.
SHEET = (
    f'<office:document-content xmlns:office="{NAMES}:office:1.0" xmlns:text="{NAMES}:text:1.0" '
    f'xmlns:table="{NAMES}:table:1.0"><office:body><office:spreadsheet>'
    '<table:table table:name="Sheet1">{}<table:table-row table:number-rows-repeated="1048000">'
    '<table:table-cell table:number-columns-repeated="16384"/></table:table-row></table:table>'
    "</office:spreadsheet></office:body></office:document-content>"
)
MANIFEST = (
    f'<m:manifest xmlns:m="{NAMES}:manifest:1.0"><m:file-entry m:full-path="/"/></m:manifest>'
)
TEXT_FORMATS = ("", ".csv", ".tsv", ".csv.gz", ".jsonl")  # a folder has no suffix
FORMATS = (*TEXT_FORMATS, ".parquet", ".xlsx", ".ods", ".sav", ".dta", ".sql")


def write_as(path: Path, texts: Sequence[str | None], coding: str = "utf-8", **more: Any) -> Path:
    """Write texts, their ids d0, d1, ..., and more columns in the format of the path's suffix."""
    frame = pd.DataFrame({"id": [f"d{row}" for row in range(len(texts))], "text": texts} | more)
    if path.suffix in AS_TEXT or path.suffix == ".gz":
        content = AS_TEXT.get(path.suffix, AS_TEXT[".csv"])(frame).encode(coding)
        return write(path, gzip.compress(content) if path.suffix == ".gz" else content)
    if path.suffix:
        WRITERS[path.suffix](path, frame.astype(object).where(frame.notna(), None))
        return path
    path.mkdir()
    for row, text in enumerate(texts):
        write(path / f"d{row}.txt", (text or "").encode(coding))
    return path


def write_ods(path: Path, rows: str) -> None:
    """Write a workbook of LibreOffice with these rows."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", ODS)
        archive.writestr("META-INF/manifest.xml", MANIFEST)
        archive.writestr("content.xml", SHEET.format(rows))


def ods_row(cells: Sequence[str | None], repeated: str = "") -> str:
    """Return a row of texts, whose lines are paragraphs; an empty cell has no type."""
    lines = [[f"<text:p>{escape(line)}</text:p>" for line in (c or "").split("\n")] for c in cells]
    inner = "".join(
        f'<table:table-cell office:value-type="string">{"".join(lines[column])}</table:table-cell>'
        if cell
        else "<table:table-cell/>"
        for column, cell in enumerate(cells)
    )
    return f"<table:table-row {repeated}>{inner}</table:table-row>"


def _ods(path: Path, frame: pd.DataFrame) -> None:
    rows = [frame.columns.tolist(), *frame.to_numpy().tolist()]
    write_ods(path, "".join(map(ods_row, rows)))


def _sql(path: Path, frame: pd.DataFrame) -> None:
    with sqlite3.connect(path.with_suffix(".db")) as connection:
        frame.to_sql("documents", connection, index=False)
    write(path, f"-- sqlite:///{path.stem}.db\nselect * from documents")


AS_TEXT: dict[str, Callable[[pd.DataFrame], str]] = {
    ".csv": lambda frame: frame.to_csv(index=False, quoting=1, lineterminator="\r\n"),
    ".tsv": lambda frame: frame.to_csv(sep="\t", index=False, quoting=1, lineterminator="\r\n"),
    ".jsonl": lambda frame: frame.to_json(orient="records", lines=True, force_ascii=False),
}
WRITERS: dict[str, Callable[[Path, pd.DataFrame], object]] = {
    ".parquet": lambda path, frame: frame.to_parquet(path),
    ".xlsx": lambda path, frame: frame.to_excel(path, index=False),
    ".ods": _ods,
    ".sav": lambda path, frame: pyreadstat.write_sav(frame, path),
    ".dta": lambda path, frame: pyreadstat.write_dta(frame, path),
    ".sql": _sql,
}
