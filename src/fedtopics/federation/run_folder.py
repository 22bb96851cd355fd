"""A run's folder: the study as used, checkpoints, events; and going on after an interruption.

A folder holds a run once training began: what failed before is simply tried again. Without a
folder, nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedtopics.errors import ModelError, RunError
from fedtopics.federation.study import Study
from fedtopics.files import (
    cut_torn_line,
    make_folder,
    open_file,
    open_private,
    read_bytes,
    read_text,
    show_use,
    write_durably,
)
from fedtopics.methods.core.events import (
    CaughtUp,
    CheckpointFailed,
    Continued,
    Described,
    Event,
    OnEvent,
    Resumed,
    RoundEnded,
    Started,
    TrainingStarted,
)
from fedtopics.methods.core.interfaces import Checkpoint
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.values import dumps, loads

EVENTS = "events.jsonl"
BEFORE = "before.jsonl"  # the events of what is no run yet, as training has not begun
DIGEST = "sha256"  # in what is kept
KEPT_CHECKPOINTS = 2
STEP, TURN = "steps", "turns"  # numbers of a member's checkpoint
LONGEST_UNSAVED = 60.0  # seconds


def require_no_other_study(folder: Path, ours: str) -> None:
    """Raise RunError if a folder has a study.toml that no run wrote: without a file of `ours`."""
    if (folder / "study.toml").exists() and not (folder / ours).exists():
        raise RunError(f"There is a study.toml of no run in {folder}; name another folder.")


def has_run(folder: Path) -> bool:
    """Whether a folder holds a run: half a line of events is what a full disk left of none."""
    events = folder / EVENTS
    if not events.exists():
        return False
    with open_file(events) as file:
        return bool(file.readline().endswith(b"\n"))


class StepCounts(Protocol):
    """How far a member's program has come."""

    @property
    def step(self) -> int:
        """Steps that are over."""

    @property
    def turn(self) -> int:
        """Rounds that have begun."""


