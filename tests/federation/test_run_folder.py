"""A run's folder: checkpoints, events, and going on after an interruption."""

import hashlib
import io
import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load, save

from fedtopics import TopicModel, waiting
from fedtopics.contract.events import Finished, RoundEnded
from fedtopics.contract.interfaces import Checkpoint
from fedtopics.errors import RunError
from fedtopics.federation import progress
from fedtopics.federation.progress import ProgressDisplay
from fedtopics.federation.run_folder import RunFolder
from tests.helpers.damage import damages, full_disk
from tests.helpers.models import made

ARRAYS = {
    "weights": np.array([[1.5, -0.0], [np.inf, np.nan]], np.float32),
    "exact": np.array([1 / 3, 1e-300]),
    "count": np.array([2**40], np.int64),
    "step": np.array(7.0, np.float32),  # no dimension, as Adam's step counts
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "nothing": np.zeros((0, 3), np.float32),
}


def state(round_: int, **numbers: float) -> Checkpoint:
    return Checkpoint(round_, {"x": np.array([float(round_)])}, numbers)


def finished(folder: Path, *rounds: int) -> Path:
    """A run that left checkpoints after these rounds; return the newest one's file."""
    with closing(RunFolder(folder, "study1")) as run:
        for round_ in run.rounds(0, rounds[-1]):
            if round_ in rounds:
                run.checkpoint(state(round_))
    return folder / "checkpoints" / f"{rounds[-1]:08d}.safetensors"


def restored(folder: Path) -> Checkpoint:
    with closing(RunFolder(folder, "study1", resume=True)) as run:
        back = run.restore()
    assert back is not None
    return back


def test_labels_stay_when_a_model_is_written_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path, "study1")
    model = made(labels={})
    assert run.save(model).labels == {}
    file = tmp_path / "model/topics.json"
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([{**row, "label": f"no. {row['topic']}"} for row in rows]))
    labels = {k: f"no. {k}" for k in range(3)}
    assert run.save(made(labels={1: "of the run"})).labels == labels
    assert TopicModel.from_pretrained(tmp_path / "model").labels == labels
    # What nobody has confirmed stays marked.
    bare = TopicModel.from_pretrained(tmp_path / "model").with_labels(dict.fromkeys(range(3), ""))
    bare.with_suggested_labels().save_pretrained(tmp_path / "model")
    assert run.save(model).unconfirmed == {0, 1, 2}
    # Other topics have none of them; nor has a model that was written by half.
    others = made(labels={}, weights={"pseudo_counts": model.weights["pseudo_counts"] + 1})
    assert run.save(others).labels == {}
    assert TopicModel.from_pretrained(tmp_path / "model").labels == {}
    (tmp_path / "model/model.safetensors").write_bytes(b"")
    assert run.save(model).labels == {}
    assert RunFolder(None, "study1").save(model) is model


def bits(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def test_checkpoint_comes_back_to_the_bit(tmp_path: Path) -> None:
    numbers = {"best_loss": float("inf"), "waited": 3, "third": 1 / 3}
    with closing(RunFolder(tmp_path, "study1")) as run:
        next(run.rounds(11, 12))
        run.checkpoint(Checkpoint(12, ARRAYS, numbers))
    back = restored(tmp_path)
    assert (back.round, back.numbers) == (12, numbers)
    assert bits(back.arrays) == bits(ARRAYS)


def test_the_last_two_stay_and_the_newest_is_taken(tmp_path: Path) -> None:
    finished(tmp_path, 1, 9, 10, 100)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        "00000010.safetensors",
        "00000010.sha256",
        "00000100.safetensors",
        "00000100.sha256",
    ]
    back = restored(tmp_path)
    assert (back.round, back.arrays["x"].tolist()) == (100, [100.0])


def test_a_checkpoint_not_fully_written_is_passed_over_and_a_lost_one_noticed(
    tmp_path: Path,
) -> None:
    path = finished(tmp_path, 1, 2)
    path.with_name("00000003.safetensors").write_bytes(b"half")
    path.with_name("00000003.sha256.tmp").write_bytes(b"half")
    assert restored(tmp_path).round == 2
    path.unlink()
    with pytest.raises(RunError, match=r"00000002\.safetensors is damaged"):
        restored(tmp_path)


