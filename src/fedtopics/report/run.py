"""What a run's folder tells: of a simulation, of a server, or of a client's part."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fedtopics.errors import RunError
from fedtopics.federation.ledger import (
    bytes_by_round,
    find_ledgers,
    is_seeded,
    read_ledger,
    summarise_ledger,
)
from fedtopics.federation.policy import Policy
from fedtopics.federation.study_tables import About
from fedtopics.files import read_text, read_toml
from fedtopics.model.folder import model_folder

Rows = list[dict[str, Any]]
Place = Literal["model", "simulation", "server", "client"]  # whose folder it is


@dataclass(frozen=True)
class RunFacts:
    """What is known of the run that a model is of."""

    name: str  # for people
    study: dict[str, Any] = field(default_factory=dict)  # as its file has it
    events: Rows = field(default_factory=list)
    ledgers: dict[str, Rows] = field(default_factory=dict)  # by client, of `summarise_ledger`
    left: dict[int, int] = field(default_factory=dict)  # bytes from these clients, by round
    seeded: tuple[str, ...] = ()  # clients whose draws all could know, of those with a ledger
    policies: dict[str, Policy] = field(default_factory=dict)  # by client, as its ledger has it
    ended: str = ""  # the day of the last line of events and ledgers, such as 2026-03-01
    place: Place = "model"

    def of_kind(self, kind: str) -> Rows:
        """Return the events of a kind."""
        return [event for event in self.events if event.get("event") == kind]

    @property
    def rounds(self) -> Rows:
        """The rounds that count, each as it was done last, with the bytes that left for it."""
        last = {event["round"]: event for event in self.of_kind("round")}
        return [self._round(last[number]) for number in sorted(last)]

    @property
    def absences(self) -> Rows:
        """Who was missing in which rounds and why, a row each, in the order of the rounds."""
        rows: dict[tuple[str, str], list[int]] = {}
        last = {event["round"]: event for event in [*self.of_kind("left out"), *self.rounds]}
        for number in sorted(last):
            for client, why in last[number].get("missing", {}).items():
                rows.setdefault((client, why), []).append(number)
        return [{"client": c, "why": why, "rounds": of} for (c, why), of in rows.items()]

    @property
    def adders(self) -> Rows:
        """Who added after whom, where there is no server: the name, and the round before it."""
        found, done = [], 0
        for event in self.events:
            done = event["round"] if event.get("event") == "round" else done
            if event.get("event") == "adds":
                found.append({"client": event["client"], "after": done})
        return found

    @property
    def clipped(self) -> Rows:
        """Whose replies counted for less, from which round on: how far they went at most."""
        found: dict[str, dict[str, Any]] = {}
        for event in self.of_kind("clipped"):
            row = found.setdefault(event["client"], dict(event))
            row["times"] = max(row["times"], event["times"])
        return list(found.values())

    def _round(self, event: dict[str, Any]) -> dict[str, Any]:
        left = self.left.get(event["round"], event.get("bytes_received"))
        size = {} if left is None else {"bytes": left}
        return {**event, **size}


def find(place: str | Path) -> tuple[Path, RunFacts]:
    """Return the folder of the model, and what is known of its run.

    Parameters
    ----------
    place : path
        Folder of a run, of a client's part in one, or of a model.

    Raises
    ------
    ModelError
        If there is no model.
    RunError
        If a file of the run is damaged.
    """
    folder, model = Path(place), model_folder(place)
    if model == folder and folder.resolve().name == "model":  # it is still in its run's folder
        folder = folder.resolve().parent
    return model, read(folder)


def read(folder: Path) -> RunFacts:
    """Read what there is of a run in a folder."""
    paths = find_ledgers(folder)
    left: Counter[int] = Counter()
    for path in paths.values():
        left.update(bytes_by_round(path))
    events = _events(folder / "events.jsonl") or _events(folder / "state" / "events.jsonl")
    policies: dict[str, Policy] = {}
    times = {_day(events[-1].get("time")) if events else ""}

    def take(line: Mapping[str, Any]) -> None:
        times.add(str(line["time"])[:10])
        if line["what"] == "began":
            known = Policy.model_fields.keys() & line["policy"]
            policies[str(line["client"])] = Policy(**{key: line["policy"][key] for key in known})

    for path in paths.values():
        read_ledger(path, take)
    return RunFacts(
        name=folder.resolve().name,
        study=_study(folder / "study.toml"),
        events=events,
        ledgers={client: summarise_ledger(path) for client, path in paths.items()},
        left=dict(left),
        seeded=tuple(client for client, path in paths.items() if is_seeded(path)),
        policies=policies,
        ended=max(times),
        place=_place(folder, bool(events)),
    )


def _place(folder: Path, ran: bool) -> Place:
    if (folder / "ledger.jsonl").exists():
        return "client"
    if (folder / "clients").is_dir():
        return "simulation"
    return "server" if ran else "model"


def _day(time: Any) -> str:
    """Return the day of seconds since 1970, in UTC; nothing of what is none."""
    try:
        return datetime.fromtimestamp(time, UTC).date().isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _study(path: Path) -> dict[str, Any]:
    try:
        plan = read_toml(path) if path.exists() else {}
        tables = "about", "method", "vocabulary"
        if all(isinstance(plan.get(table, {}), dict) for table in tables):
            About(**plan.get("about", {}))  # or a ValueError
            return plan
        raise ValueError
    except ValueError:
        raise RunError(f"{path} is damaged; mend it, or take it out of the folder.") from None


def _events(path: Path) -> Rows:
    if not path.exists():
        return []
    lines = read_text(path, errors="replace").split("\n")
    try:
        events: Rows = [json.loads(line) for line in lines[:-1]]  # the last may be cut off
        if all(isinstance(event["round"], int) for event in events if event["event"] == "round"):
            return events
        raise ValueError
    except (ValueError, LookupError, TypeError):
        raise RunError(f"{path} is damaged; mend it, or take it out of the folder.") from None
