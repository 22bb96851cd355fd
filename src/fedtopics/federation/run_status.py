"""The status of a run, which any process can read from its folder: events and current topics.

It lists only clients that the study names, not names from other processes.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Required

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter
from safetensors import SafetensorError
from safetensors.numpy import load
from typing_extensions import TypedDict  # pydantic takes no other before Python 3.12

from fedtopics import waiting
from fedtopics.errors import FedTopicsError, RunError
from fedtopics.federation.progress import duration, end_of_wait
from fedtopics.federation.run_folder import BEFORE
from fedtopics.federation.study import Study
from fedtopics.files import EVENTS, LOCK, is_used, open_file, read_bytes
from fedtopics.model.shown_words import DEFAULT_RANKING, LINE_WORDS
from fedtopics.model.topics import Count
from fedtopics.text.vocabulary import Vocabulary

DAMAGES = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    SafetensorError,
)
NONE_YET = "There are no topics yet: the first come with the first checkpoint."
State = Literal["waiting", "training", "finished", "failed", "stopped"]
REFUSALS = ("halted", "declined", "excluded", "bad reply")  # events
AWAY = ("lost", "declined", "excluded")  # events after which a client is away
STATES: dict[str, State] = {  # of a run after an event of this kind
    "started": "waiting",
    "resumed": "waiting",
    "listening": "waiting",
    "training": "training",
    "finished": "finished",
    "model": "finished",
    "failed": "failed",
    "halted": "stopped",
}
SETTLED = ("started", "resumed", "listening", "round", "finished", "model")  # they end a trouble
WHERE = {
    "waiting": "before the first round",
    "training": "training",
    "finished": "finished: the model is there",
    "failed": "failed",
    "stopped": "stopped",
}
OUTCOMES = {  # of starting the same command again, by exit code; `train` also needs --resume
    1: "After repairing this, the same command resumes the run.",
    2: "The same command fails again until this is corrected.",
    3: "The same command is refused again until the study or the policy is changed.",
    4: "After that, the same command resumes the run.",
    70: "The same command may fail again.",
}
CHECKED = ("OK", "LATE", "DOWN")  # by exit code of `fedtopics status --check`
RELAY = WHERE | {"waiting": "serving", "finished": "finished: all members have the model"}


@dataclass
class ClientStatus:
    state: str = "not connected"
    here: bool = False
    rounds: int = 0  # in which its update was used
    bad: int = 0  # updates that could not be used


@dataclass
class RunStatus:
    clients: dict[str, ClientStatus] = field(default_factory=dict)
    name: str = ""  # of the study
    method: str = ""
    state: State = "waiting"
    trouble: str = ""  # why it waits, stopped or failed
    waits_since: float | None = None  # when the trouble began, seconds since 1970
    awaited: set[str] = field(default_factory=set)  # clients that a round waits for
    round: int = 0  # the last finished one
    rounds: int = 0  # at most; 0 before training
    seconds: float = 0.0  # for `counted` rounds
    counted: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    repeated: int = 0  # retries of rounds
    refusals: int = 0  # of updates and studies
    topics_of_event: list[list[str]] | None = None  # for methods whose events contain them
    is_server: bool = False
    trains: bool = False  # a relay does not: it sees neither rounds nor topics
    updated: float | None = None  # time of the last event, seconds since 1970
    running: bool | None = None  # whether a process works on it; None if the system cannot tell
    silent: float | None = None  # seconds since a frozen process gave a sign of life
    topics: Sequence[Sequence[str]] = ()  # the first words of each
    topics_of_round: int | None = None  # the round of these topics; None for a model
    no_topics: str = NONE_YET  # why there are none; "" if there are some

    @property
    def pace(self) -> float | None:
        return self.seconds / self.counted if self.counted else None

    @property
    def left(self) -> float | None:
        """Seconds until all rounds are done; None if unknown or finished."""
        if self.state != "training" or self.pace is None or self.round >= self.rounds:
            return None
        return self.pace * (self.rounds - self.round)

    def take(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        self.updated = event.get("time", self.updated)
        if self.state == "finished" and kind in (
            "started",
            "resumed",
            "listening",
            "joined",
            "failed",
        ):
            return  # a later process had nothing to do
        self._take(kind, event)
        waited = event["seconds"] if kind == "waits for" else 0.0
        begun = self.waits_since or (self.updated or 0.0) - waited
        self.waits_since = begun if self.trouble else None

    def _take(self, kind: str, event: Mapping[str, Any]) -> None:
        self.state = STATES.get(kind, self.state)
        self.trouble = "" if kind in SETTLED else self.trouble
        match kind:
            case "started" | "resumed":
                self.round = 0
                self.rounds = 0
                for client in self.clients:
                    self._set(client, False, "not connected")
            case "study":
                self.trains = True
                self.name = event["name"]
                self.method = event["settings"].get("method.name", self.method)
            case "listening":  # the first event of each process of a relay
                self.is_server = True
                for name in event["clients"]:
                    self.clients.setdefault(name, ClientStatus())
            case "training":
                self.round = event["done"]
                self.rounds = event["rounds"]
            case "round":
                self._take_round(event)
            case "failed":
                self.trouble = f"{event['reason']} {OUTCOMES.get(event['exit_code'], '')}".strip()
            case _:
                self._take_news(kind, event)

    def _take_round(self, event: Mapping[str, Any]) -> None:
        self.round = event["round"]
        self.seconds += event["seconds"]
        self.counted += 1
        self.bytes_sent += event.get("bytes_sent", 0)
        self.bytes_received += event.get("bytes_received", 0)
        for name in self.clients.keys() & event.get("clients", ()):
            self.clients[name].rounds += 1
            self._set(name, True, "in the last round")
        for name, reason in event.get("missing", {}).items():
            self._set(name, False, f"not in the last round: {reason}")
        if "topics" in event:
            self.topics_of_event = [list(topic["words"]) for topic in event["topics"]]

    def _take_news(self, kind: str, event: Mapping[str, Any]) -> None:
        client = event.get("client", "")
        reason = event.get("reason", "")
        self.refusals += kind in REFUSALS
        match kind:
            case "repeated":
                self.repeated += 1
            case "waiting":
                self.awaited = set(event["missing"])
                self.trouble = (
                    f"round {event['round']} waits for {', '.join(event['missing'])}: "
                    f"{end_of_wait(event)}"
                )
                for name in event["clients"]:
                    self._set(name, True, "ready")
                for name, why in event["missing"].items():
                    self._set(name, False, why)
            case "waits for":
                self.state = "waiting" if self.state == "stopped" else self.state
                names = ", ".join(event["clients"])
                self.trouble = f"waits for {names}: {end_of_wait(event)}" if names else ""
                for name in self.clients:
                    away = event["clients"].get(name, "")
                    self._set(name, away in ("", "connected"), away or "connected")
            case "halted":
                self.trouble = (
                    f"{client} stopped it: {reason}; all members start their commands again"
                )
            case "stopped":
                self.trouble = f"stopped after round {event['round']}: {reason}"
                self.rounds = event["round"]
            case "reconnecting":
                self.trouble = str(reason)
            case "bad reply" | "excluded" if client in self.clients:
                self.clients[client].bad += 1
        # Not another branch, because "excluded" also counts a bad update above.
        if kind in AWAY:
            state = "not connected" if kind == "lost" else kind
            self._set(client, False, f"{state}: {reason}" if reason else state)
        elif kind == "joined":
            self._set(client, True, "connected")
            if client in self.awaited & self.clients.keys():
                self.awaited.remove(client)
                self.trouble = self.trouble if self.awaited else ""

    def _set(self, client: str, here: bool, state: str) -> None:
        if client in self.clients:
            self.clients[client].here = here
            self.clients[client].state = state

    def plain(self) -> dict[str, Any]:
        return {
            "study": self.name,
            "method": self.method,
            "state": self.state,
            "trouble": self.trouble,
            "round": self.round,
            "rounds": self.rounds,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "repeated": self.repeated,
            "refusals": self.refusals,
            "updated": self.updated,
            "seconds_a_round": self.pace,
            "seconds_left": self.left,
            "clients": {name: asdict(status) for name, status in self.clients.items()},
            "running": self.running,
            "silent": self.silent,
            "topics": self.topics,
            "topics_of_round": self.topics_of_round,
            "no_topics": self.no_topics,
        }

    @property
    def title(self) -> str:
        return self.no_topics or (
            "Topics"
            if self.topics_of_round is None
            else f"Topics after round {self.topics_of_round:,}, not final yet"
        )

    def lines(self, now: float) -> list[str]:
        where = RELAY[self.state] if self.is_server and not self.trains else WHERE[self.state]
        pace = "" if self.pace is None else f", {self.pace:.2f} s per round"
        since = now - (self.updated or now)
        # Without news, nothing is known of the time that is left.
        is_still = since > waiting.QUIET + 3 * (self.pace or 0.0)
        left = None if self.running is False or is_still else self.left
        most = "" if left is None else f", at most {duration(left)} left"
        is_frozen = self.silent is not None
        lines = {
            f"{self.name}: {where}" if self.name else where: True,
            f"round {self.round:,} of {self.rounds:,}{pace}{most}": self.rounds > 0,
            self.trouble: self.trouble != "",
            f"last event {duration(max(since, 0))} ago": self.updated is not None,
            f"its process is frozen: no sign of life for {duration(self.silent or 0)}; end it, "
            "then start the same command again to resume the run": is_frozen,
            "no process works on the run; start the same command again to resume it": (
                self.running is False and not is_frozen and self.state not in ("finished", "failed")
            ),
        }
        return [line for line, holds in lines.items() if holds]

    def check(self, late: float, now: float) -> tuple[int, str]:
        """Return an exit code for monitoring, and one line that says why.

        Parameters
        ----------
        late : float
            Seconds that a run may wait for others.
        now : float
            Seconds since 1970.
        """
        is_down = self.running is False or self.state in ("failed", "stopped")
        is_late = (self.waits_since is not None and now - self.waits_since > late) or any(
            client.state.startswith("ended") for client in self.clients.values()
        )
        code = 0 if self.state == "finished" else 2 if is_down else int(is_late)
        return code, f"{CHECKED[code]}: {'; '.join(self.lines(now))}"


class _Words(TypedDict):
    words: list[str]


class _Event(TypedDict, total=False):
    """The checked fields of an event, as a folder from elsewhere may contain anything."""

    event: Required[str]
    time: Annotated[float, Field(ge=0, lt=2**37)]  # a day that the calendar has
    seconds: FiniteFloat
    name: str
    client: str
    reason: str
    exit_code: Count
    round: Count
    rounds: Count
    done: Count
    bytes_sent: Count
    bytes_received: Count
    clients: list[str] | dict[str, str]
    missing: dict[str, str] | list[str]
    topics: list[_Words]


_EVENT = TypeAdapter(_Event)


def read_events(path: Path, status: RunStatus) -> list[dict[str, Any]]:
    """Return a run's events, after their status took them; RunError if one is damaged."""
    events: list[dict[str, Any]] = []
    try:
        with open_file(path) as file:
            for line in file:
                if line.endswith(b"\n"):  # else it is being written
                    events.append(json.loads(line))
                    _EVENT.validate_python(events[-1], strict=True)
                    status.take(events[-1])
    except DAMAGES:
        raise RunError(f"{path} is damaged; correct it, or remove it from the folder.") from None
    return events


