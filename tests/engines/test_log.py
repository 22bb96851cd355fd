from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from fedtopics.engines import disk_log
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.log import Entry, Log
from fedtopics.errors import RunError

ORIGIN = b"study and run"
ENTRIES = [Entry("members", b"abc"), Entry("total", b""), Entry("total", bytes(range(256)))]


def contents(log: Log) -> list[bytes]:
    return [log.entry(index).content for index in range(log.base + 1, log.last + 1)]


def last_segment(folder: Path) -> Path:
    """Return the last file that holds more than a head."""
    return [path for path in sorted(folder.glob("*.log")) if path.stat().st_size > 200][-1]


@pytest.fixture(params=["memory", "disk"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Log:
    return Log(ORIGIN) if request.param == "memory" else DiskLog(tmp_path, ORIGIN)


def test_digests_are_a_chain(log: Log) -> None:
    log.append(ENTRIES[:2])
    log.append(ENTRIES[2:])
    expected = sha256(ORIGIN).digest()
    for index, entry in enumerate(ENTRIES, 1):
        content = sha256(entry.content).digest()
        expected = sha256(expected + entry.kind.encode() + content).digest()
        assert log.digest(index) == expected
        assert log.entry(index) == entry
        assert log.size(index) == len(entry.content)
    with pytest.raises(IndexError):
        log.entry(4)


def test_what_is_committed_is_not_dropped(log: Log) -> None:
    log.append(ENTRIES)
    log.committed = 2
    log.truncate(2)
    assert log.last == 2
    with pytest.raises(IndexError):
        log.truncate(1)
    with pytest.raises(IndexError):
        log.cut(4)
    log.append(ENTRIES[:1])
    assert contents(log) == [b"abc", b"", b"abc"]


def test_a_state_takes_the_place_of_entries(log: Log) -> None:
    log.append(ENTRIES)
    log.reset(7, b"digest of seven".ljust(32))
    assert (log.base, log.last, log.committed) == (7, 7, 7)
    log.append(ENTRIES[:1])
    assert log.entry(8) == ENTRIES[0]


def test_opened_anew(tmp_path: Path) -> None:
    log = DiskLog(tmp_path, ORIGIN)
    log.append(ENTRIES)
    log.committed = 2
    log.keep(5, 4, doubtful=False)
    log.truncate(2)
    log.append([Entry("total", b"other")])
    digest = log.digest(3)
    log.close()
    for _ in range(2):
        log = DiskLog(tmp_path, ORIGIN)
        assert (log.view, log.normal, log.committed, log.last, log.doubtful) == (5, 4, 2, 3, False)
        assert log.digest(3) == digest
        assert contents(log) == [b"abc", b"", b"other"]
        log.close()
    log = DiskLog(tmp_path, ORIGIN)
    log.reset(9, digest)
    log.append(ENTRIES[:1])
    log.close()
    log = DiskLog(tmp_path, ORIGIN)
    assert (log.base, log.view, contents(log)) == (9, 5, [b"abc"])


@pytest.mark.parametrize("missing", [1, 100, 255, 256, 300, 340])
def test_half_an_entry_is_cut(tmp_path: Path, missing: int) -> None:
    log = DiskLog(tmp_path, ORIGIN)
    assert log.doubtful  # there may have been one
    log.keep(0, 0, doubtful=False)
    log.append(ENTRIES[:2])
    log.append(ENTRIES[2:])
    log.close()
    path = last_segment(tmp_path)
    os.truncate(path, path.stat().st_size - missing)
    log = DiskLog(tmp_path, ORIGIN)
    assert (contents(log), log.doubtful) == ([b"abc", b""], False)
    log.append(ENTRIES[:1])
    log.close()
    assert contents(DiskLog(tmp_path, ORIGIN)) == [b"abc", b"", b"abc"]


@pytest.mark.parametrize("place", [-1, -257, -300])
def test_damage_leaves_a_doubt(tmp_path: Path, place: int) -> None:
    log = DiskLog(tmp_path, ORIGIN)
    log.append(ENTRIES)
    log.close()
    path = last_segment(tmp_path)
    written = bytearray(path.read_bytes())
    written[place] ^= 1
    path.write_bytes(written)
    log = DiskLog(tmp_path, ORIGIN)
    assert (log.last, log.doubtful) == (2, True)
    log.close()
    log = DiskLog(tmp_path, ORIGIN)  # the doubt stays until the replica has recovered
    assert log.doubtful
    log.keep(1, 1, doubtful=False)
    log.close()
    assert not DiskLog(tmp_path, ORIGIN).doubtful


def test_damage_found_when_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_log, "RECENT_BYTES", 1)
    log = DiskLog(tmp_path, ORIGIN)
    log.append([ENTRIES[2], ENTRIES[0]])
    path = last_segment(tmp_path)
    path.write_bytes(path.read_bytes().replace(bytes(range(256)), bytes(256)))
    with pytest.raises(RunError, match="Entry 1 of the log"):
        log.entry(1)


def test_power_failure_of_a_log_that_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DiskLog(tmp_path, ORIGIN, sync=False)
    log.keep(0, 0, doubtful=False)
    log.append(ENTRIES)
    log.close()
    log = DiskLog(tmp_path, ORIGIN, sync=False)
    assert not log.doubtful  # the process alone ended
    log.close()
    monkeypatch.setattr(disk_log, "_boot", lambda: bytes(range(16)))
    log = DiskLog(tmp_path, ORIGIN, sync=False)
    assert log.doubtful
    assert contents(log) == [entry.content for entry in ENTRIES]


def test_segments_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_log, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(disk_log, "RECENT_BYTES", 600)
    log = DiskLog(tmp_path, ORIGIN)
    for _ in range(20):
        log.append(ENTRIES[2:])
    assert len(log._recent) == 2
    files = len(list(tmp_path.glob("*.log")))
    log.committed = 15
    log.cut(12)
    assert 0 < log.base < 12
    assert len(list(tmp_path.glob("*.log"))) < files
    base, digests = log.base, [log.digest(index) for index in range(log.base, 21)]
    log.keep(0, 0, doubtful=False)
    log.close()
    log = DiskLog(tmp_path, ORIGIN)
    assert (log.base, log.last, log.committed) == (base, 20, 15)
    assert [log.digest(index) for index in range(log.base, 21)] == digests
    assert contents(log) == [ENTRIES[2].content] * (20 - base)


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DiskLog(tmp_path, ORIGIN)
    log.append(ENTRIES[:2])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        log.append(ENTRIES[2:])
    assert log.last == 2
    monkeypatch.undo()
    assert contents(DiskLog(tmp_path, ORIGIN)) == [b"abc", b""]


def test_another_run(tmp_path: Path) -> None:
    DiskLog(tmp_path, ORIGIN).close()
    with pytest.raises(RunError, match="not of this study and run"):
        DiskLog(tmp_path, b"another")