class RunFolder:
    """One execution of the study with this fingerprint; without a folder, nothing is written.

    RunError if the folder is a file, has a run already, or none of this study to resume.
    """

    def __init__(
        self,
        folder: Path | None,
        study: str,
        checkpoint_every: int = 50,  # rounds
        resume: bool = False,
        on_event: OnEvent | None = None,
        pause: float = 0.0,  # seconds between two rounds
    ) -> None:
        self.folder = folder
        self._every = checkpoint_every
        self._resume = resume
        self._on_event = on_event
        self._pause = pause
        self._study = study
        self._events: FileIO | None = None
        self._unwritten = b""
        self._lock = threading.Lock()
        self._last = self._saved = time.perf_counter()
        if folder is not None:
            self._open(folder)

    def _open(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder} is a file; name a folder for the run.")
        events = folder / EVENTS
        if self._resume != has_run(folder):
            raise RunError(
                f"There is no run in {folder} to resume; leave out --resume." if self._resume else
                f"There is a run in {folder} already; go on with --resume, or name another folder."
            )  # fmt: skip
        require_no_other_study(folder, "checkpoints")
        make_folder(folder / "checkpoints")
        if self._resume:
            started = self._check_study(events)
            cut_torn_line(events)
            self._write_to(events)
            self.event(Resumed(self._study, started))
        else:
            events.unlink(missing_ok=True)
            self._write_to(folder / BEFORE, "wb")
            self.event(Started(self._study))

    def _write_to(self, path: Path, mode: str = "ab") -> None:
        self._events = open_private(path, mode, buffering=0)
        show_use(self._events)

    def _check_study(self, events: Path) -> float:
        """Refuse a run of another study; return when it began."""
        try:
            with open_file(events, "r", encoding="utf-8") as file:
                line = json.loads(file.readline())
            first, started = line["study"], float(line["time"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise RunError(f"The first line of {events} is damaged; begin a new run.") from None
        if first != self._study:
            raise RunError(
                f"The run in {self.folder} is of study {first}, this is study {self._study}; "
                "resume with the study.toml in the run's folder, and with the model that it began "
                "with, if with one."
            )
        return started

    def describe(self, study: Study, start: WarmStart | None) -> None:
        """Write down which study the run is of, and which model it starts from."""
        if self.folder is not None:
            write_durably(self.folder / "study.toml", study.to_toml().encode())
        self.event(Described(**study.described))
        if start is not None and start.model is not None and not self._resume:
            self.event(Continued(**start.origin))

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep what was agreed once, as JSON, with a digest of it and of the study."""
        self.publish(name, {**content, DIGEST: self._digest(content)})

    def publish(self, name: str, content: Mapping[str, Any]) -> None:
        """Write something for people and programs to read, as JSON."""
        if self.folder is not None:
            write_durably(self.folder / f"{name}.json", json.dumps(content).encode())

    def _digest(self, content: Mapping[str, Any]) -> str:
        return hashlib.sha256(f"{self._study} {json.dumps(content)}".encode()).hexdigest()

    def recall(self, name: str) -> dict[str, Any] | None:
        """Return what was kept if the run is resumed, else None; RunError if it is damaged."""
        if self.folder is None or not self._resume or not (self.folder / f"{name}.json").exists():
            return None
        with suppress(ValueError, RecursionError):
            content = json.loads(read_bytes(self.folder / f"{name}.json"))
            if isinstance(content, dict) and content.pop(DIGEST, "") == self._digest(content):
                return content
        raise RunError(f"{self.folder / name}.json is damaged; begin a new run.")

    def rounds(self, done: int, last: int) -> Iterator[int]:
        """Count the rounds that are left, with a pause between two."""
        self.open_events()
        self.event(TrainingStarted(done, last))
        self._last = self._saved = time.perf_counter()
        for round_ in range(done + 1, last + 1):
            if self._pause and round_ > done + 1:
                time.sleep(self._pause)
            yield round_

    def open_events(self) -> None:
        """Let the folder hold a run."""
        events = Path(self.folder or "") / EVENTS
        with self._lock:
            if self._events is not None and not events.exists():
                self._events.close()  # some systems rename no open file
                events.with_name(BEFORE).replace(events)
                self._write_to(events)

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round: every so many, or after a minute."""
        slow = time.perf_counter() - self._saved > LONGEST_UNSAVED
        return self.folder is not None and (slow or round_ % self._every == 0)

    def checkpoint(self, state: Checkpoint) -> bool:
        """Keep a state: written beside, then renamed, with its digest; the last two stay.

        Return whether it was written.
        """
        if self.folder is None:
            return False
        arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
        meta = {"round": str(state.round), "study": self._study}
        data = save(arrays, metadata=meta | {"numbers": json.dumps(state.numbers)})
        folder = self.folder / "checkpoints"
        path = folder / f"{state.round:08d}.safetensors"
        try:
            write_durably(path, data)
            write_durably(path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest().encode())
        except OSError as error:
            # The run is worth more than one of its checkpoints; those before are untouched.
            path.unlink(missing_ok=True)
            self.event(CheckpointFailed(state.round, str(error.strerror)))
            return False
        self._saved = time.perf_counter()
        for old in sorted(folder.glob("*.safetensors"))[:-KEPT_CHECKPOINTS]:
            old.unlink()
            old.with_suffix(".sha256").unlink(missing_ok=True)
        return True

    def restore(self) -> Checkpoint | None:
        """Return the newest checkpoint if the run is resumed, else None; RunError if damaged."""
        return self.newest() if self._resume else None

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint, of this process or one before; RunError if damaged."""
        if self.folder is None:
            return None
        digests = sorted((self.folder / "checkpoints").glob("*.sha256"))
        if not digests:
            return None
        path = digests[-1].with_suffix(".safetensors")
        try:
            data = read_bytes(path)
            if hashlib.sha256(data).hexdigest() != read_text(digests[-1]).strip():
                raise ValueError
            arrays = load(data)
            size = int.from_bytes(data[:8], "little")
            meta = json.loads(data[8 : 8 + size])["__metadata__"]
            numbers = {name: float(x) for name, x in json.loads(meta["numbers"]).items()}
            if (int(meta["round"]), meta["study"]) != (int(path.stem), self._study):
                raise ValueError
            return Checkpoint(int(path.stem), arrays, numbers)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError):
            raise RunError(
                f"The checkpoint {path} is damaged, or of another study; delete it and its .sha256 "
                "file to resume from the one before, or begin a new run."
            ) from None

    def save(self, model: TopicModel) -> TopicModel:
        """Write the run's model, if there is a folder, and return it.

        A finished run that is resumed writes its model again. Labels that people gave its topics
        in the meantime stay, if the topics are the same.
        """
        if self.folder is None:
            return model
        place = self.folder / "model"
        with suppress(ModelError):  # none yet, or half of one
            earlier = TopicModel.from_pretrained(place)
            if np.array_equal(earlier.beta, model.beta):
                model = replace(model, labels=earlier.labels, suggested=earlier.suggested)
        model.save_pretrained(place)
        return model

    def event(self, event: Event) -> None:
        """Write down what happened, with the time and the seconds since the round before."""
        now = time.perf_counter()
        times = {"event": event.kind, "time": time.time(), "seconds": now - self._last}
        plain = times | event.plain()
        if isinstance(event, RoundEnded):
            self._last = now
        if self.folder is not None:
            with self._lock:  # a server's come from two threads
                self._unwritten += json.dumps(plain, allow_nan=False).encode() + b"\n"
                self._write()
        if self._on_event is not None:
            self._on_event(plain)

    def _write(self) -> None:
        # On a full disk the lines wait for the next time; a buffered file would lose some.
        with suppress(OSError):
            while self._events is not None and self._unwritten:
                self._unwritten = self._unwritten[self._events.write(self._unwritten) :]

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._write()
            if self._events is not None:
                self._events.close()
                self._events = None


class MemberRun(RunFolder):
    """The run folder of a member: a checkpoint names the steps and rounds it has the result of.

    What was agreed before the first checkpoint is not read again: the steps before it are replayed.
    """

    clients: StepCounts  # whose steps these are
    before_checkpoint: Callable[[], None] = staticmethod(lambda: None)
    after_checkpoint: Callable[[], None] = staticmethod(lambda: None)

    @property
    def place(self) -> Path:
        """The folder."""
        return Path(self.folder or "")

    def position(self) -> tuple[int, int]:
        """Return the steps and rounds that the newest checkpoint has the result of."""
        saved = super().restore()
        return (0, 0) if saved is None else (int(saved.numbers[STEP]), int(saved.numbers[TURN]))

    def state(self) -> bytes:
        """Return the newest checkpoint, for a client that was away too long."""
        saved, kept = self.newest(), self.place / "agreement.json"
        if saved is None:
            return b""
        plain = {"round": saved.round, "arrays": saved.arrays, "numbers": saved.numbers}
        return dumps(plain | {"agreement": read_bytes(kept) if kept.exists() else b""})

    def install(self, content: bytes) -> None:
        """Take the state of the server in place of the own one."""
        found = loads(content)
        if found["agreement"]:
            write_durably(self.place / "agreement.json", found["agreement"])
        super().checkpoint(Checkpoint(found["round"], found["arrays"], found["numbers"]))
        self.open_events()
        self.event(CaughtUp(found["round"]))

    def recall(self, name: str) -> dict[str, Any] | None:
        """As of `RunFolder`, if there is a checkpoint."""
        return None if super().restore() is None else super().recall(name)

    def checkpoint(self, state: Checkpoint) -> bool:
        """As of `RunFolder`; the totals that led to it are needed no more."""
        self.before_checkpoint()
        numbers = {**state.numbers, STEP: self.clients.step, TURN: self.clients.turn}
        is_written = super().checkpoint(replace(state, numbers=numbers))
        if is_written:
            self.after_checkpoint()
        return is_written