def read_run(folder: Path) -> RunStatus:
    place = folder / "state" if (folder / "state").is_dir() else folder
    path = next((place / name for name in (EVENTS, BEFORE) if (place / name).is_file()), None)
    if path is None:
        raise RunError(
            f"There is no run in {folder}; name the folder of a member, a simulation or a server."
        )
    study = None
    status = RunStatus()
    with suppress(FedTopicsError, OSError):  # no study, or a method that is not installed
        inside = place / "study.toml"
        study = Study.read(inside if inside.exists() else folder / "study.toml")
        status.clients = {name: ClientStatus() for name in study.clients}
    read_events(path, status)
    status.running = is_used(path)
    lock = place / LOCK
    if lock.exists():
        _check_life(status, lock)
    if status.running is False:
        status.clients = {
            name: replace(
                client,
                here=False,
                state="was there at the last event" if client.here else client.state,
            )
            for name, client in status.clients.items()
        }
    with suppress(*DAMAGES, FedTopicsError):  # a file is being replaced
        status.topics, status.topics_of_round, status.no_topics = _topics(
            status, folder / "model" / "topics.json", place, study
        )
    return status


def _check_life(run: RunStatus, lock: Path) -> None:
    """Tell a process that works from one that is frozen or was killed, by its signs of life."""
    silent = time.time() - lock.stat().st_mtime
    if silent > waiting.SILENT:
        run.silent = silent if run.running else None
        run.running = False
    elif run.running is False and run.state not in ("finished", "failed"):
        # Either it was killed just now, or this network folder does not show locks of others.
        time.sleep(2 * waiting.HEARTBEAT)
        run.running = time.time() - lock.stat().st_mtime < 2 * waiting.HEARTBEAT
    elif run.running is None:
        run.running = run.state not in ("finished", "failed")


