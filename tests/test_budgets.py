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
    """A repository with two rooms of ten lines and three pages of ten words."""
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
    assert budgets.sizes(house) == {
        "package": {"attic": 10, "cellar": 10},
        "beside": {"tests": 0, "benchmarks": 0, "experiments": 0},
        "words": {"pages": 30},
    }
    assert budgets.problems(house) == []


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


def test_lowering_never_raises(house: Path) -> None:
    for room, size in {"attic": 4, "cellar": 40}.items():
        (house / "src/fedtopics" / room / "files.py").write_text("x = 1\n" * size)
    budgets.lower(house)
    assert '"attic" = 4\n"cellar" = 10\n' in (house / budgets.FILE).read_text()
