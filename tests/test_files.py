"""Files that outlive a crash."""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedtopics
from fedtopics import NMF, Columns, Corpus, Policy, Study, TopicModel, files
from fedtopics.errors import InputError, ModelError, RunError
from fedtopics.federation.memory import Memory
from fedtopics.federation.run_folder import has_run
from fedtopics.federation.study_tables import read_rules
from fedtopics.federation.verify import verify
from fedtopics.methods.flda.labelled_pairs import read_pairs, write_pairs
from fedtopics.model.labels import read_labels
from fedtopics.model.search import read_terms
from fedtopics.report.run import LedgerFacts
from fedtopics.text.corpus import column_of
from fedtopics.text.growing import Follow
from tests.helpers.damage import full_disk
from tests.helpers.labelled_pairs import MIRRORED
from tests.helpers.models import made
from tests.helpers.private import open_to_others

READERS: dict[str, Callable[[Path], Any]] = {
    "text": files.read_text,
    "bytes": files.read_bytes,
    "toml": files.read_toml,
    "lines": files.cut_torn_line,
    "rows": files.RowFile,
    "open": files.open_file,
    "use": files.is_used,
    "study": Study.read,
    "policy": Policy.read,
    "rules": read_rules,
    "documents": Corpus.read,
    "terms": read_terms,
    "pairs": read_pairs,
    "labels": lambda path: read_labels(path, 2),
    "private": lambda path: files.open_private(path, "a"),
    "write": lambda path: files.write_durably(path, b""),
    "table": lambda path: column_of(path, "text"),
    "ledger": LedgerFacts.read,
    "follow": lambda path: Follow(path, Columns(), print),
    "memory": Memory.read,
    "seeds": lambda path: NMF(2, seed_topics=path).fit(["oak elm", "elm"]),
}


@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_refused(name: str, tmp_path: Path) -> None:
    """Nobody writes to the pipe, so who opens it waits for ever."""
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero")):
        with pytest.raises(InputError, match=re.escape(str(path))):
            READERS[name](path)


def test_pipes_in_folders_are_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "config.json", "events.jsonl", "ledger.jsonl"):
        os.mkfifo(tmp_path / name)
    readers: list[tuple[Callable[[Path], object], type[Exception], str]] = [
        (Corpus.read, InputError, r"a\.txt is a pipe, a socket or a device; give a regular"),
        (TopicModel.from_pretrained, ModelError, "There is no model in"),
        (has_run, InputError, r"events\.jsonl is a pipe"),
        (lambda folder: list(verify(folder)), InputError, r"ledger\.jsonl is a pipe"),
    ]
    for reader, error, message in readers:
        with pytest.raises(error, match=message):
            reader(tmp_path)