def _topics(
    status: RunStatus, model: Path, place: Path, study: Study | None
) -> tuple[Sequence[Sequence[str]], int | None, str]:
    """Return the words of topics, the round of a checkpoint, and why there are none."""
    if status.state == "finished" and model.is_file():
        rows: list[Mapping[str, Any]] = json.loads(read_bytes(model))
        return [[str(word) for word in row["words"][:LINE_WORDS]] for row in rows], None, ""
    if status.topics_of_event is not None:
        return [words[:LINE_WORDS] for words in status.topics_of_event], status.round, ""
    if status.is_server and not status.trains:
        return (), None, "A relay sees no rounds and no topics; a member's folder has them."
    path = max((place / "checkpoints").glob("*.safetensors"), default=None)
    if study is None or not (place / "agreement.json").exists():
        return (), None, NONE_YET
    method = study.registration
    if method.topics_of is None or study.differential_privacy is not None:
        return (
            (),
            None,
            f"{method.title} has no topics of words between rounds; they come with the model.",
        )
    if path is None:
        return (), None, NONE_YET
    vocabulary = Vocabulary.of(json.loads(read_bytes(place / "agreement.json")))
    masses = method.topics_of(study.method, len(vocabulary), load(read_bytes(path)))
    shares = masses / np.maximum(masses.sum(1, keepdims=True), np.finfo(float).tiny)
    columns = DEFAULT_RANKING.order(shares, vocabulary.frequency, LINE_WORDS)
    return [[vocabulary.words[i] for i in row] for row in columns], int(path.stem), ""
