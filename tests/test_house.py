"""Files, functions and classes stay short; how large rooms may get is in budgets.toml."""

import ast
import re
from functools import cache
from pathlib import Path

import fedtopics

HOUSE = Path(fedtopics.__file__).parent
TESTS = Path(__file__).parent
FILES = [path for path in sorted(HOUSE.rglob("*.py")) if not path.name.endswith("_pb2.py")]
GROUND = {"errors.py", "extras.py", "files.py", "escaping.py", "threads.py"}
AT_TOP = {"__init__.py", "__main__.py", "guarantees.py"} | GROUND
NO_NOUNS = {"told", "said", "asked", "came", "gone", "half", "beside", "look", "moment", "given"}
LONGEST_FILE = 400
LONGEST_FUNCTION = 50
MOST_METHODS = 20


def named(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    return [
        (named(path), node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]


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
        f"{path}: {node.name}": node.end_lineno - node.lineno + 1
        for path, node in nodes()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno
    }
    assert {name: n for name, n in long.items() if n > LONGEST_FUNCTION} == {}


def test_classes_do_one_thing() -> None:
    methods = {
        f"{path}: {node.name}": sum(
            isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) for part in node.body
        )
        for path, node in nodes()
        if isinstance(node, ast.ClassDef)
    }
    assert {name: n for name, n in methods.items() if n > MOST_METHODS} == {}
