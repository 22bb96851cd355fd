"""Files and functions stay short, and names say what things are; sizes of rooms: budgets.toml."""

import ast
import re
from pathlib import Path

import fedtopics
from tests import budgets

HOUSE = Path(fedtopics.__file__).parent
TESTS = Path(__file__).parent
FILES = [path for path in sorted(HOUSE.rglob("*.py")) if not path.name.endswith("_pb2.py")]
GROUND = {
    "errors.py",
    "extras.py",
    "files.py",
    "escaping.py",
    "threads.py",
    "waiting.py",
}
AT_TOP = {"__init__.py", "__main__.py", "guarantees.py", "versions.py"} | GROUND
NO_NOUNS = {"told", "said", "asked", "came", "gone", "half", "beside", "look", "moment", "given"}
LONGEST_FILE = 800
# An estimator has the name of what it trains, and each registry has a function `register`.
IN_TWO_ROOMS = {
    "CombinedTM",
    "FLDA",
    "LDA",
    "NMF",
    "NeuralLDA",
    "ProdLDA",
    "ZeroShotTM",
    "register",
}


def named(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def imported(node: ast.AST) -> list[str]:
    """The modules that a statement imports, and the names that it takes from them."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def test_ground() -> None:
    assert {path.name for path in HOUSE.glob("*.py")} == AT_TOP


def test_files_are_not_too_long() -> None:
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in HOUSE.rglob("*.py")}
    assert {named(path): n for path, n in lines.items() if n > LONGEST_FILE} == {}


def test_no_test_needs_another_test() -> None:
    """What several tests use is in tests/helpers."""
    found = [
        f"{path.relative_to(TESTS).as_posix()}:{node.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if any(part.startswith("test_") for name in imported(node) for part in name.split("."))
    ]
    assert found == []


def test_names_say_what_a_thing_is() -> None:
    """A name is a noun of its type or a verb, not a word of the sentence that it is told in."""
    found = [
        f"{named(path)}:{getattr(node, 'lineno', 1)}: {name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for field in ("id", "attr", "arg", "name", "asname", "module")
        if isinstance(name := getattr(node, field, None), str)
        and NO_NOUNS & {*re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W", "_", name).lower().split("_")}
    ]
    assert found == []


def test_functions_fit_a_screen() -> None:
    long = {
        f"{named(path)}: {node.name}": len(body)
        for path in FILES
        for node in ast.walk(budgets.tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and len(body := budgets.body_of(path.read_text("utf-8").splitlines(), node))
        > budgets.SCREEN
    }
    assert long == {}


def test_a_public_name_belongs_to_one_room() -> None:
    rooms: dict[str, set[str]] = {}
    for path in FILES:
        for name in budgets.public_names(budgets.tree_of(path)):
            rooms.setdefault(name, set()).add(path.parent.relative_to(HOUSE).as_posix())
    assert {name for name, where in rooms.items() if len(where) > 1} == IN_TWO_ROOMS
