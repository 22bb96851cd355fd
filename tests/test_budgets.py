"""Budgets stop a room from growing, and their sum from rising."""

import subprocess
from pathlib import Path

import pytest

from tests import budgets


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)  # noqa: S607


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A repository with two rooms of ten statements and three pages of ten words."""
    for room in ("attic", "cellar"):
        (tmp_path / "src/fedtopics" / room).mkdir(parents=True)
        (tmp_path / "src/fedtopics" / room / "files.py").write_text("x = 1\n" * 10)
    (tmp_path / "tests").mkdir()
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "CHANGELOG.md", "docs/page.md"):
        (tmp_path / page).write_text("word " * 10)
    budgets.lower(tmp_path)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def change(root: Path, old: str, new: str) -> None:
    path = root / budgets.FILE
    path.write_text(path.read_text().replace(old, new))


def test_sizes(house: Path) -> None:
    sizes = budgets.sizes(house)
    assert set(sizes.pop("reader").values()) == {0}
    assert sizes == {
        "package": {"attic": 10, "cellar": 10},
        "tests": {"tests": 0},
        "benchmarks": {"benchmarks": 0},
        "experiments": {"experiments": 0},
        "words": {"pages": 30},
    }
    assert budgets.problems(house) == []


HARD_TO_READ = '''
"""Text and imports are free."""
import os
known, CAPS = 1, 2  # fmt: skip
WORDS = 10
PAUSE = 0.5  # seconds
INK = "#123456"
def draw(left, right): ...
def all_of(*parts): ...
def passed_on(*parts):
    """So are docstrings."""
    draw(*parts)
draw(*INK)
all_of(*INK)
'''


def test_what_a_reader_pays(house: Path) -> None:
    """Of two splats into calls, the one is of a function that takes any number."""
    (house / "src/fedtopics/attic/files.py").write_text(HARD_TO_READ)
    sizes = budgets.sizes(house)
    assert sizes["package"]["attic"] == 13
    assert {name: count for name, count in sizes["reader"].items() if count} == {
        "assignments of several names in one line": 1,
        "fmt: skip": 1,
        "places that define a colour": 1,
        "places that define a number of words shown": 1,
        "places that define a waiting time": 1,
        "tuples splatted into calls": 1,
        "vague names of variables": 1,
    }


def test_a_room_above_its_budget(house: Path) -> None:
    (house / "src/fedtopics/attic/more.py").write_text("x = 1\n")
    (house / "README.md").write_text("word " * 11)
    assert budgets.problems(house) == [
        "package: attic has 11, and its budget is 10",
        "words: pages has 31, and its budget is 30",
    ]


def test_rooms_that_come_and_go(house: Path) -> None:
    (house / "src/fedtopics/attic").rename(house / "src/fedtopics/loft")
    assert budgets.problems(house) == [
        "package: loft has no budget: take one from another room",
        "package: attic is gone; remove its budget",
    ]


def test_a_room_takes_lines_from_another(house: Path) -> None:
    change(house, '"attic" = 10', '"attic" = 12')
    more = "package: the budgets add up to 22, which is more than the 20 of HEAD"
    assert budgets.problems(house) == [more]
    git(house, "commit", "-q", "-a", "-m", "more")
    assert budgets.problems(house) == [f"{more}~1"]
    change(house, '"cellar" = 10', '"cellar" = 8')
    assert budgets.problems(house) == ["package: cellar has 10, and its budget is 8"]


def test_what_a_reader_pays_may_not_move(house: Path) -> None:
    change(house, '"fmt: skip" = 0', '"fmt: skip" = 1')
    assert budgets.problems(house) == ["reader: fmt: skip may not rise, as it does since HEAD"]


def test_lowering_never_raises(house: Path) -> None:
    for room, size in {"attic": 4, "cellar": 40}.items():
        (house / "src/fedtopics" / room / "files.py").write_text("x = 1\n" * size)
    budgets.lower(house)
    assert '"attic" = 4\n"cellar" = 10\n' in (house / budgets.FILE).read_text()
