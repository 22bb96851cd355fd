"""Readers of files of other programs: Excel, LibreOffice, SPSS, Stata, and queries of databases.

Libraries in C and Rust read them. A damaged file, or a small one that stands for a huge one, ends a
library's process, so each file is read in a process of its own, with a deadline and little memory.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from fedtopics import waiting
from fedtopics.errors import DataError
from fedtopics.extras import require
from fedtopics.files import read_text
from fedtopics.text.tables import Table

INSTALL = "'fedtopics[files]'"
MEMORY = 4 << 30  # bytes that reading a file may take
TIMES = 100  # or this multiple of its size
REFUSED = 2  # exit code of a process whose standard error is a sentence for people
PLAIN = {str, int, float, bool, bytes, date, datetime, Decimal}  # the types that Arrow has


def read_sheet(path: Path, sheet: str = "") -> Table:
    """Read the only sheet of a workbook that has rows, or the named one."""
    table = Table.of(_apart(path, sheet, ("python_calamine", "python-calamine")), str(path))
    if len(table.names) != 1:
        return table
    return replace(table, has_types=False, how=", its only one")  # whose name may be an answer


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
        done = subprocess.run(command, capture_output=True, timeout=waiting.READ, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise DataError(
            f"Reading {path} took more than {waiting.READ:.0f} s; give fewer rows."
        ) from None
    if done.returncode == REFUSED:
        problem, _, value = done.stderr.decode(errors="replace").partition("\0")
        raise DataError(f"{path} {problem}", value)
    done.check_returncode()  # what it would say may quote a row
    return pa.ipc.open_stream(done.stdout).read_all()


def _sheet(path: str, wanted: str) -> pa.Table:
    from python_calamine import CalamineWorkbook

    workbook = CalamineWorkbook.from_path(path)
    names = workbook.sheet_names
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
    if 2 * names.count("") > len(names):
        _refuse(
            "names less than half of its columns in the first row; delete rows above these."
        )
    # Columns without a name are those of notes next to the table.
    return _table(
        [
            (name, [None if cell == "" else cell for cell in cells])
            for name, *cells in zip(names, *rows, strict=True)
            if name
        ]
    )


def _statistics(path: str, encoding: str) -> pa.Table:
    import pyreadstat

    read = pyreadstat.read_dta if path.lower().endswith(".dta") else pyreadstat.read_sav
    columns, about = read(path, encoding=encoding or None, output_format="dict")
    labels = about.variable_value_labels
    return _table(
        [
            (name, [labels.get(name, {}).get(value, value) for value in values])
            for name, values in columns.items()
        ]
    )


def _query(path: str, _: str) -> pa.Table:
    import sqlalchemy as sql

    first, _, query = read_text(Path(path), "utf-8-sig").partition("\n")
    if not first.startswith("--") or not query.strip():
        _refuse(
            "needs a comment with the database's address as first line, such as -- "
            "postgresql://user@host/database, and a query below it."
        )
    try:
        url = sql.make_url(first.removeprefix("--").strip())
        if url.get_backend_name() == "sqlite" and url.database:  # it would make a missing file
            file = Path(path).parent / url.database
            url = url.set(database=file.as_uri(), query={"mode": "ro", "uri": "true"})
        with sql.create_engine(url).connect() as connection:  # which commits nothing
            rows = connection.exec_driver_sql(query)
            names = [*rows.keys()]
            columns = [*zip(*rows, strict=True)] or [()] * len(names)
            return _table([*zip(names, columns, strict=True)])
    except ModuleNotFoundError as error:
        _refuse(f"needs the package {error.name}; install it with: pip install {error.name}")
    except (sql.exc.ArgumentError, ValueError):
        _refuse("has a first line that is no address of a database; correct it.")
    except sql.exc.SQLAlchemyError as error:
        says = str(getattr(error, "orig", ""))  # this may quote a row
        _refuse("has a query that failed; try it with the database's own program.", says)


def _table(columns: Sequence[tuple[str, Sequence[object]]]) -> pa.Table:
    return pa.Table.from_arrays(
        [pa.array(_of_one_type(values)) for _, values in columns], [name for name, _ in columns]
    )


def _of_one_type(values: Sequence[object]) -> list[object]:
    """Return whole numbers as int, and values of several types as texts: an answer may be 5."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    types = {type(value) for value in whole if value is not None}
    if types == {int, float}:
        return [*values]
    is_plain = len(types) < 2 and types <= PLAIN
    return whole if is_plain else [None if v is None else str(v) for v in whole]


def _refuse(problem: str, value: str = "") -> NoReturn:
    sys.stderr.write(f"{problem}\0{value}")
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
