"""What a form can cite: a study's file, and the records of a run in its folder; who is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedtopics.errors import RunError
from fedtopics.extras import VERSION
from fedtopics.federation.exposure import AUDIT, Audit
from fedtopics.federation.ledger import (
    SEEDED,
    Head,
    client_of,
    find_ledgers,
    read_ledger,
    summarise_ledger,
)
from fedtopics.federation.study import Study, addresses
from fedtopics.methods.registry import Exchange
from fedtopics.report.dpia_document import Gap, Part, Statement
from fedtopics.secure.said import CHOSEN, LEAVES

CONTROLLER, OFFICER, EACH = "the controller", "the data protection officer", "each participant"
PROGRAM = f"fedtopics {VERSION}"
Place = Literal["study", "client", "server", "simulation"]
Parts = Sequence[Part]


@dataclass(frozen=True)
class Flow:
    """What left for a function of the client's half: how often, how much, by which lines."""

    function: str
    replies: int
    documents: int  # fewest that one is a sum over
    bytes_left: int
    bytes_came: int
    masked: bool
    first: int  # line
    last: int

    @property
    def how(self) -> str:
        """How it left: in masked sums, as part of the masks, or in the clear."""
        if self.masked:
            return "in masked sums"
        makes_masks = self.function.startswith("secure.") and self.function != CHOSEN
        return "to make masks" if makes_masks else "in the clear"


@dataclass
class LedgerFacts:
    """What a client's ledger tells."""

    client: str
    path: Path
    lines: int = 0
    began_line: int = 0  # the last that says who began with what; 0 of earlier versions
    documents: int = 0
    text_bytes: int = 0
    version: str = ""
    spent: float | None = None  # epsilon, of the client's account
    policy: Mapping[str, Any] = field(default_factory=dict)
    has_certificate: bool = False
    seeded: bool = False  # whether draws followed from the study's seed, which all know
    times: tuple[str, str] = "", ""  # of the first and the last line
    kept: dict[str, str] = field(default_factory=dict)  # files, with the lines that name them
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)  # lines, by function

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
            first, _ = self.spans.get(line["function"], (self.lines, 0))
            self.spans[line["function"]] = first, self.lines

    @property
    def name(self) -> str:
        """What to cite it by."""
        return f"ledger of {self.client}"

    @cached_property
    def flows(self) -> list[Flow]:
        """What left, a row a function."""
        return [
            Flow(
                row["function"], row["replies"], row["documents"] or 0, row["bytes"],
                row["bytes_of_totals"], row["masked"], *self.spans[row["function"]],
            )
            for row in summarise_ledger(self.path)
        ]  # fmt: skip

    @property
    def head(self) -> str:
        """The digest of the last line, as the head has it; nothing of earlier versions."""
        head = Head.read(self.path)
        return head.sha256 if head else ""


@dataclass(frozen=True)
class Records:
    """A study, and what its folder has of a run."""

    folder: Path
    study: Study
    place: Place
    ledgers: Sequence[LedgerFacts]
    audit: Audit | None = None

    @classmethod
    def read(cls, place: Path, audit: Path | None = None) -> Records:
        """Read a study's file, or a run's folder; RunError or StudyError if it is neither.

        An audit that is not named is looked for there; RunError if it is of another study.
        """
        read = cls._read(place)
        usual = read.folder / AUDIT
        audit = audit or (usual if usual.exists() else None)
        if audit is None:
            return read
        return replace(read, audit=Audit.read(audit, read.study.fingerprint))

    @classmethod
    def _read(cls, place: Path) -> Records:
        if place.is_file():
            return cls(place.parent, Study.read(place), "study", [])
        if not (place / "study.toml").is_file():
            raise RunError(f"There is no study.toml in {place}; name a run's folder, or a study.")
        ledgers = [LedgerFacts.read(path) for path in find_ledgers(place).values()]
        kind: Place = "client" if (place / "ledger.jsonl").exists() else "server"
        kind = "simulation" if (place / "clients").is_dir() else kind
        return cls(place, Study.read(place / "study.toml"), kind, ledgers)

    @property
    def cited(self) -> str:
        """How the study is cited: by the fingerprint that all participants have in common."""
        return f"study.toml, fingerprint {self.study.fingerprint}"

    @property
    def masked(self) -> bool:
        """Whether who adds saw sums alone; not in one process, nor with masks that all know."""
        return self.study.masked and self.place != "simulation" and not self.seeded

    @property
    def private(self) -> bool:
        """Whether what leaves is under a bound for each document."""
        return self.study.privacy is not None

    @property
    def sees(self) -> str:
        """What who adds saw, in words."""
        if self.study.masked and self.seeded:
            return "masked replies, whose masks it can undo: they followed from the study's seed"
        return "sums over at least three clients" if self.masked else "the reply of each"

    @property
    def has_server(self) -> bool:
        """Whether a server adds up, which none of the participants is."""
        return not addresses(self.study)

    @property
    def adder(self) -> str:
        """Who adds up what participants send."""
        if self.place == "simulation":
            return "the one process of this simulation"
        return "the server" if self.has_server else "the participant that adds up"

    @property
    def exchanges(self) -> list[Exchange]:
        """What the study asks of each client."""
        return self.study.registration.exchanges(self.study.method)

    def leaves(self, function: str) -> str:
        """Say what leaves with a function, as its own documentation does."""
        return LEAVES.get(function) or self.study.registration.leaves(function)

    def size(self, name: str) -> str:
        """Return how large a file or folder is; "-" if it is not there."""
        place = self.folder / name
        files = [place, *place.rglob("*")] if place.exists() else []
        sizes = [path.stat().st_size for path in files if path.is_file()]
        return f"{sum(sizes):,}" if sizes else "-"

    @property
    def seeded(self) -> bool:
        """Whether draws of a client followed from the study's seed, as it says."""
        return any(ledger.seeded for ledger in self.ledgers)


Fill = Callable[[Records], Parts]
Filled = tuple[str, str, Fill | None]  # number and title of a section, and what fills it


def asks(who: str, *questions: str) -> Fill:
    """Return what fills a section with questions alone."""
    return lambda records: [Gap(who, question) for question in questions]


def said_or_asked(records: Records, name: str, who: str, question: str) -> Part:
    """Return what the study's [about] says, or the question."""
    rows = dict(records.study.about.rows())
    if name in rows:
        return Statement(f"{name.capitalize()}: {rows[name]}", f"{records.cited}, [about] {name}")
    return Gap(who, question)
