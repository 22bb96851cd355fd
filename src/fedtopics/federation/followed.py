"""Follow a run by its folder, from another process: its events, and topics as they form.

Nothing is written, and nothing is asked of anybody: a run's folder, a server's, a client's or a
peer's, has its events and checkpoints anyway.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Required

import numpy as np
from pydantic import FiniteFloat, TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from fedtopics.errors import FedTopicsError, RunError
from fedtopics.federation.run_folder import BEFORE, EVENTS
from fedtopics.federation.run_status import RunStatus, Standing
from fedtopics.federation.study import Study
from fedtopics.files import is_used, open_file, read_bytes
from fedtopics.methods.registry import find_method
from fedtopics.model.shown_words import USUAL
from fedtopics.model.topics import Count
from fedtopics.text.vocabulary import Vocabulary

SHOWN = 8  # words of a topic
DAMAGES = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError,
    SafetensorError,
)  # fmt: skip
NONE_YET = "There are no topics yet: the first come with the first checkpoint."
NONE_HELD = "What {} has between rounds are no topics of words; they come with the model."


class _Words(TypedDict):
    words: list[str]


class _Told(TypedDict, total=False):
    """What is shown of an event: in a folder from elsewhere there may be anything."""

    event: Required[str]
    time: FiniteFloat
    seconds: FiniteFloat
    name: str
    client: str
    reason: str
    round: Count
    rounds: Count
    done: Count
    bytes_sent: Count
    bytes_received: Count
    clients: list[str]
    missing: dict[str, str] | list[str]
    topics: list[_Words]


_EVENT = TypeAdapter(_Told)


@dataclass(frozen=True)
class Forming:
    """Topics as they form, or why there are none to show."""

    words: tuple[tuple[str, ...], ...] = ()  # of each topic, the first ones
    round: int | None = None  # after which they were so; None of a model
    why: str = ""  # there are none

    @property
    def title(self) -> str:
        """Say which topics these are."""
        if self.why:
            return self.why
        return (
            "Topics" if self.round is None else f"Topics after round {self.round:,}, as they form"
        )


class FollowedRun:
    """A run that is followed by the folder of it, or of a client's part in it.

    Raises
    ------
    RunError
        If there is no run, or its events are damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._place = folder / "state" if (folder / "state").is_dir() else folder
        self._path = self._find()
        self._begin()
        self.update()

    def _find(self) -> Path:
        for name in (EVENTS, BEFORE):
            if (self._place / name).is_file():
                return self._place / name
        raise RunError(
            f"There is no run in {self.folder}; name the folder of one, of a server, a client or a "
            "peer, as --out says."
        )

    def _begin(self) -> None:
        self.status, self._read, self._file = RunStatus(), 0, -1
        self._forming = Forming(why=NONE_YET)
        self._study: Study | None = None
        with suppress(FedTopicsError, OSError):  # none, or of a method that is not installed here
            self._study = Study.read(self._study_file)
            self.status.clients = {name: Standing() for name in self._study.clients}

    @property
    def _study_file(self) -> Path:
        inside = self._place / "study.toml"
        return inside if inside.exists() else self.folder / "study.toml"

    def update(self) -> RunStatus:
        """Read what has happened since; return how the run stands."""
        self._path = self._find()
        try:
            with open_file(self._path) as file:
                number = self._path.stat().st_ino
                if self._file not in (-1, number):  # another run, in the same folder
                    self._begin()
                self._file = number
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):  # it is being written
                        break
                    self._read += len(line)
                    event = json.loads(line)
                    _EVENT.validate_python(event, strict=True)
                    self.status.take(event)
        except DAMAGES:
            raise RunError(
                f"{self._path} cannot be read as a run's events; name the folder of a run."
            ) from None
        return self.status

    @property
    def running(self) -> bool | None:
        """Whether a process works with it; None where the system does not tell."""
        return is_used(self._path)

    def plain(self) -> dict[str, Any]:
        """Return how it stands as plain data, for scripts."""
        forming = self.forming()
        return self.status.plain() | {
            "running": self.running,
            "topics": [list(words) for words in forming.words],
            "topics_of_round": forming.round,
            "no_topics": forming.why,
        }

    def forming(self) -> Forming:
        """Return the topics of the model, or those of the newest state on disk."""
        model = self.folder / "model" / "topics.json"
        with suppress(*DAMAGES, FedTopicsError):  # replaced meanwhile: the next time, then
            if self.status.state == "finished" and model.is_file():
                self._forming = _of_model(model)
            elif self.status.topics is not None:
                words = [tuple(topic[:SHOWN]) for topic in self.status.topics]
                self._forming = Forming(tuple(words), self.status.round)
            else:
                self._forming = self._of_states()
        return self._forming

    def _of_states(self) -> Forming:
        agreement = self._place / "agreement.json"
        if self._study is None or not agreement.exists():
            return Forming(why=NONE_YET)
        agreed = json.loads(read_bytes(agreement))
        settings: Any = self._study.method
        method = self._study.registration
        if "chosen" in agreed:  # by a rule
            method = find_method(agreed["chosen"]["name"])
            settings = method.settings(**agreed["chosen"])
        if method.topics_of is None:
            return Forming(why=NONE_HELD.format(method.title))
        path = max((self._place / "checkpoints").glob("*.safetensors"), default=None)
        if path is None:
            return Forming(why=NONE_YET)
        if self._forming.round == int(path.stem):
            return self._forming
        vocabulary = Vocabulary.of(agreed)
        masses = method.topics_of(settings, len(vocabulary), load(read_bytes(path)))
        shares = masses / np.maximum(masses.sum(1, keepdims=True), np.finfo(float).tiny)
        columns = USUAL.order(shares, vocabulary.frequency, SHOWN)
        words = (tuple(vocabulary.words[i] for i in row) for row in columns)
        return Forming(tuple(words), int(path.stem))


def _of_model(path: Path) -> Forming:
    rows: list[Mapping[str, Any]] = json.loads(read_bytes(path))
    return Forming(tuple(tuple(map(str, row["words"][:SHOWN])) for row in rows))
