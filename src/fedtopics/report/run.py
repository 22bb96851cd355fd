"""What a run's folder tells: of a simulation, of a server, or of a client's part.

Where a file says when documents are from, also each topic's share by period, by sums.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import DataError, RunError, StudyError
from fedtopics.federation.ledger import (
    SEEDED,
    Head,
    add_line,
    client_of,
    find_ledgers,
    read_ledger,
    summary_of,
)
from fedtopics.federation.policy import Policy
from fedtopics.federation.study_tables import About, ClientData
from fedtopics.files import read_text, read_toml
from fedtopics.model.folder import model_folder
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns
from fedtopics.text.times import Unit, as_array, missing, times_of

Rows = list[dict[str, Any]]
LONGEST_SPAN: dict[Unit, int] = {"week": 100, "month": 800, "quarter": 2200}  # days that are cut so
Place = Literal["model", "simulation", "server", "client"]  # whose folder it is


@dataclass
class LedgerFacts:
    """What a client's ledger shows, by one reading of it."""

    client: str
    path: Path
    lines: int = 0
    began_line: int = 0  # the last that says who began with what
    documents: int = 0
    text_bytes: int = 0
    version: str = ""
    spent: float | None = None  # epsilon, of the client's account
    policy: Mapping[str, Any] = field(default_factory=dict)
    has_certificate: bool = False
    seeded: bool = False  # whether draws followed from the study's seed, which all know
    times: tuple[str, str] = "", ""  # of the first and the last line
    kept: dict[str, str] = field(default_factory=dict)  # files, with the lines that name them
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)  # as of `add_line`
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # lines, by function
    left: Counter[int] = field(default_factory=Counter)  # bytes, by round; 0 is before the first

    @classmethod
    def read(cls, path: Path) -> LedgerFacts:
        """Read a ledger; RunError if it is damaged."""
        facts = cls(client_of(path), path)
        read_ledger(path, facts._take)
        return facts

    def _take(self, line: Mapping[str, Any]) -> None:
        self.lines += 1
        time = str(line["time"])
        self.times = self.times[0] or time, time
        self.seeded = self.seeded or line.get("secret") == SEEDED
        if line["what"] == "began":
            self.began_line, self.version = self.lines, str(line["fedtopics"])
            self.documents, self.text_bytes = int(line["documents"]), int(line["text_bytes"])
            self.policy, self.has_certificate = dict(line["policy"]), "certificate" in line
            self.spent = line.get("epsilon_spent", self.spent)
        elif line["what"] == "kept":
            self.kept[str(line["file"])] = f"line {self.lines}, SHA-256 {line['sha256']}"
        else:
            add_line(self.functions, line)
            first, _ = self.spans.get(line["function"], (self.lines, 0))
            self.spans[line["function"]] = first, self.lines
            if line["what"] == "left":
                self.left[int(line["round"])] += int(line["bytes"])

    @property
    def name(self) -> str:
        """What to cite it by."""
        return f"ledger of {self.client}"

    @property
    def began(self) -> str:
        """What to cite the line by that a process began with."""
        return f"{self.name}, line {self.began_line:,}"

    @property
    def rows(self) -> Rows:
        """What left and came, a row per function, as of `summarise_ledger`."""
        return summary_of(self.functions)

    @property
    def head(self) -> str:
        """The digest of the last line, as the head has it; nothing without a head."""
        head = Head.read(self.path)
        return head.sha256 if head else ""


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
        rows = []
        for number in sorted(last):
            left = self.left.get(number, last[number].get("bytes_received"))
            rows.append(last[number] | ({} if left is None else {"bytes": left}))
        return rows

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
    def clipped(self) -> Rows:
        """Whose replies counted for less, from which round on: how far they went at most."""
        found: dict[str, dict[str, Any]] = {}
        for event in self.of_kind("clipped"):
            row = found.setdefault(event["client"], dict(event))
            row["times"] = max(row["times"], event["times"])
        return list(found.values())


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
    ledgers = [LedgerFacts.read(path) for path in find_ledgers(folder).values()]
    left: Counter[int] = Counter()
    for facts in ledgers:
        left.update(facts.left)
    events = _events(folder / "events.jsonl") or _events(folder / "state" / "events.jsonl")
    day, known = "", Policy.model_fields.keys()
    with suppress(LookupError, TypeError, ValueError, OverflowError, OSError):
        day = datetime.fromtimestamp(events[-1]["time"], UTC).date().isoformat()
    return RunFacts(
        name=folder.resolve().name, study=_study(folder / "study.toml"), events=events,
        ledgers={facts.client: facts.rows for facts in ledgers}, left=dict(left),
        seeded=tuple(facts.client for facts in ledgers if facts.seeded), policies={
        facts.client: Policy(**{key: facts.policy[key] for key in known & facts.policy.keys()})
        for facts in ledgers
        if facts.began_line
        }, ended=max([day, *(facts.times[1][:10] for facts in ledgers)]),
        place=place_of(folder, bool(events)),
    )  # fmt: skip


def place_of(folder: Path, ran: bool) -> Place:
    """Return whose folder of a run it is, that of a model where nothing `ran`."""
    if (folder / "ledger.jsonl").exists():
        return "client"
    if (folder / "clients").is_dir():
        return "simulation"
    return "server" if ran else "model"


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


def over_time(
    model: TopicModel, run: RunFacts, own: Path | None = None, columns: Columns | None = None,
    time: str | None = None,
) -> Rows | None:  # fmt: skip
    """Return each topic's share by period, of one's own file, or of a simulation's clients.

    Parameters
    ----------
    own : path, optional
        A file of documents, with these `columns`.
    time : str, optional
        Its column of times. Of a simulation's clients it is what their tables say.

    Returns
    -------
    list of dict, or None
        As of `TopicModel.topics_over_time`; None where there is no time.

    Raises
    ------
    DataError
        If there is no such column, or what is there are no times.
    """
    if own is not None:
        dated = replace(columns or Columns(), time=time)
        corpora = {"": Corpus.read(own, dated)} if time else {}
    else:
        corpora = {name: table.read(name) for name, table in _tables(run, time).items()}
    if not corpora:
        if time:
            raise DataError(
                f"There are no documents whose column {time!r} could be read; name their file with "
                "--examples-from."
            )
        return None
    times = {name: as_array(corpus.times) for name, corpus in corpora.items()}
    return model.topics_over_time(corpora, times, by=_unit([*times.values()])) or None


def _tables(run: RunFacts, time: str | None) -> dict[str, ClientData]:
    """Return where the documents of a simulation's clients are; nothing of other runs."""
    tables: Mapping[str, Any] = run.study.get("clients", {}) if run.place == "simulation" else {}
    try:
        read = {name: ClientData(**table) for name, table in tables.items()}
    except (TypeError, ValueError):
        raise StudyError("The study's tables of clients are damaged; mend them.") from None
    dated = {n: t.model_copy(update={"time": time or t.time}) for n, t in read.items()}
    return {name: table for name, table in dated.items() if table.time and table.data}


def _unit(times: Sequence[NDArray[Any]]) -> Unit | None:
    """Return the period in which the times are seen, by how far apart they are."""
    days = np.concatenate([times_of(each, ~missing(each)) for each in times])
    if days.dtype.kind != "M":
        return None  # numbers, or none
    days = days.astype("datetime64[D]")
    reach = int((days.max() - days.min()).astype(int)) if len(days) else 0
    return next((unit for unit, most in LONGEST_SPAN.items() if reach <= most), "year")
