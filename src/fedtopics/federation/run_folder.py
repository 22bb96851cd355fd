"""A run's folder: its study, checkpoints and events, and how a run resumes.

A folder contains a run only after training began; before that, a failed command is repeated.
"""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedtopics import files, waiting
from fedtopics.contract import events
from fedtopics.contract.interfaces import Checkpoint
from fedtopics.errors import ModelError, RunError
from fedtopics.federation.study import Study
from fedtopics.methods.core.plan import WarmStart
from fedtopics.model.topic_model import TopicModel
from fedtopics.protocol.clients import SecureClients
from fedtopics.protocol.plain import PlainClients
from fedtopics.protocol.values import dumps, loads

BEFORE = "before.jsonl"  # events before training began
DIGEST = "sha256"  # key in kept JSON
KEPT_CHECKPOINTS = 2
STEP = "steps"  # name of the step in a member's checkpoint
TURN = "turns"  # name of the turn in a member's checkpoint


def require_no_other_study(folder: Path, ours: str) -> None:
    """Raise RunError if a folder has a study.toml but not `ours`, a file that every run writes."""
    if (folder / "study.toml").exists() and not (folder / ours).exists():
        raise RunError(f"{folder} contains a study.toml that no run wrote; name another folder.")


def has_run(folder: Path) -> bool:
    """Whether a folder contains a run; an incomplete first event, left by a full disk, is none."""
    path = folder / files.EVENTS
    if not path.exists():
        return False
    with files.open_file(path) as file:
        return bool(file.readline().endswith(b"\n"))


