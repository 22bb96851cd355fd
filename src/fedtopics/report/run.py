"""Facts from the folder of a run: of a simulation, a server or a client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from fedtopics.errors import DataError, RunError, StudyError
from fedtopics.federation import ledger
from fedtopics.federation.data_sent import Rows, data_sent_in
from fedtopics.federation.exposure import Exposure
from fedtopics.federation.policy import Policy
from fedtopics.federation.run_status import RunStatus, read_events
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import About, ClientData
from fedtopics.files import EVENTS, read_toml
from fedtopics.model.folder import model_folder
from fedtopics.model.over_time import Grouped, grouped_by_time
from fedtopics.model.topic_model import TopicModel
from fedtopics.text.corpus import Corpus
from fedtopics.text.tables import Columns
from fedtopics.text.times import Times, Unit, as_array, missing, times_of

LONGEST_SPAN: dict[Unit, int] = {"week": 100, "month": 800, "quarter": 2200}  # days, for this unit
Place = Literal["model", "simulation", "server", "client"]  # whose folder it is


class Start(msgspec.Struct, frozen=True):
    """The content of a line about the start of a process."""

    fedtopics: str
    documents: int
    text_bytes: int
    policy: dict[str, Any]
    persons: int | None = None
    unit: str = "documents"  # what thresholds counted
    certificate: str = ""
    epsilon_spent: float | None = None  # from the client's privacy budget


NO_START = Start(fedtopics="", documents=0, text_bytes=0, policy={})


@dataclass
class LedgerFacts:
    """What a client's ledger shows."""

    client: str
    path: Path
    lines: int = 0
    start: Start = NO_START
    data_sent: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # rows by function
    began_line: int = 0  # the last line about the start of a process
    seen: bool = False  # whether the server saw updates, as aggregation was plain
    seeded: bool = False  # whether random choices came from the study's seed, known to all
    times: tuple[str, str] = "", ""  # of the first and the last line
    stored_files: dict[str, str] = field(default_factory=dict)  # with the lines that name them
    functions: dict[str, dict[str, Any]] = field(default_factory=dict)  # from `add_line`
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # lines, by function
    left: Counter[int] = field(default_factory=Counter)  # bytes, by round; 0 is before the first

    @classmethod
    def read(cls, path: Path) -> LedgerFacts:
        facts = cls(ledger.client_of_ledger(path), path)
        ledger.read_ledger(path, facts._take)
        return facts

    def _take(self, line: Mapping[str, Any]) -> None:
        self.lines += 1
        time = str(line["time"])
        self.times = self.times[0] or time, time
        self.seen = self.seen or line.get("masked") is False
        self.seeded = self.seeded or line.get("secret") == ledger.SEEDED
        if line["what"] == "started":
            self.began_line = self.lines
            self.start = msgspec.convert(line, Start)
            self.data_sent = {
                row["function"]: {key: str(row[key]) for key in ledger.TEXTS}
                for row in line.get("data_sent", ())
            }
        elif line["what"] == "stored":
            self.stored_files[str(line["file"])] = f"line {self.lines}, SHA-256 {line['sha256']}"
        elif line["what"] in ("sent", "received"):
            ledger.add_line(self.functions, line)
            first, _ = self.spans.get(line["function"], (self.lines, 0))
            self.spans[line["function"]] = first, self.lines
            if line["what"] == "sent":
                self.left[int(line["round"])] += int(line["bytes"])

    def exposure(self, study: Study) -> Exposure:
        """Return what the study showed of the client's documents."""
        return Exposure(
            study=study,
            rows=data_sent_in(study),
            policy=Policy(**self.start.policy),
            unit=self.start.unit,
            persons=self.start.persons,
            documents=self.start.documents,
            texts=self.start.text_bytes,
        )

    @property
    def name(self) -> str:
        """The name for citations."""
        return f"ledger of {self.client}"

    @property
    def began(self) -> str:
        """The citation of the line with which a process began."""
        return f"{self.name}, line {self.began_line:,}"

    @property
    def rows(self) -> Rows:
        """Data sent and received, one row per function."""
        return [
            row if row["replies"] else row | {"documents": 0, "masked": False}
            for row in self.functions.values()
        ]

    @property
    def head(self) -> str:
        """The digest of the last line, from the ledger's head; "" without a head."""
        head = ledger.Head.read(self.path)
        return head.sha256 if head else ""