def test_a_run_is_gone_on_with_by_its_study_alone_and_never_overwritten(tmp_path: Path) -> None:
    finished(tmp_path, 1)
    with pytest.raises(RunError, match="is of study study1, but this is study study2; resume with"):
        RunFolder(tmp_path, "study2", resume=True)
    with pytest.raises(RunError, match=r"There is a run in .* already; resume it with --resume"):
        RunFolder(tmp_path, "study1")
    assert len((tmp_path / "events.jsonl").read_text().splitlines()) == 2
    with pytest.raises(RunError, match=r"There is no run in .*none to resume; leave out --resume"):
        RunFolder(tmp_path / "none", "study1", resume=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("line", ["", "{", "{}", "[]", "3"])
def test_damaged_events(tmp_path: Path, line: str) -> None:
    (tmp_path / "events.jsonl").write_text(line + "\n")
    with pytest.raises(RunError, match=r"The first line of .*events\.jsonl is damaged"):
        RunFolder(tmp_path, "study1", resume=True)


def test_an_event_of_infinite_numbers_is_a_defect_and_not_written(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with closing(RunFolder(tmp_path, "study1", on_event=seen.append)) as run:
        for loss in (math.inf, math.nan):
            with pytest.raises(ValueError, match="JSON compliant"):
                run.event(RoundEnded(4, {"loss": loss}, {}))
    assert [
        json.loads(line)["event"] for line in (tmp_path / "before.jsonl").read_text().splitlines()
    ] == ["started"]
    assert len(seen) == 1


def test_events(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    with closing(RunFolder(tmp_path / "deep" / "run", "study1", on_event=seen.append)) as run:
        assert list(run.rounds(2, 4)) == [3, 4]
        run.event(RoundEnded(4, {"loss": 1.5}, {}))
    RunFolder(tmp_path / "deep" / "run", "study1", resume=True, on_event=seen.append).close()
    events = [
        json.loads(line)
        for line in (tmp_path / "deep" / "run" / "events.jsonl").read_text().splitlines()
    ]
    assert events == seen
    assert events[3].pop("begun") == events[0]["time"]
    assert all(event.pop("time") > 1.7e9 and event.pop("seconds") >= 0 for event in events)
    assert events == [
        {"event": "started", "study": "study1"},
        {"event": "training", "done": 2, "rounds": 4},
        {"event": "round", "round": 4, "loss": 1.5},
        {"event": "resumed", "study": "study1"},
    ]


def test_no_folder_nothing_written(here: Path) -> None:
    seen: list[dict[str, Any]] = []
    with closing(
        RunFolder(None, "study1", checkpoint_every=1, resume=True, on_event=seen.append)
    ) as run:
        assert not run.due(1)
        run.checkpoint(state(1))
        assert (run.restore(), list(run.rounds(0, 2))) == (None, [1, 2])
        run.event(Finished())
    assert [event["event"] for event in seen] == ["training", "finished"]
    assert list(here.iterdir()) == []


AGREED = {
    "words": ["oak", "Ähre", "🌳"],
    "total": 2**60,
    "share": 1 / 3,
    "none": None,
    "deep": [{}],
}


def test_what_was_kept_is_recalled_by_a_resumed_run(tmp_path: Path) -> None:
    with closing(RunFolder(tmp_path, "study1")) as run:
        assert run.recall("agreement") is None
        run.keep("agreement", AGREED)
        assert run.recall("agreement") is None, "a new run agrees anew"
        next(run.rounds(0, 1))
    with closing(RunFolder(tmp_path, "study1", resume=True)) as again:
        assert (again.recall("agreement"), again.recall("other")) == (AGREED, None)
        again.keep("agreement", {"words": []})
        assert again.recall("agreement") == {"words": []}
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"words": ["oa',
        b"\xff\xfe",
        b"[]",
        b"null",
        b"3",
        b"{}",
        b'{"sha256": ""}',
        b'{"words": ["oak"]}',
        b'{"words": ["oak"], "sha256": 7}',
        b"[" * 100_000,
    ],
)
def test_damaged_agreements(tmp_path: Path, content: bytes) -> None:
    finished(tmp_path, 1)
    (tmp_path / "agreement.json").write_bytes(content)
    damaged = pytest.raises(RunError, match=r"agreement\.json is damaged; start a new run\.$")
    with closing(RunFolder(tmp_path, "study1", resume=True)) as run, damaged:
        run.recall("agreement")


def test_an_agreement_of_another_study_or_changed_by_hand(tmp_path: Path) -> None:
    file = finished(tmp_path / "a", 1).parents[1] / "agreement.json"
    for study, words in (("study2", ["oak"]), ("study1", ["elm"])):
        with closing(RunFolder(tmp_path / study, study)) as run:
            run.keep("agreement", {"words": ["oak"]})
        agreement = json.loads((tmp_path / study / "agreement.json").read_text())
        file.write_text(json.dumps(agreement | {"words": words}))
        damaged = pytest.raises(RunError, match=r"agreement\.json is damaged")
        with closing(RunFolder(tmp_path / "a", "study1", resume=True)) as again, damaged:
            again.recall("agreement")


def rewritten(path: Path, **meta: str) -> None:
    """Change what a checkpoint says of itself, and its digest with it."""
    data = path.read_bytes()
    before = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    data = save(load(data), metadata=before | meta)
    path.write_bytes(data)
    path.with_suffix(".sha256").write_text(hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "meta",
    [
        {"study": "study2"},
        {"round": "3"},
        {"round": "x"},
        {"numbers": "[]"},
        {"numbers": "{"},
        {"numbers": '{"loss": "x"}'},
        {"numbers": '{"loss": [1]}'},
    ],
)
def test_a_checkpoint_that_says_something_else(tmp_path: Path, meta: dict[str, str]) -> None:
    rewritten(finished(tmp_path, 1, 2), **meta)
    with pytest.raises(RunError, match=r"00000002\.safetensors is damaged, or of another study;"):
        restored(tmp_path)


@pytest.mark.parametrize("suffix", [".safetensors", ".sha256"])
def test_a_checkpoint_with_any_flipped_byte_or_cut_anywhere(tmp_path: Path, suffix: str) -> None:
    path = finished(tmp_path, 1, 2).with_suffix(suffix)
    whole = path.read_bytes()
    for damaged in damages(whole, 150):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="is damaged, or of another study; delete it and"):
            restored(tmp_path)
    path.write_bytes(whole)
    assert restored(tmp_path).round == 2


def test_full_disks_keep_old_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    run = RunFolder(tmp_path, "study1", on_event=seen.append)
    list(run.rounds(0, 5))
    run.checkpoint(state(1))
    run.checkpoint(state(2))

    def kept() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "checkpoints").iterdir()}

    before = kept()
    assert len(before) == 4
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        run.checkpoint(state(3))
        run.checkpoint(state(4))
        assert kept() == before
    assert [(e["round"], e["reason"]) for e in seen if e["event"] == "checkpoint failed"] == [
        (3, "No space left on device"),
        (4, "No space left on device"),
    ]
    assert restored(tmp_path).round == 2

    run.checkpoint(state(5))
    run.close()
    assert restored(tmp_path).round == 5


