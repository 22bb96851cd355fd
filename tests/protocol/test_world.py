"""Many simulated runs, each with its faults; and mutants, which they must find."""

import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedtopics.protocol import record
from fedtopics.protocol.messages import Part, encode
from fedtopics.protocol.record import Folder, OpenedStep, Record
from tests.protocol.checks import ViolationError
from tests.protocol.disks import Disk
from tests.protocol.exhaustive import CASES, cached, explore
from tests.protocol.runs import KINDS, many, play

EACH = 18  # seeds: 504 together
CARRIED = 34  # seeds of each kind with files
# One that finds each mutant, and the check that fails.
FOUND_BY = {
    "streams not bound to the list": ("evil 1 quiet", 1, "c:"),
    "a second list": ("evil 1", 5, "d:"),
    "transcripts not compared": ("evil 0", 2, "f:"),
    "signatures not checked": ("evil 2", 3, "h:"),
    "another part after a restart": ("faults", 0, "d:"),
    "computed again after a restart": ("between", 2, "i:"),
    "a reply with the part": ("operator", 0, "f:"),
    "a bare tag": ("faults", 0, "e:"),
    "no tag": ("evil 0", 10, "b:"),
    "a transcript without the key": ("between", 0, "g:"),
    "a key that is not hedged": ("operator rng", 3, "a:"),
    "a stop for later processes": ("operator", 1, "i:"),
    "a dropped ask": ("powers", 28, "i:"),
    "a total forgotten": ("relay", 1, "i:"),
    "the relay's file not synced": ("powers", 3, "i:"),
    "a checkpoint before the record": ("powers", 69, "b:"),
    "record first": ("between", 54, "i:"),
    "record before content": ("between", 26, "i:"),
    "record not synced": ("faults", 0, "d:"),
    "totals not synced": ("between", 4, "i:"),
    "totals cut before the checkpoint": ("between", 55, "i:"),
    "the list not saved": ("evil 1", 3, "d:"),
    "words of one member listed": ("words", 1, "l:"),
    "marks not compared": ("words evil", 1, "l:"),
    "a part before its approval": ("files quiet", 0, "m:"),
    "a key not bound to its vector": ("files older", 27, "a:"),
    "a key drawn before its vector": ("files older", 27, "a:"),
    "a link that forgets": ("files quiet", 0, "i:"),
    "a file without the total": ("files", 0, "i:"),
    "older files": ("files", 0, "i:"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_goes_wrong(kind: str) -> None:
    assert many(kind, range(CARRIED if kind.startswith("files") else EACH))[1] == []


@pytest.mark.parametrize("mutant", FOUND_BY)
def test_mutants_are_found(mutant: str) -> None:
    kind, seed, check = FOUND_BY[mutant]
    play(kind, seed)
    with pytest.raises(ViolationError, match=check):
        play(kind, seed, mutant)


def test_a_seed_decides_everything() -> None:
    first, second = (play("all", 3)[1] for _ in range(2))
    assert (first.now, first.events, first.models) == (second.now, second.events, second.models)


def test_the_smallest_case_in_all_orders() -> None:
    """With kills it takes minutes: python -m tests.protocol.world --exhaustive."""
    with cached():
        assert explore(CASES["sum"], kills=0) == {"transitions": 6813, "states": 2550, "ends": 1}


def test_a_folder_is_written_in_that_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    order = list[str]()
    real = record.write_durably

    def write(path: Path, content: bytes) -> None:
        order.append(path.name)
        real(path, content)

    monkeypatch.setattr(record, "write_durably", write)
    monkeypatch.setattr(os, "fsync", lambda file: order.append("sync"))
    folder.save(Record(step=1), b"content")
    folder.close()
    assert [name for i, name in enumerate(order) if name != "sync" or i == 0] == [
        "sync",
        "content",
        "record",
    ]


def test_a_total_is_written_whole_where_the_disk_takes_a_part_of_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    entry = OpenedStep(0, "sum", [b"total" * 99])
    file = folder._totals
    folder._totals = SimpleNamespace(write=lambda content: file.write(content[:100]))
    folder.append(entry)
    folder._totals = file
    assert folder.load()[2] == [entry]
    folder.close()


def test_a_folder_has_what_the_disk_of_the_world_has(tmp_path: Path) -> None:
    r = random.Random(1)  # noqa: S311
    disk = Disk()
    folder = Folder(tmp_path)
    for step in range(60):
        part = Part(
            run=b"",
            step=step,
            transcript=b"",
            function="sum",
            kind="sum",
            layout=b"",
            name="ann",
            key=r.randbytes(9),
        )
        now = Record(step=step, group=r.randbytes(32), parts=[encode(part)])
        entry = OpenedStep(step, "sum", [r.randbytes(8)])
        content = r.choice([None, r.randbytes(5)])
        for storage in (disk, folder):
            storage.save(now, content)
            storage.append(entry)
            if step % 7 == 3:
                storage.cut()
        assert folder.load() == disk.load()
        if step % 5 == 4:  # a total is torn
            folder.close()
            disk.totals = disk.totals[:-3]
            with (tmp_path / "totals").open("rb+") as file:
                file.truncate(len(disk.totals))
            folder = Folder(tmp_path)
            assert folder.load() == disk.load()
    folder.close()
