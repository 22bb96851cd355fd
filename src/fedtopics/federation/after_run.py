"""Lines that a ledger gets after a run: files that were deleted, and its report."""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from fedtopics.errors import RunError, refuse
from fedtopics.federation.ledger import (
    Head,
    Ledger,
    Line,
    client_of_ledger,
    last_records,
    lines_of,
    outside_of,
)
from fedtopics.protocol.roster import Key


def delete_files(folder: Path, names: Sequence[str], key: Key | None = None) -> list[str]:
    """Delete files or folders that a member's ledger names, and add a line for each to the ledger.

    Parameters
    ----------
    folder : Path
        The folder of the member, with ``ledger.jsonl``.
    names : list of str
        Names as in the ledger, such as ``theta.parquet`` or ``model``.
    key : Key, optional
        The client's key; a signed ledger needs it.

    Returns
    -------
    list of str
        The files that were deleted.

    Raises
    ------
    RunError
        If there is no ledger, it names no such file, it was changed, or it is of another key.
    """
    path = folder / "ledger.jsonl"
    lines = list(lines_of(path))
    recorded = [name for name in last_records(lines) if not outside_of(folder, name)]
    chosen = [
        name for what in names for name in recorded if f"{name}/".startswith(f"{what.rstrip('/')}/")
    ]
    head = Head.read(path)
    refuse(
        {
            f"The ledger {path} names none of {', '.join(names)}; it names "
            f"{', '.join(recorded) or 'no file'}. Nothing was deleted.": not lines or not chosen,
            f"The ledger {path} is signed; give the folder of the key of "
            f"{client_of_ledger(path)!r} with --key. Nothing was deleted.": (
                head is not None and head.signature != b"" and key is None
            ),
        },
        error=RunError,
    )
    with closing(_reopened(path, lines[-1], key)) as ledger:
        for name in chosen:
            # First the line: if the power fails in between, `verify` finds the file.
            ledger.add("deleted", file=name)
            (folder / name).unlink(missing_ok=True)
    return chosen


def record_files(folder: Path, names: Sequence[str], key: Key) -> None:
    """Add a line to a member's ledger for each of these files that exists."""
    path = folder / "ledger.jsonl"
    if lines := list(lines_of(path)):
        with closing(_reopened(path, lines[-1], key)) as ledger:
            ledger.write_files(folder, *(name for name in names if (folder / name).exists()))


def _reopened(path: Path, last: Line, key: Key | None) -> Ledger:
    """Open the ledger of a run that has ended, whose last line this is."""
    open_ledger = partial(
        Ledger,
        method=str(last.content.get("method")),
        study=str(last.content.get("study")),
        path=path,
        run=str(last.content.get("run")),
        begun=True,
    )
    return open_ledger() if key is None else open_ledger(sign=key.sign, is_own=key.has_signed)