def test_a_failed_checkpoint_is_due_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    run = RunFolder(tmp_path, "study1", checkpoint_every=1000)
    list(run.rounds(0, 9))
    assert [round_ for round_ in (1, 999, 1000, 2000) if run.due(round_)] == [1000, 2000]
    clock += waiting.UNSAVED
    assert not run.due(1)
    clock += 0.1
    assert run.due(1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        run.checkpoint(state(1))
    assert run.due(2)
    run.checkpoint(state(2))
    assert not run.due(3)
    clock += waiting.UNSAVED + 0.1
    assert run.due(3)
    run.close()
    assert not RunFolder(None, "study1").due(1000), "there is nowhere to write"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_events_survive_a_full_disk(tmp_path: Path) -> None:
    """The run goes on however long; once there is room, every line is there, in order."""
    run = RunFolder(tmp_path, "study1")
    list(run.rounds(0, 9))
    assert run._events is not None
    handle = run._events.fileno()
    room = os.dup(handle)
    always_full = os.open("/dev/full", os.O_WRONLY)
    for first, last in ((2, 300), (301, 302)):
        run.event(RoundEnded(first - 1, {}, {}))
        os.dup2(always_full, handle)
        for number in range(first, last):
            run.event(RoundEnded(number, {}, {"clients": ["x" * 100]}))
        os.dup2(room, handle)
    run.close()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines if line["event"] == "round"] == [*range(1, 302)]
    os.close(room)
    os.close(always_full)


