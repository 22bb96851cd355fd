"""The run folder of a participant between machines: checkpoints say which decisions they hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedtopics.errors import RunError
from fedtopics.federation.run_folder import RunFolder
from fedtopics.files import write_durably
from fedtopics.methods.base import Checkpoint

DIGEST = "decisions"  # array of a checkpoint: the digest of the decisions it holds
INDEX, TURN = "decisions", "turns"  # numbers of a checkpoint
RUN = "run.json"


class Progress(Protocol):
    """How far a program has come."""

    index: int  # of the last decision it has taken
    turn: int

    def digest(self) -> bytes:
        """Return the digest of all decisions so far."""


@dataclass(frozen=True)
class Position:
    """The decisions that a checkpoint holds the result of."""

    index: int = 0
    turn: int = 0
    digest: bytes = b""


class ReplicatedRun(RunFolder):
    """A run folder whose program goes on behind a position in the log of decisions.

    What was agreed before the first checkpoint is not kept: the log has it, and all others do.
    """

    progress: Progress
    checkpointed: Callable[[int], None] = staticmethod(lambda _: None)  # with the index before last
    _indices: tuple[int, ...] = ()

    def position(self) -> Position:
        """Return where a resumed run goes on."""
        saved = super().restore()
        if saved is None:
            return Position()
        digest = saved.arrays[DIGEST].tobytes()
        return Position(int(saved.numbers[INDEX]), int(saved.numbers[TURN]), digest)

    def recall(self, name: str) -> dict[str, Any] | None:
        """As of `RunFolder`, of a run that has a checkpoint."""
        return None if super().restore() is None else super().recall(name)

    def restore(self) -> Checkpoint | None:
        """As of `RunFolder`."""
        saved = super().restore()
        if saved is None:
            return None
        arrays = {name: array for name, array in saved.arrays.items() if name != DIGEST}
        return replace(saved, arrays=arrays)

    def checkpoint(self, state: Checkpoint) -> None:
        """As of `RunFolder`, with the position."""
        index, turn = self.progress.index, self.progress.turn
        numbers: Mapping[str, float] = {**state.numbers, INDEX: index, TURN: turn}
        digest = np.frombuffer(self.progress.digest(), np.uint8)
        super().checkpoint(Checkpoint(state.round, {**state.arrays, DIGEST: digest}, numbers))
        self._indices = (*self._indices[-1:], index)
        self.checkpointed(self._indices[0])


def run_of(folder: Path) -> bytes | None:
    """Return which run a folder is of."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return bytes.fromhex(json.loads((folder / RUN).read_text(encoding="utf-8"))["run"])
    return None


def run_to_resume(folder: Path) -> bytes:
    """Return which run a folder is of that goes on; a RunError if it does not say so."""
    run = run_of(folder)
    if run is None:
        raise RunError(
            f"{folder / RUN} is missing or damaged, so nobody knows which run this is; restore it, "
            "or begin a new run in another folder."
        )
    return run


def begin(folder: Path, run: bytes | None = None) -> bytes:
    """Make a folder that of a run, by default a new one; what another run left there is removed."""
    before = run_of(folder)
    if run is None or before != run:
        for name in ("events.jsonl", "agreement.json"):
            (folder / name).unlink(missing_ok=True)
        for name in ("checkpoints", "log"):
            shutil.rmtree(folder / name, ignore_errors=True)
    chosen = run or os.urandom(16)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_durably(folder / RUN, json.dumps({"run": chosen.hex()}).encode())
    return chosen
