"""Readers of files of other programs: Excel, LibreOffice, SPSS, Stata, and queries of databases.

Libraries in C and Rust read them. A damaged file, or a small one that stands for a huge one, ends a
library's process, so each file is read in a process of its own, with a deadline and little memory.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from fedtopics import waiting
from fedtopics.errors import DataError
from fedtopics.extras import require
from fedtopics.files import read_text
from fedtopics.text.encodings import beginning_of
from fedtopics.text.tables import Table

INSTALL = "'fedtopics[files]'"
MEMORY = 4 << 30  # bytes that reading a file may take
TIMES = 100  # or this multiple of its size
REFUSED = 2  # exit code of a process whose output is a sentence for people
PLAIN = {str, int, float, bool, bytes, datetime, Decimal}  # the types that Arrow has
EXACT = 2**53  # larger whole numbers of workbooks are not exact
STATA = {"%tm": 1, "%tq": 3, "%th": 6, "%tw": 0}  # units of dates by format, in months
OF_PERIODS = re.compile("MOYR|QYR|WKYR")


def read_sheet(path: Path, sheet: str = "") -> Table:
    """Read the only sheet of a workbook that has rows, or the named one."""
    table = Table.of(_apart(path, sheet, ("python_calamine", "python-calamine")), str(path))
    return replace(table, has_types=False, how=", in a sheet")  # its first row may be an answer


def read_statistics(path: Path, encoding: str = "") -> pa.Table:
    """Read a file of SPSS or Stata, with the labels of values in place of their codes."""
    return _apart(path, encoding, ("pyreadstat", "pyreadstat"))


def read_query(path: Path) -> pa.Table:
    """Read the rows of a query, whose first line is a comment with the database's address."""
    return _apart(path, "", ("sqlalchemy", "SQLAlchemy"))


def _apart(path: Path, option: str, package: tuple[str, str]) -> pa.Table:
    """Read a file in a process of its own, and return what it writes."""
    require(f"Reading {path} needs", INSTALL, package)
    # -P: no module in the folder of the user's files is imported.
    command = [sys.executable, "-P", "-m", __name__, package[0], str(path.absolute()), option]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=waiting.READ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataError(
            f"Reading {path} took more than {waiting.READ:.0f} s; give fewer rows."
        ) from None
    if done.returncode == REFUSED:
        problem, _, value = done.stdout.decode(errors="replace").partition("\0")
        raise DataError(f"{path} {problem}", value)
    done.check_returncode()  # what it would say may quote a row
    return pa.ipc.open_stream(done.stdout).read_all()


def _sheet(path: str, wanted: str) -> pa.Table:
    from python_calamine import CalamineWorkbook, SheetVisibleEnum

    workbook = CalamineWorkbook.from_path(path)
    about = workbook.sheets_metadata
    names = [of.name for of in about if wanted or of.visible == SheetVisibleEnum.Visible]
    if wanted and wanted not in names:
        _refuse(f"has no sheet {wanted!r}, but: {', '.join(names)}; correct its name.")
    sheets = {name: workbook.get_sheet_by_name(name) for name in ([wanted] if wanted else names)}
    filled = [name for name, sheet in sheets.items() if sheet.height]
    if len(filled) > 1:
        _refuse(
            f"has several sheets with rows ({', '.join(filled)}); name one with sheet = in the "
            "client's table, or --columns sheet=NAME."
        )
    header, *rows = sheets[filled[0]].to_python() if filled else [[]]
    names = [str(name).strip() for name in _of_one_type(header)]
    columns = [
        (name, [None if cell == "" else cell for cell in cells])
        for name, *cells in zip(names, *rows, strict=True)
    ]
    if any(not name and 2 * cells.count(None) < len(cells) for name, cells in columns):
        _refuse("has a column without a name; delete rows above the names, or give it a name.")
    # Other columns without a name are those of notes next to the table.
    return _table([(name, cells) for name, cells in columns if name])


def _statistics(path: str, encoding: str) -> pa.Table:
    import pyreadstat

    is_stata = path.lower().endswith(".dta")
    read = pyreadstat.read_dta if is_stata else pyreadstat.read_sav
    _, about = read(path, metadataonly=True, encoding=encoding or None, output_format="dict")
    kinds = about.original_variable_types
    columns, about = read(
        path,
        encoding=encoding or None,
        output_format="dict",
        # Months, quarters and weeks of SPSS are seconds, as dates are.
        extra_datetime_formats=[of for of in kinds.values() if of and OF_PERIODS.match(of)],
    )
    texts = (value for values in columns.values() for value in values if isinstance(value, str))
    if is_stata and not encoding and _is_old(path) and not all(map(str.isascii, texts)):
        _refuse("is of a Stata before 14, which names no encoding; set one, such as cp1252.")
    labels = about.variable_value_labels
    return _table(
        [
            (name, [labels.get(name, {}).get(v, _time(kinds[name] or "", v)) for v in values])
            for name, values in columns.items()
        ]
    )


