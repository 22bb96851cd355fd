"""What a DPIA can cite: a study, the records of a run, and the facts in ``dpia_tables.toml``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedtopics.errors import RunError
from fedtopics.federation.audit import AUDIT, Audit
from fedtopics.federation.data_sent import DataSent, data_sent_in
from fedtopics.federation.exposure import Exposure
from fedtopics.federation.ledger import find_ledgers
from fedtopics.federation.study import Study
from fedtopics.federation.study_tables import FEWEST_CLIENTS
from fedtopics.files import read_toml
from fedtopics.privacy.recipe import RECIPES
from fedtopics.report.run import LedgerFacts, Place, place_of

CITED = "study.toml"  # the study, whose fingerprint is in the annex


@dataclass(frozen=True)
class Records:
    """A study, and what its folder contains of a run."""

    folder: Path
    study: Study
    place: Place | Literal["study"]
    ledgers: Sequence[LedgerFacts]
    audit: Audit | None = None
    before: Exposure | None = None  # of the client that asks before a run

    @classmethod
    def read(
        cls, place: Path, audit: Path | None = None, before: Exposure | None = None
    ) -> Records:
        """Read a study's file or a run's folder, with the audit given or found there."""
        if place.is_file():
            records = cls(place.parent, Study.read(place), "study", [], before=before)
        elif not (place / "study.toml").is_file():
            raise RunError(f"There is no study.toml in {place}; give a run's folder, or a study.")
        else:
            ledgers = map(LedgerFacts.read, find_ledgers(place).values())
            records = cls(
                folder=place,
                study=Study.read(place / "study.toml"),
                place=place_of(place, ran=True),
                ledgers=[facts for facts in ledgers if facts.began_line],
            )
        audit_of_run = records.folder / AUDIT
        audit = audit or (audit_of_run if audit_of_run.exists() else None)
        return (
            records
            if audit is None
            else replace(records, audit=Audit.read(audit, records.study.fingerprint))
        )

    @property
    def exposures(self) -> list[tuple[str, str, Exposure]]:
        """For each client whose records are here: its name, the record, what the study shows."""
        return (
            [(facts.client, facts.began, facts.exposure(self.study)) for facts in self.ledgers]
            if self.before is None
            else [("This client", "the documents and policy given", self.before)]
        )

    @property
    def planned(self) -> Sequence[DataSent]:
        """The table of data sent before a run."""
        return data_sent_in(self.study) if self.before is None else self.before.rows

    @property
    def unit(self) -> str:
        """What sentences count, in the plural."""
        return next(
            (exposure.unit for _, _, exposure in self.exposures if exposure.unit != "documents"),
            "persons" if self.bounded == "person" else "documents",
        )

    @property
    def masked(self) -> bool:
        """Whether aggregation was secure; never in a simulation."""
        return self.study.is_secure and self.place != "simulation"

    @property
    def bounded(self) -> str:
        """Of what differential privacy bounds the effect: "person", "document", or "" without."""
        bound = self.study.differential_privacy
        return "" if bound is None else bound.unit

    @property
    def has_server(self) -> bool:
        """Whether the server is a separate process, not run by a member."""
        return self.study.server.host is None

    def size(self, name: str) -> str:
        """Return the size of a file or folder in bytes; "-" if it does not exist."""
        place = self.folder / name
        sizes = [path.stat().st_size for path in [place, *place.rglob("*")] if path.is_file()]
        return f"{sum(sizes):,}" if sizes else "-"

    @property
    def seeded(self) -> bool:
        """Whether a client's random choices came from the study's seed."""
        return any(ledger.seeded for ledger in self.ledgers)

    @property
    def has_public_noise(self) -> bool:
        """Whether noise, if there was any, came from the study's seed, as in a simulation."""
        return self.place == "simulation" or self.seeded

    def holding(self, table: str) -> list[Mapping[str, Any]]:
        """Return the measures or attacks of `TABLES` that apply to this study."""
        method = self.study.method.method_name
        return [
            row
            for row in TABLES[table]
            if method in row.get("methods", [method])
            and all(CONDITIONS[name](self) for name in row.get("when", ()))
        ]


CONDITIONS: Mapping[str, Callable[[Records], bool]] = {
    "between machines": lambda records: records.place != "simulation",
    "masked": lambda records: records.masked,
    "not masked": lambda records: not records.masked,
    "with noise": lambda records: records.bounded != "",
    "without noise": lambda records: not records.bounded,
    "minibatches": lambda records: records.study.method.draws,
    "own secret": lambda records: not records.seeded,
    "persons": lambda records: records.bounded == "person",
    "public noise": lambda records: records.bounded != "" and records.has_public_noise,
    "secret noise": lambda records: records.bounded != "" and not records.has_public_noise,
    "one client": lambda records: len(records.study.clients) < 2,
    "several clients": lambda records: len(records.study.clients) > 1,
    "not seeded": lambda records: not records.seeded,
    "seeded": lambda records: records.seeded,
    "embeddings": lambda records: records.study.method.needed_embedding is not None,
    "documents as units": lambda records: records.bounded == "document",
    "hosted": lambda records: records.study.server.host is not None,
    "groups of few": lambda records: any(
        exposure.policy.min_clients_per_group < FEWEST_CLIENTS
        for _, _, exposure in records.exposures
    ),
    "counts of all": lambda records: any(
        exposure.policy.counts_of_all for _, _, exposure in records.exposures
    ),
    "limited rounds": lambda records: any(
        exposure.policy.max_rounds for _, _, exposure in records.exposures
    ),
    "no budget": lambda records: (
        not any(exposure.policy.max_epsilon for _, _, exposure in records.exposures)
    ),
    "pairs": lambda records: records.study.method.coherence != "nothing",
    "with recipe": lambda records: records.study.method.method_name in RECIPES.names,
    "with audit": lambda records: records.audit is not None,
    "without audit": lambda records: records.audit is None,
}


TABLES = read_toml(Path(__file__).with_name("dpia_tables.toml"))
