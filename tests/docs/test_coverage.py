"""experiments/coverage.md: its names exist, each row has a verdict, papers are complete."""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.pages import ROOT

COVERAGE = ROOT / "experiments/coverage.md"
HEADER = ["what", "code", "tests", "page", "verdict"]
VERDICTS = {
    "here, as written",
    "here, read so",
    "not here",
    "holds",
    "holds in part",
    "does not hold",
    "cannot be said",
}
REASONED = {"here, read so", "not here", "holds in part", "does not hold", "cannot be said"}
SHOWN = {"here, as written", "here, read so", "holds", "holds in part"}
# Counted in the papers. The copies of F-LDA name equation 2; there must be one before it.
NUMBERED = {
    "gFedNTM": {"Equation": 7, "Algorithm": 1, "Table": 0, "Figure": 4},
    "F-LDA": {"Equation": 2, "Algorithm": 3, "Table": 1, "Figure": 13},
    "FSTC": {"Equation": 20, "Algorithm": 3, "Table": 2, "Figure": 4},
}


@dataclass(frozen=True)
class Row:
    paper: str
    what: str
    code: str
    tests: str
    page: str
    verdict: str

    @property
    def word(self) -> str:
        """What the verdict begins with, in bold."""
        bold = re.match(r"\*\*([^*]+)\*\*", self.verdict)
        return bold[1] if bold else ""


def read() -> list[Row]:
    rows: list[Row] = []
    paper = ""
    for line in COVERAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            paper = line[3:]
        elif paper and line.startswith("| ") and not line.startswith("| ---"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert len(cells) == len(HEADER), line
            if cells != HEADER:
                rows.append(Row(paper, *cells))
    return rows


ROWS = read()


def names(cell: str) -> list[str]:
    """What stands in backticks, or nothing for a dash."""
    quoted = re.findall(r"`([^`]+)`", cell)
    assert cell == (", ".join(f"`{name}`" for name in quoted) or "-")
    return quoted


@cache
def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}: {row.what[:40]}")
def test_what_a_row_names_is_there(row: Row) -> None:
    for name in names(row.code):
        assert (ROOT / "src/fedtopics" / name).is_file() or (ROOT / name).is_file(), name
    for name in names(row.tests) + re.findall(r"`(\w+/test_\w+\.py::\w+)`", row.verdict):
        file, _, function = name.partition("::")
        assert function in functions(ROOT / "tests" / file), name
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", f"{row.page} {row.verdict}")
    assert bool(links) == (row.page != "-")
    for file, anchor in links:
        page = COVERAGE.parent / file
        assert page.is_file(), file
        assert not anchor or anchor in anchors(page), anchor


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}: {row.what[:40]}")
def test_every_row_has_a_verdict(row: Row) -> None:
    assert row.word in VERDICTS, row.verdict
    if row.word in REASONED:
        assert row.verdict.removeprefix(f"**{row.word}**").strip(" :"), "and says why"
    if row.word in SHOWN:
        assert names(row.code), "what is here has code"
        assert names(row.tests), "and a test that shows it"


@pytest.mark.parametrize("paper", NUMBERED)
def test_what_a_paper_numbers_is_listed(paper: str) -> None:
    titles = [row.what for row in ROWS if row.paper == paper]
    numbered = {re.sub(r"\*\*(\w+ \d+)\*\*.*", r"\1", what) for what in titles}
    for kind, last in NUMBERED[paper].items():
        listed = {name for name in numbered if re.fullmatch(rf"{kind} \d+", name)}
        assert listed == {f"{kind} {number}" for number in range(1, last + 1)}


def test_there_are_three_papers_and_no_row_twice() -> None:
    assert {row.paper for row in ROWS} == NUMBERED.keys()
    assert Counter((row.paper, row.what) for row in ROWS).most_common(1)[0][1] == 1