TRAINING = {"event": "training", "done": 0, "rounds": 10}


class Shown:
    """A run's progress on a screen, by a clock that stands still, and the lines of its log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, terminal: bool = False) -> None:
        self.now = 1000.0
        self.lines = list[str]()
        self.screen = io.StringIO()
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        how: dict[str, Any] = {"force_terminal": terminal, "get_time": lambda: self.now}
        self.progress = ProgressDisplay(
            Console(file=self.screen, width=100, **how), self.lines.append
        )

    def rounds(self, first: int, last: int, seconds: float, **more: Any) -> None:
        for number in range(first, last + 1):
            self.now += seconds
            self.progress({"event": "round", "round": number} | more)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(monkeypatch)


def test_what_events_say(shown: Shown) -> None:
    shown.progress({"event": "vocabulary", "words": 3})
    for done in (5, 10):
        shown.progress({"event": "embedding", "client": "a", "done": done, "documents": 20})
        shown.now += 1
    assert str(shown.progress) == "embedding a 10 of 20"
    shown.progress(TRAINING)
    assert str(shown.progress) == "round 0 of 10"
    shown.rounds(1, 3, 2.0, loss=4.126)
    assert str(shown.progress) == "round 3 of 10, loss 4.13, 14 s left"
    shown.rounds(4, 10, 2.0)
    assert str(shown.progress) == "round 10 of 10"


def test_no_time_is_left_after_a_stop(shown: Shown) -> None:
    shown.progress(TRAINING)
    shown.rounds(1, 2, 2.0)
    shown.progress({"event": "stopped", "round": 2, "reason": "no topic changed"})
    assert str(shown.progress) == "round 2 of 2"


def test_time_left_is_of_this_process(shown: Shown) -> None:
    """Rounds of before an interruption took it no time."""
    shown.progress({"event": "training", "done": 5, "rounds": 10})
    shown.rounds(6, 7, 200.0)
    assert str(shown.progress) == "round 7 of 10, 10 min left"


def test_a_log_has_a_line_a_minute(shown: Shown) -> None:
    with shown.progress as running:
        running(TRAINING)
        shown.rounds(1, 9, 20.0)
    assert [line.partition(",")[0] for line in shown.lines] == [
        "round 3 of 10",
        "round 6 of 10",
        "round 9 of 10",
    ]
    assert shown.screen.getvalue() == ""


def test_no_news_no_log(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    with shown.progress:
        pass
    assert shown.lines == []
    with ProgressDisplay(Console(file=shown.screen)) as running:
        running(TRAINING | {"rounds": 0})
    assert capsys.readouterr().err == "round 0 of 0\n"


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(monkeypatch, terminal=True)
    with shown.progress as running:
        running({"event": "embedding", "client": "[red]", "done": 1, "documents": 2})
        assert "[red]" in shown.screen.getvalue()
        running(TRAINING)
        shown.rounds(4, 4, 1.0, loss=2.5)
    assert "4/10" in shown.screen.getvalue()
    assert "loss 2.50" in shown.screen.getvalue()
    assert shown.lines == []