class RunFolder:
    """One run of a study; without a folder, nothing is written."""

    def __init__(
        self,
        folder: Path | None,
        study: str,
        checkpoint_every: int = 50,  # rounds
        resume: bool = False,
        on_event: events.OnEvent | None = None,
        pause: float = 0.0,  # seconds between two rounds
    ) -> None:
        self.folder = folder
        self._every = checkpoint_every
        self._resume = resume
        self._on_event = on_event
        self._pause = pause
        self._study = study
        self._events: files.LineFile | None = None
        self._lock = threading.Lock()  # a server's events come from two threads
        self._last = self._saved = time.perf_counter()
        if folder is not None:
            self._open(folder)

    def _open(self, folder: Path) -> None:
        path = folder / files.EVENTS
        if self._resume != has_run(folder):
            raise RunError(
                f"There is no run in {folder} to resume; leave out --resume."
                if self._resume
                else f"There is a run in {folder} already; resume it with --resume, or name "
                "another folder with --out."
            )
        require_no_other_study(folder, "checkpoints")
        files.make_folder(folder / "checkpoints")
        if self._resume:
            self._resume_events(path)
        else:
            path.unlink(missing_ok=True)
            self._events = files.LineFile(folder / BEFORE, "wb")
            self.event(events.Started(self._study))
            self._events.require_written()  # without its first line, this run could not resume

    def _resume_events(self, path: Path) -> None:
        try:
            with files.open_file(path, "r", encoding="utf-8") as file:
                line = json.loads(file.readline())
            first = line["study"]
            started = float(line["time"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise RunError(f"The first line of {path} is damaged; start a new run.") from None
        if first != self._study:
            raise RunError(
                f"The run in {self.folder} is of study {first}, but this is study {self._study}; "
                "resume with the study.toml in the run's folder, and with the model that the run "
                "started from, if any."
            )
        self._events = files.LineFile(path)
        self.event(events.Resumed(self._study, started))

    def describe(self, study: Study, start: WarmStart | None) -> None:
        if self.folder is not None:
            files.write_durably(self.folder / "study.toml", study.to_toml().encode())
        self.event(events.Described(**study.described))
        if start is not None and start.model is not None and not self._resume:
            self.event(events.Continued(**start.origin))

    def keep(self, name: str, content: Mapping[str, Any]) -> None:
        """Keep an agreement as JSON, with a digest of it and of the study."""
        self.publish(name, {**content, DIGEST: self._digest(content)})

    def publish(self, name: str, content: Mapping[str, Any]) -> None:
        if self.folder is not None:
            files.write_durably(self.folder / f"{name}.json", json.dumps(content).encode())

    def _digest(self, content: Mapping[str, Any]) -> str:
        return files.digest(f"{self._study} {json.dumps(content)}")

    def recall(self, name: str) -> dict[str, Any] | None:
        """Return what `keep` wrote if the run is resumed, else None; RunError if it is damaged."""
        if self.folder is None or not self._resume or not (self.folder / f"{name}.json").exists():
            return None
        with suppress(ValueError, RecursionError):
            content = json.loads(files.read_bytes(self.folder / f"{name}.json"))
            if isinstance(content, dict) and content.pop(DIGEST, "") == self._digest(content):
                return content
        raise RunError(f"{self.folder / name}.json is damaged; start a new run.")

    def rounds(self, done: int, last: int) -> Iterator[int]:
        self.open_events()
        self.event(events.TrainingStarted(done, last))
        self._last = self._saved = time.perf_counter()
        for round_ in range(done + 1, last + 1):
            if self._pause and round_ > done + 1:
                time.sleep(self._pause)
            yield round_

    def open_events(self) -> None:
        """Mark the folder as one that contains a run."""
        path = Path(self.folder or "") / files.EVENTS
        with self._lock:
            if self._events is not None and not path.exists():
                self._events.close()  # some systems cannot rename open files
                path.with_name(BEFORE).replace(path)
                self._events = files.LineFile(path)

    def due(self, round_: int) -> bool:
        """Whether a checkpoint is due after this round: at intervals, or after a minute."""
        return self.folder is not None and (
            round_ % self._every == 0 or time.perf_counter() - self._saved > waiting.UNSAVED
        )

    def checkpoint(self, state: Checkpoint) -> bool:
        """Write a checkpoint and keep the last two; return whether it was written."""
        if self.folder is None:
            return False
        data = save(
            {name: np.asarray(array, order="C") for name, array in state.arrays.items()},
            metadata={
                "round": str(state.round),
                "study": self._study,
                "numbers": json.dumps(state.numbers),
            },
        )
        folder = self.folder / "checkpoints"
        path = folder / f"{state.round:08d}.safetensors"
        try:
            files.write_durably(path, data)
            files.write_durably(
                path.with_suffix(".sha256"), hashlib.sha256(data).hexdigest().encode()
            )
        except OSError as error:
            # The run continues without this checkpoint; earlier ones are untouched.
            path.with_suffix(".sha256").unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            self.event(events.CheckpointFailed(state.round, str(error.strerror)))
            return False
        self._saved = time.perf_counter()
        for old in sorted(folder.glob("*.safetensors"))[:-KEPT_CHECKPOINTS]:
            old.unlink()
            old.with_suffix(".sha256").unlink(missing_ok=True)
        return True

    def restore(self) -> Checkpoint | None:
        """Return the newest checkpoint if the run is resumed, else None."""
        return self.newest() if self._resume else None

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint, if any; RunError if it is damaged."""
        digests = sorted(self.folder.glob("checkpoints/*.sha256")) if self.folder else []
        if not digests:
            return None
        path = digests[-1].with_suffix(".safetensors")
        try:
            data = files.read_bytes(path)
            if hashlib.sha256(data).hexdigest() != files.read_text(digests[-1]).strip():
                raise ValueError
            meta = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            if (int(meta["round"]), meta["study"]) != (int(path.stem), self._study):
                raise ValueError
            return Checkpoint(
                round=int(path.stem),
                arrays=load(data),
                numbers={name: float(x) for name, x in json.loads(meta["numbers"]).items()},
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError):
            raise RunError(
                f"The checkpoint {path} is damaged, or of another study; delete it and its .sha256 "
                "file to resume from the one before, or start a new run."
            ) from None

    def save(self, model: TopicModel) -> TopicModel:
        """Write and return the run's model; labels of an earlier model with equal topics stay."""
        if self.folder is None:
            return model
        place = self.folder / "model"
        with suppress(ModelError):  # none yet, or an incomplete one
            earlier = TopicModel.from_pretrained(place)
            if np.array_equal(earlier.beta, model.beta):
                model = replace(model, labels=earlier.labels, unconfirmed=earlier.unconfirmed)
        model.save_pretrained(place)
        return model

    def event(self, event: events.Event) -> None:
        now = time.perf_counter()
        plain = {
            "event": event.kind,
            "time": time.time(),
            "seconds": now - self._last,
            **event.plain(),
        }
        if isinstance(event, events.RoundEnded):
            self._last = now
        with self._lock:
            if self._events is not None:
                self._events.write(plain)
        if self._on_event is not None:
            self._on_event(plain)

    def close(self) -> None:
        with self._lock:
            if self._events is not None:
                self._events.close()
                self._events = None


class MemberRun(RunFolder):
    """The run folder of a member; without a checkpoint, steps are replayed."""

    clients: PlainClients | SecureClients  # whose steps these are
    before_checkpoint: Callable[[], None] = staticmethod(lambda: None)
    after_checkpoint: Callable[[], None] = staticmethod(lambda: None)

    @property
    def place(self) -> Path:
        return Path(self.folder or "")

    def position(self) -> tuple[int, int]:
        saved = super().restore()
        return (0, 0) if saved is None else (int(saved.numbers[STEP]), int(saved.numbers[TURN]))

    def state(self) -> bytes:
        """Return the newest checkpoint, for a client that was away too long."""
        saved = self.newest()
        agreement = self.place / "agreement.json"
        if saved is None:
            return b""
        return dumps(
            {
                "round": saved.round,
                "arrays": saved.arrays,
                "numbers": saved.numbers,
                "agreement": files.read_bytes(agreement) if agreement.exists() else b"",
            }
        )

    def install(self, content: bytes) -> None:
        state = loads(content)
        if state["agreement"]:
            files.write_durably(self.place / "agreement.json", state["agreement"])
        super().checkpoint(Checkpoint(state["round"], state["arrays"], state["numbers"]))
        self.open_events()
        self.event(events.CaughtUp(state["round"]))

    def recall(self, name: str) -> dict[str, Any] | None:
        """Return what `keep` wrote if there is a checkpoint, else None."""
        return None if super().restore() is None else super().recall(name)

    def checkpoint(self, state: Checkpoint) -> bool:
        """Write a checkpoint; earlier totals are not needed after it."""
        self.before_checkpoint()
        is_written = super().checkpoint(
            replace(
                state, numbers={**state.numbers, STEP: self.clients.step, TURN: self.clients.turn}
            )
        )
        if is_written:
            self.after_checkpoint()
        return is_written