@dataclass(frozen=True)
class RunFacts:
    """What is known of a model's run."""

    name: str  # for people
    study: dict[str, Any] = field(default_factory=dict)  # as in its file
    events: Rows = field(default_factory=list)
    ledgers: dict[str, Rows] = field(default_factory=dict)  # by client, from `LedgerFacts.rows`
    left: dict[int, int] = field(default_factory=dict)  # bytes from these clients, by round
    seeded: tuple[str, ...] = ()  # clients with a ledger whose random choices were not secret
    policies: dict[str, Policy] = field(default_factory=dict)  # by client, from its ledger
    data_sent: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # rows by function
    ended: str = ""  # day of the last line of events and ledgers, such as 2026-03-01
    place: Place = "model"

    def of_kind(self, kind: str) -> Rows:
        return [event for event in self.events if event.get("event") == kind]

    @property
    def rounds(self) -> Rows:
        """The last attempt of each round, with the bytes sent for it."""
        last = {event["round"]: event for event in self.of_kind("round")}
        left = {n: self.left.get(n, event.get("bytes_received")) for n, event in last.items()}
        return [
            last[number] | ({} if left[number] is None else {"bytes": left[number]})
            for number in sorted(last)
        ]

    @property
    def absences(self) -> Rows:
        """Missing clients with their rounds and reasons, in order of rounds."""
        rows: dict[tuple[str, str], list[int]] = {}
        last = {event["round"]: event for event in [*self.of_kind("left out"), *self.rounds]}
        for number in sorted(last):
            for client, why in last[number].get("missing", {}).items():
                rows.setdefault((client, why), []).append(number)
        return [{"client": c, "why": why, "rounds": of} for (c, why), of in rows.items()]

    @property
    def clipped(self) -> Rows:
        """Clients whose updates were clipped, with the first such round and the largest factor."""
        rows: dict[str, dict[str, Any]] = {}
        for event in self.of_kind("clipped"):
            row = rows.setdefault(event["client"], dict(event))
            row["times"] = max(row["times"], event["times"])
        return list(rows.values())


def find_model_and_run(place: str | Path) -> tuple[Path, RunFacts]:
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
    model = model_folder(place)
    is_in_run = model == Path(place) and model.resolve().name == "model"
    return model, read_run_facts(model.resolve().parent if is_in_run else Path(place))


def read_run_facts(folder: Path) -> RunFacts:
    ledgers = [LedgerFacts.read(path) for path in ledger.find_ledgers(folder).values()]
    left: Counter[int] = Counter()
    for facts in ledgers:
        left.update(facts.left)
    status = RunStatus()
    paths = [path for path in (folder / EVENTS, folder / "state" / EVENTS) if path.exists()]
    events = read_events(paths[0], status) if paths else []
    day = f"{datetime.fromtimestamp(status.updated, UTC):%Y-%m-%d}" if status.updated else ""
    return RunFacts(
        name=folder.resolve().name,
        study=_study(folder / "study.toml"),
        events=events,
        ledgers={facts.client: facts.rows for facts in ledgers},
        left=dict(left),
        seeded=tuple(facts.client for facts in ledgers if facts.seeded),
        policies={
            facts.client: Policy(
                **{
                    key: value
                    for key, value in facts.start.policy.items()
                    if key in Policy.model_fields
                }
            )
            for facts in ledgers
            if facts.began_line
        },
        data_sent={name: row for facts in ledgers for name, row in facts.data_sent.items()},
        ended=max([day, *(facts.times[1][:10] for facts in ledgers)]),
        place=place_of(folder, bool(events)),
    )


def place_of(folder: Path, ran: bool) -> Place:
    """Return whose run folder it is; "model" where nothing `ran`."""
    signs: dict[Place, bool] = {
        "client": (folder / "ledger.jsonl").exists(),
        "simulation": (folder / "clients").is_dir(),
        "server": ran,
        "model": True,
    }
    return next(place for place, is_there in signs.items() if is_there)


def _study(path: Path) -> dict[str, Any]:
    try:
        plan = read_toml(path) if path.exists() else {}
        if all(isinstance(plan.get(name, {}), dict) for name in ("about", "method", "vocabulary")):
            About(**plan.get("about", {}))  # or a ValueError
            return plan
        raise ValueError
    except ValueError:
        raise RunError(f"{path} is damaged; correct it, or remove it from the folder.") from None


def over_time(
    model: TopicModel,
    run: RunFacts,
    own: Path | None = None,
    columns: Columns | None = None,
    time: str | None = None,
) -> Grouped | None:
    """Return topics by period and their change, from `own` or a simulation's clients.

    None without times.
    """
    if own is not None:
        corpora = {"": Corpus.read(own, replace(columns or Columns(), time=time))} if time else {}
    else:
        corpora = {name: table.read(name) for name, table in _tables(run, time).items()}
    if not corpora:
        if time:
            raise DataError(
                f"There are no documents with a column {time!r} to read; name their file with "
                "--examples-from."
            )
        return None
    times = {name: as_array(corpus.times) for name, corpus in corpora.items()}
    grouped = grouped_by_time(model, corpora, times, by=_unit([*times.values()]))
    return grouped if grouped.rows else None


def _tables(run: RunFacts, time: str | None) -> dict[str, ClientData]:
    """Return where the documents of a simulation's clients are; empty for other runs."""
    tables: Mapping[str, Any] = run.study.get("clients", {}) if run.place == "simulation" else {}
    try:
        clients = {name: ClientData(**table) for name, table in tables.items()}
    except (TypeError, ValueError):
        raise StudyError("The study's [clients] tables are damaged; correct them.") from None
    dated = {n: t.model_copy(update={"time": time or t.time}) for n, t in clients.items()}
    return {name: table for name, table in dated.items() if table.time and table.data}


def _unit(times: Sequence[Times]) -> Unit | None:
    """Return a period that suits the span of the times."""
    days = np.concatenate([times_of(dates, ~missing(dates)) for dates in times])
    if days.dtype.kind != "M":
        return None  # numbers, or none
    days = days.astype("datetime64[D]")
    reach = int((days.max() - days.min()).astype(int)) if len(days) else 0
    return next((unit for unit, most in LONGEST_SPAN.items() if reach <= most), "year")
