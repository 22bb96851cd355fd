"""What is known of the program, whoever runs it: measures with tests, attacks with figures.

They are in ``measures_and_attacks.toml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedtopics.files import read_toml
from fedtopics.report.dpia_records import Records

MINIMISATION, CONFIDENTIALITY = "Data minimisation", "Integrity and confidentiality"
DESIGN, SECURITY = "Data protection by design and by default", "Security of processing"
TRANSPARENCY, ACCOUNTABILITY = "Transparency", "Accountability"
CONTROL = (
    "Beside the study's topics stands a control without documents: what public words and the "
    "encoder give by themselves. On newsgroups its coherence (NPMI) was .193, where k-means at "
    "epsilon 3 had .227: the rest is what documents told."
)
CONTROL_SOURCE = "benchmarks/results/private.md, on other documents than these"
CONDITIONS: Mapping[str, Callable[[Records], bool]] = {
    "between machines": lambda records: records.place != "simulation",
    "masked": lambda records: records.masked,
    "not masked": lambda records: not records.masked,
    "with noise": lambda records: records.private,
    "without noise": lambda records: not records.private,
    "own secret": lambda records: not records.seeded,
}


@dataclass(frozen=True)
class Measure:
    """What the program does, for which principle or requirement, and the tests that show it."""

    serves: str
    what: str
    tests: Sequence[str]
    when: Sequence[str] = ()

    def holds(self, records: Records) -> bool:
        """Whether it holds in this study."""
        return all(CONDITIONS[name](records) for name in self.when)


@dataclass(frozen=True)
class Attack:
    """What somebody can learn although all works as planned, with the figure of an experiment."""

    who: str
    what: str
    figure: str  # as docs/threat-model.md has it
    command: str
    less_by: str  # what makes it harder
    methods: Sequence[str]
    when: Sequence[str]

    def holds(self, records: Records) -> bool:
        """Whether it is possible in this study."""
        named = records.study.method.method_name in self.methods
        return named and all(CONDITIONS[name](records) for name in self.when)


_TABLES = read_toml(Path(__file__).with_suffix(".toml"))
MEASURES = tuple(Measure(**row) for row in _TABLES["measures"])
ATTACKS = tuple(Attack(**row) for row in _TABLES["attacks"])
