"""Read only regular files; write files that survive a crash and that only their owner can read.

All other modules open paths with these functions, or call `require_file` before a library opens
one: reading a named pipe can block forever, and a device can fill the memory.
"""

import codecs
import glob
import hashlib
import json
import math
import os
import stat
import threading
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from fedtopics import waiting
from fedtopics.errors import InputError, RunError, refuse

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FOLDER = 0o700  # only the owner, whatever the umask
FILE = 0o600  # the same for files
EVENTS = "events.jsonl"  # of a run, one a line
LOCK = "lock"  # of a folder; its time is the last sign of life of the process that holds it
TAIL = 1 << 16  # bytes
LARGEST_TEXT = 1 << 28  # bytes of a file of settings or records
MARKED = {".html", ".md", ".svg"}  # formats that allow a comment as their last line
FINGERPRINT_LENGTH = 16  # characters of a fingerprint
T = TypeVar("T")
Row = dict[str, Any]


def require_file(path: Path, error: type[InputError] = InputError) -> None:
    """Raise an error if a path exists and is neither a regular file nor a folder."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return  # opening it raises the right error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise error(f"{path} is a pipe, a socket or a device; give a regular file.")


def open_file(path: Path, mode: str = "rb", **how: Any) -> Any:
    """Open a file like `Path.open`; InputError if it is not a regular file."""
    require_file(path)
    return path.open(mode, **how)


def read_bytes(path: Path) -> bytes:
    require_file(path)
    return path.read_bytes()


def read_text(path: Path, encoding: str = "utf-8", errors: str = "strict") -> str:
    require_file(path)
    if path.stat().st_size > LARGEST_TEXT:
        raise InputError(f"{path} is too large: it has {path.stat().st_size:,} bytes.")
    return path.read_text(encoding, errors)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, "utf-8-sig"))  # editors may write a byte order mark
    except RecursionError:
        raise ValueError("values are nested too deeply") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"line {line} is not UTF-8; save the file as UTF-8") from None


def cut_torn_line(path: Path) -> None:
    """Remove an incomplete last line, which a full disk or a crash can leave."""
    with open_file(path, "rb+") as file:
        end = place = file.seek(0, os.SEEK_END)
        while place > 0:
            place = max(0, place - TAIL)
            file.seek(place)
            newline = file.read(TAIL).rfind(b"\n")
            if newline >= 0:
                place += newline + 1
                break
        if place < end:
            file.truncate(place)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, readable only by the owner."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=FOLDER, exist_ok=True)


def open_private(path: Path, mode: str, **how: Any) -> Any:
    """Open a file for writing, like `open`; only the owner can read a new one."""
    require_file(path)
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE), **how)


def write_durably(path: Path, content: bytes, public: bool = False) -> None:
    """Write or replace a file atomically and durably, if `public` with the umask's permissions."""
    require_file(path)
    for old in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        with suppress(OSError):  # another process may remove it
            if time.time() - old.stat().st_mtime > waiting.DAY:  # left by a process that was killed
                old.unlink()
    # Two processes that write the same file have different names for it until it is complete.
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    create(temporary, content, public)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    if hasattr(os, "O_DIRECTORY"):  # without it, a power failure can bring the old file back
        handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create(path: Path, content: bytes, public: bool = False) -> None:
    """Write a new file durably, all or nothing; FileExistsError if the file exists already."""
    handle = os.open(
        path,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL,
        0o666 if public else FILE,  # minus the umask
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # errors while writing have no file name
        raise


def check_output(
    path: str | Path,
    suffixes: Collection[str],
    inputs: Iterable[str | Path | None] = (),
    names: Sequence[str] = (),
) -> str:
    """Return the suffix of an output file; InputError if writing it could destroy other data.

    Only files that fedtopics wrote are replaced: pages and pictures that nobody has changed since,
    and tables or JSON whose first columns or keys have these `names`.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise InputError(f"{path} has to end in {' or '.join(suffixes)}; name another file.")
    require_file(path)
    if not path.exists():
        return suffix
    read = [Path(file) for file in inputs if file is not None]
    refuse(
        {
            f"{path} is an input of this command; name another file to write.": any(
                file.exists() and path.samefile(file) for file in read
            ),
            f"{path} already exists, and fedtopics did not write it, or somebody changed it; "
            "name another file, or move this one away.": (
                path.is_dir() or not _is_ours(path, suffix, names)
            ),
        },
        error=InputError,
    )
    return suffix


def write_output(
    path: str | Path,
    content: bytes,
    suffixes: Collection[str],
    inputs: Iterable[str | Path | None] = (),
    names: Sequence[str] = (),
    public: bool = False,
) -> Path:
    suffix = check_output(path, suffixes, inputs, names)
    make_folder(Path(path).parent)
    begin = codecs.BOM_UTF8 if suffix == ".csv" else b""  # without it, Excel reads another encoding
    end = _mark(content) if suffix in MARKED else b""
    write_durably(Path(path), begin + content + end, public)
    return Path(path)


def _mark(content: bytes) -> bytes:
    return b"<!-- fedtopics %s -->\n" % hashlib.sha256(content).hexdigest().encode()


def _is_ours(path: Path, suffix: str, names: Sequence[str]) -> bool:
    """Whether fedtopics wrote a file, by its last line or the names of its first columns."""
    if suffix in MARKED:
        content = read_bytes(path)
        return content.endswith(_mark(content[: -len(_mark(b""))]))
    with (
        suppress(ValueError, LookupError, AttributeError, TypeError, RecursionError),
        open_file(path) as file,
    ):
        if suffix == ".parquet":  # pyarrow's errors are ValueErrors
            from pyarrow import parquet

            columns = parquet.read_schema(file).names
        elif suffix.startswith(".json"):
            first = json.loads(file.readline() if suffix == ".jsonl" else file.read())
            columns = [*(first[0] if isinstance(first, list) else first)]
        else:
            columns = file.readline().decode("utf-8-sig").replace('"', "").strip().split(",")
        return [column.strip() for column in columns[: len(names)]] == [*names]
    return False


def copy_folder(source: Path, folder: Path) -> None:
    """Copy all files of a folder; only the owner can read the copies."""
    for path in filter(Path.is_file, sorted(source.rglob("*"))):
        copy = folder / path.relative_to(source)
        make_folder(copy.parent)
        write_durably(copy, read_bytes(path))


def hold(folder: Path) -> IO[Any]:
    """Lock a folder until the returned file is closed; RunError if another process holds it.

    Meanwhile the file's time shows others that this process lives.
    """
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; name a folder.")
    make_folder(folder)
    file: IO[Any] = open_private(folder / LOCK, "a")
    try:
        lock(file.fileno(), folder)
    except BaseException:
        file.close()
        raise
    threading.Thread(target=_beat, args=[file], daemon=True).start()
    return file


def _beat(file: IO[Any]) -> None:
    """Change a file's time every few seconds: that of a killed or frozen process stays as it is."""
    while not file.closed:
        with suppress(OSError):
            os.utime(file.name)
        time.sleep(waiting.HEARTBEAT)


def lock(handle: int, folder: Path) -> None:
    """Lock an open file or folder; RunError if another process has locked it."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"Another process uses {folder}; wait until it has ended.") from None


@contextmanager
def replacing(folder: Path) -> Iterator[None]:
    """Lock a folder while its files are replaced, without a file for that."""
    make_folder(folder)
    with ExitStack() as stack:
        with suppress(OSError):  # Windows and some network folders lock only files
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            lock(handle, folder)
        yield


def show_use(file: IO[Any]) -> None:
    """Mark a file as used by this process until it is closed; `is_used` shows it to others."""
    if fcntl is not None:
        with suppress(OSError):  # for example, on a network folder
            fcntl.flock(file, fcntl.LOCK_SH)


def is_used(path: Path) -> bool | None:
    """Whether another process has marked a file with `show_use`; None where it cannot be known."""
    if fcntl is None:
        return None
    with open_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
    return False


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait until no other process uses a file, on systems that have file locks."""
    with open_private(path.with_name(path.name + ".lock"), "a") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def shortened(fingerprint: str) -> str:
    """Return the part of a fingerprint that is shown to people; programs compare all of it."""
    return fingerprint[:FINGERPRINT_LENGTH]


class LineFile:
    """A private file for JSON lines from any thread; `is_used` returns True until it is closed."""

    def __init__(self, path: Path, mode: str = "ab") -> None:
        if mode == "ab" and path.exists():
            cut_torn_line(path)
        self._file = open_private(path, mode, buffering=0)
        self._unwritten = b""
        self._error = OSError()
        self._lock = threading.Lock()
        show_use(self._file)

    def write(self, *rows: Mapping[str, Any]) -> None:
        lines = b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
        # On a full disk, lines wait for the next write; a buffered file would lose some.
        with self._lock:
            self._unwritten += lines
            try:
                while self._unwritten:
                    self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
            except OSError as error:
                self._error = error

    def require_written(self) -> None:
        if self._unwritten:
            raise self._error

    def fileno(self) -> int:
        return int(self._file.fileno())

    def close(self) -> None:
        self.write()
        self._file.close()


class RowFile:
    """A file of JSON lines with one row per task; tasks that have a row are not repeated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[Row] = []
        if path.exists():
            cut_torn_line(path)
            try:
                self._rows = [dict(json.loads(line)) for line in read_bytes(path).splitlines()]
            except (ValueError, TypeError, RecursionError):
                raise RunError(
                    f"{path} is damaged; remove the line that is not JSON, and its task is "
                    "repeated."
                ) from None

    def find(self, wanted: Row) -> Row | None:
        return next((row for row in self._rows if wanted.items() <= row.items()), None)

    def fill(
        self,
        tasks: Iterable[T],
        name: Callable[[T], Row],
        work: Callable[[T], Row],
        title: Callable[[T], str],
        on_event: Callable[[Row], None],
    ) -> None:
        """Do the tasks that have no row yet, with an event {"event": "model"} before each.

        `name` returns the keys of a task's row, `work` its results, `title` its name for people.
        """
        todo = [task for task in tasks if not self.find(name(task))]
        for number, task in enumerate(todo):
            on_event({"event": "model", "name": title(task), "done": number, "models": len(todo)})
            self.keep(name(task) | work(task))
        on_event({"event": "model", "name": "", "done": len(todo), "models": len(todo)})

    def keep(self, row: Row) -> Row:
        """Write a row and return it; a number that is not finite becomes null."""
        row = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in row.items()
        }
        make_folder(self._path.parent)
        with open_private(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        self._rows.append(row)
        return row
