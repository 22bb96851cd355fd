"""A run's folder between machines: which run it is of, and what is left of another one."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from fedtopics.errors import RunError
from fedtopics.federation.replicated_run import RUN, ReplicatedRun, begin, run_to_resume
from fedtopics.methods.base import Checkpoint


class At:
    index, turn = 7, 3
    settled: ClassVar[dict[str, bytes]] = {}

    @staticmethod
    def digest() -> bytes:
        return b"d" * 32


def opened(folder: Path, resumed: bool = False) -> ReplicatedRun:
    return ReplicatedRun(folder, "s" * 16, 1, resumed)


def test_a_new_run_has_a_place_for_its_checkpoints(tmp_path: Path) -> None:
    run = opened(tmp_path)
    begin(tmp_path)
    run.progress = At()
    list(run.rounds(0, 0))
    run.checkpoint(Checkpoint(5, {"weights": np.ones(3)}, {"loss": 1.0}))
    run.close()
    position = opened(tmp_path, resumed=True).position()
    assert (position.index, position.turn, position.digest) == (7, 3, b"d" * 32)


def test_another_run_leaves_nothing(tmp_path: Path) -> None:
    first = begin(tmp_path)
    (tmp_path / "events.jsonl").touch()
    assert run_to_resume(tmp_path) == first == begin(tmp_path, first)
    assert (tmp_path / "events.jsonl").exists()
    assert begin(tmp_path) != first
    assert not (tmp_path / "events.jsonl").exists()


def test_a_damaged_name_of_a_run_deletes_nothing(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / RUN).write_bytes(b"{")
    with pytest.raises(RunError, match=r"run.json is missing or damaged"):
        run_to_resume(tmp_path)