def _is_old(path: str) -> bool:
    """Whether a file of Stata is of version 117 or before."""
    return not re.match(rb"<stata_dta><header><release>11[89]", beginning_of(Path(path)))


def _time(kind: str, value: object) -> object:
    """Return the first day of a month, quarter, half of a year or week since 1960."""
    if not isinstance(value, (int, float)) or kind[:3] not in STATA:
        return value
    whole = int(value)
    if kind.startswith("%tw"):  # a year has 52 weeks
        return datetime(1960 + whole // 52, 1, 1) + timedelta(weeks=whole % 52)
    months = whole * STATA[kind[:3]]
    return datetime(1960 + months // 12, 1 + months % 12, 1)


def _query(path: str, _: str) -> pa.Table:
    import sqlalchemy as sql

    first, _, query = read_text(Path(path), "utf-8-sig").partition("\n")
    if not first.startswith("--") or not query.strip():
        _refuse(
            "needs a comment with the database's address as first line, such as -- "
            "postgresql://user@host/database, and a query below it."
        )
    if not re.match(r"\s*(select|with|table|values|from)\b", query, re.IGNORECASE):
        _refuse("has a query that does not begin with SELECT or WITH; begin with one of them.")
    try:
        url = sql.make_url(first.removeprefix("--").strip())
    except (sql.exc.ArgumentError, ValueError):
        _refuse("has a first line that is not the address of a database; correct it.")
    try:
        if url.get_backend_name() == "sqlite" and url.database:  # it would make a missing file
            file = Path(path).parent / url.database
            url = url.set(database=file.as_uri(), query={"mode": "ro", "uri": "true"})
        with sql.create_engine(url).connect() as connection:  # which commits nothing
            rows = connection.execution_options(no_parameters=True).exec_driver_sql(query)
            names = [*rows.keys()]
            columns = [*zip(*rows, strict=True)] or [()] * len(names)
    except ModuleNotFoundError as error:
        _refuse(f"needs the package {error.name}; install it with: pip install {error.name}")
    except sql.exc.SQLAlchemyError as error:
        says = str(getattr(error, "orig", ""))  # this may quote a row
        _refuse("has a query that failed; try it with the database's own program.", says)
    return _table([*zip(names, columns, strict=True)])


def _table(columns: Sequence[tuple[str, Sequence[object]]]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(_of_one_type(values)) for _, values in columns], [name for name, _ in columns]
    )


def _of_one_type(values: Sequence[object]) -> list[object]:
    """Return whole numbers as int, and values of several types as texts: an answer may be 5."""
    whole = [_plain(value) for value in values]
    types = {type(value) for value in whole if value is not None}
    if bytes in types and len(types) > 1:
        _refuse("has bytes among the texts of a column; leave that column out.")
    if types == {int, float}:
        return [*values]
    is_plain = len(types) < 2 and types <= PLAIN
    return whole if is_plain else [None if v is None else str(v) for v in whole]


def _plain(value: object) -> object:
    """Return a whole number as int, and a day as the moment when it begins."""
    match value:
        case float() if value.is_integer() and abs(value) < EXACT:
            return int(value)
        case date() if not isinstance(value, datetime):
            return datetime(value.year, value.month, value.day)
    return value


def _refuse(problem: str, value: str = "") -> NoReturn:
    sys.stdout.write(f"{problem}\0{value}")  # libraries may write to standard error
    sys.exit(REFUSED)


def _limit_memory(file: str) -> None:
    """Let this process have memory in proportion to the file, where that can be set."""
    with suppress(ImportError, ValueError, OSError, AttributeError):
        import resource

        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        most = min(machine, max(MEMORY, TIMES * Path(file).stat().st_size))
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


READERS = {"python_calamine": _sheet, "pyreadstat": _statistics, "sqlalchemy": _query}

if __name__ == "__main__":
    _, package, file, option = sys.argv
    _limit_memory(file)
    content = READERS[package](file, option)
    with pa.ipc.new_stream(sys.stdout.buffer, content.schema) as stream:
        stream.write_table(content)