def test_the_package_opens_files_by_one_module() -> None:
    house = Path(fedtopics.__file__).parent
    unchecked = re.compile(
        r"(?<!\bfiles)\.read_(text|bytes)\(|(?<![\w.])open\(path|\.open\((\"r|encoding|\))"
    )
    unchecked_lines = {
        f"{path.relative_to(house).as_posix()}: {line.strip()}"
        for path in house.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if path != house / "files.py" and unchecked.search(line)
    }
    assert unchecked_lines == set()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"one\ntwo\n", b"one\ntwo\n"),
        (b"one\ntw", b"one\n"),
        (b"tw", b""),
        (b"one\n" + b"x" * (files.TAIL + 5), b"one\n"),
        (b"x" * files.TAIL + b"\nhalf", b"x" * files.TAIL + b"\n"),
    ],
)
def test_a_half_line_is_cut(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "lines"
    path.write_bytes(before)
    files.cut_torn_line(path)
    assert path.read_bytes() == after


def test_two_writers_of_one_file_have_their_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a[1]"
    for name, when in (("0123abcd", 0.0), ("4567cdef", time.time())):  # killed; still writing
        path.with_name(f"a[1].{name}.tmp").touch()
        os.utime(path.with_name(f"a[1].{name}.tmp"), (when, when))
    fsync = os.fsync

    def other_writer(handle: int) -> None:
        monkeypatch.setattr(os, "fsync", fsync)
        files.write_durably(path, b"other")
        assert path.read_bytes() == b"other"

    monkeypatch.setattr(os, "fsync", other_writer)
    files.write_durably(path, b"one")
    assert path.read_bytes() == b"one"
    assert {entry.name for entry in tmp_path.iterdir()} == {"a[1]", "a[1].4567cdef.tmp"}


def test_a_model_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with files.replacing(tmp_path), pytest.raises(RunError, match="Another process uses"):
        made(labels={1: "other"}).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write_durably(path, b"two"),
        lambda path: write_pairs(path, MIRRORED),
    ],
    ids=["bytes", "pairs"],
)
def test_a_full_disk_leaves_the_older_file(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    files.write_durably(path, b"one")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write(path)
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.write_durably(tmp_path / "a", b"one")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The umask takes nothing away: what is private is so on purpose."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_files_and_folders_are_for_their_owner_alone_unless_they_are_public(tmp_path: Path) -> None:
    files.write_durably(tmp_path / "new", b"one")
    files.create(tmp_path / "created", b"one")
    files.open_private(tmp_path / "opened", "w").close()
    files.make_folder(tmp_path / "a" / "b")
    source = tmp_path / "a"
    (source / "b" / "loose").write_text("two")
    files.copy_folder(source, tmp_path / "copied" / "here")
    assert (tmp_path / "copied/here/b/loose").read_text() == "two"
    files.write_durably(tmp_path / "public", b"one", public=True)
    (source / "b" / "loose").unlink()
    assert open_to_others(tmp_path) == ["public"]


def test_what_is_there_is_not_created_again(tmp_path: Path) -> None:
    files.create(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"


@pytest.mark.parametrize("line", [b"{", b"3", b"null", b"\xff\xfe", b"[" * 100_000, b""])
def test_a_damaged_row(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"n": 1}\n' + line + b'\n{"n": 2}\n')
    with pytest.raises(RunError, match=r"rows\.jsonl is damaged; remove the line"):
        files.RowFile(path)


def test_a_task_with_a_row_is_not_done_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    events = []
    done = []

    def work(task: int) -> dict[str, int]:
        done.append(task)
        return {"square": task**2}

    for tasks in ([2, 3], [3, 4]):
        files.RowFile(path).fill(
            tasks, lambda n: {"n": n}, work, lambda n: f"task {n}", events.append
        )
        with path.open("a", encoding="utf-8") as file:
            file.write('{"n": 5, "squ')  # as a crash leaves it
    assert done == [2, 3, 4]
    assert [event["name"] for event in events] == ["task 2", "task 3", "", "task 4", ""]
    assert [(event["done"], event["models"]) for event in events[3:]] == [(0, 1), (1, 1)]
    assert files.RowFile(path).find({"n": 4}) == {"n": 4, "square": 16}
    assert files.RowFile(path).find({"n": 5}) is None


def test_rows_are_strict_json(tmp_path: Path) -> None:
    written = files.RowFile(tmp_path / "rows.jsonl").keep(
        {"a": float("nan"), "b": float("-inf"), "c": 0.5}
    )
    assert written == {"a": None, "b": None, "c": 0.5}
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == written


@pytest.mark.parametrize("text", ["a = " + 5000 * "[", "a = " + 5000 * "1", "a", "\0"])
def test_hostile_toml_is_a_value_error(tmp_path: Path, text: str) -> None:
    """And no RecursionError, which a command would call a defect of its own."""
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError):
        files.read_toml(tmp_path / "a.toml")


def test_toml_of_an_editor_that_marks_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("a = 1\n", encoding="utf-8-sig")
    assert files.read_toml(tmp_path / "a.toml") == {"a": 1}
    (tmp_path / "a.toml").write_text("a = 1\n# Köln\n", encoding="latin-1")
    with pytest.raises(ValueError, match="line 2 is not UTF-8; save the file as UTF-8"):
        files.read_toml(tmp_path / "a.toml")


def test_a_digest_has_all_bits_and_is_shortened_for_people_alone() -> None:
    assert files.shortened(files.digest("tea")) == files.digest("tea")[:16]
    assert files.digest("tea") == hashlib.sha256(b"tea").hexdigest()


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with files.hold(tmp_path / "new"), pytest.raises(RunError, match="Another process uses"):
        files.hold(tmp_path / "new")
    files.hold(tmp_path / "new").close()
