"""The run folder of a participant between machines: checkpoints say which decisions they hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from fedtopics.engines.exchange import Exchange
from fedtopics.engines.log_messages import State
from fedtopics.engines.node import CaughtUpError, Node
from fedtopics.engines.states import digest_of, majority, read, written
from fedtopics.engines.values import dumps, loads
from fedtopics.errors import FedTopicsError, RunError
from fedtopics.federation.run_folder import RunFolder
from fedtopics.files import make_folder, read_bytes, read_text, write_durably
from fedtopics.methods.core.events import CaughtUp
from fedtopics.methods.core.interfaces import Checkpoint

DIGEST = "decisions"  # array of a checkpoint: the digest of the decisions it holds
INDEX, TURN = "decisions", "turns"  # numbers of a checkpoint
RANGE = "range of "  # begins the name of such a number
RUN, SIGNED = "run.json", "signed-state"


class Signed(TypedDict):
    """A state that most have signed, and what they agreed on before the first round."""

    state: dict[str, Any]
    kept: np.ndarray
    signatures: dict[str, bytes]
    certificates: dict[str, bytes]
    index: int
    turn: int
    digest: bytes


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

    progress: Exchange  # how far the program has come
    forget: Callable[[int], None] = staticmethod(lambda _: None)  # decisions before an index
    _signed = 0  # index of the last state that most have signed

    @cached_property
    def ranges(self) -> dict[str, float]:
        """Those of numbers in masked sums: as they were at the checkpoint, then as they become."""
        saved = super().restore()
        numbers = {} if saved is None else saved.numbers
        return {n.removeprefix(RANGE): r for n, r in numbers.items() if n.startswith(RANGE)}

    def position(self) -> Position:
        """Return where a resumed run goes on; a RunError if what it has kept is of no use."""
        saved = super().restore()
        if saved is None:
            return Position()
        self.recall("agreement")
        try:
            digest, numbers = saved.arrays[DIGEST].tobytes(), saved.numbers
            return Position(int(numbers[INDEX]), int(numbers[TURN]), digest)
        except (LookupError, ValueError):
            raise RunError(
                f"The checkpoints in {self.folder} are of no run between machines; begin a new run."
            ) from None

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

    def kept(self) -> bytes:
        """Return what was agreed before the first round, as it was kept."""
        path = Path(self.folder or "") / "agreement.json"
        return read_bytes(path) if path.exists() else b""

    def due(self, round_: int) -> bool:
        """As of `RunFolder`; and whenever most have signed the state."""
        return bool(self.progress.settled) or super().due(round_)

    def checkpoint(self, state: Checkpoint) -> None:
        """As of `RunFolder`, with the position; a state that most have signed is kept for others.

        Decisions before the signed state before this one are not needed any more.
        """
        index, turn = self.progress.index, self.progress.turn
        digest = np.frombuffer(self.progress.digest(), np.uint8)
        ranges = {f"{RANGE}{name}": range_ for name, range_ in self.ranges.items()}
        numbers: Mapping[str, float] = {**state.numbers, **ranges, INDEX: index, TURN: turn}
        super().checkpoint(Checkpoint(state.round, {**state.arrays, DIGEST: digest}, numbers))
        if self.folder is None or not self.progress.settled:
            return
        signed = {
            "state": written(state), "kept": np.frombuffer(self.kept(), np.uint8),
            "signatures": self.progress.settled, "certificates": self.progress.certificates,
            "index": index, "turn": turn, "digest": digest.tobytes(),
        }  # fmt: skip
        with suppress(OSError):  # the one before stays
            write_durably(self.folder / SIGNED, dumps(signed))
            before, self._signed = self._signed, index
            if before:
                self.forget(before)

    def snapshot(self) -> State | None:
        """Return the last state that most have signed, for who lacks the decisions before it."""
        path = Path(self.folder or "") / SIGNED
        if not path.exists():
            return None
        content = read_bytes(path)
        try:
            signed: Signed = loads(content, of=Signed)
            return State(signed["index"], signed["digest"], content)
        except FedTopicsError:  # damaged: as if it had none
            return None

    def install(self, content: bytes, node: Node) -> bool:
        """Take a state that most have signed, in place of decisions; False if it is none."""
        try:
            signed: Signed = loads(content, of=Signed)
            state, kept = read(signed["state"]), signed["kept"].tobytes()
            node.introduction.learn(signed["certificates"])  # who is new has seen nobody's
            digest = digest_of(state, kept, signed["turn"])
            names = signed["signatures"]
            known = node.introduction.has_signed_state
            fits = [n in node.members and known(n, digest, said) for n, said in names.items()]
        except FedTopicsError:
            return False
        if self.folder is None or not all(fits) or len(fits) < majority(node):
            return False
        write_durably(self.folder / "agreement.json", kept)
        arrays = {**state.arrays, DIGEST: np.frombuffer(signed["digest"], np.uint8)}
        numbers = {**state.numbers, INDEX: signed["index"], TURN: signed["turn"]}
        super().checkpoint(Checkpoint(state.round, arrays, numbers))
        self.open_events()
        self.event(CaughtUp(state.round))
        node.go_on_from(CaughtUpError("A state has come in place of decisions."))
        return True


def run_of(folder: Path) -> bytes | None:
    """Return which run a folder is of."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        return bytes.fromhex(json.loads(read_text(folder / RUN))["run"])
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
        for name in ("events.jsonl", "agreement.json", SIGNED):
            (folder / name).unlink(missing_ok=True)
        for name in ("checkpoints", "log"):
            shutil.rmtree(folder / name, ignore_errors=True)
    chosen = run or os.urandom(16)
    make_folder(folder / "checkpoints")
    write_durably(folder / RUN, json.dumps({"run": chosen.hex()}).encode())
    return chosen
