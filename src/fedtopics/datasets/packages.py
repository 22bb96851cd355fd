"""Documents that exist on any machine: the documentation of installed Python packages."""

import ast
import re
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from fedtopics.errors import DataError
from fedtopics.files import read_bytes
from fedtopics.text.corpus import Corpus

# Packages that come with torch may be missing; the next ones then replace them.
PACKAGES = (
    "networkx",
    "scipy",
    "sklearn",
    "sympy",
    "standard-library",
    "numpy",
    "torch",
    "numba",
    "pydantic",
    "grpc",
)
MOST_PACKAGES = 7
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
SHORTEST = 20  # words of a documentation string that counts as a document
SKIPPED = {"tests", "test", "testing", "idlelib", "lib2to3", "site-packages", "turtledemo"}
CODE_LINE = re.compile(r"^\s*(>>>|\.\.\. ).*$", re.MULTILINE)
CODE_MARKS = re.compile(r"[_=\[\](){}<>\\/`:@|]")


def package_documentation(n_clients: int = 5) -> dict[str, Corpus]:
    """Read the docstrings of installed packages, one package per client.

    Clients share some topics (matrices, graphs, statistics) and have others of their own (sockets,
    polynomials). Source files are parsed, not imported; code in the text is removed.

    Parameters
    ----------
    n_clients : int in [2, 7]

    Returns
    -------
    mapping of package name to Corpus
        The documents' ids are qualified names; docstrings under 20 words are left out.
    """
    if not 2 <= n_clients <= MOST_PACKAGES:
        raise DataError(f"The demo allows 2 to {MOST_PACKAGES} clients, not {n_clients}.")
    installed = [name for name in PACKAGES if _root(name)]
    return {name: _read_package(name) for name in installed[:n_clients]}


def _read_package(name: str) -> Corpus:
    root = _root(name) or Path()
    names_by_text: dict[str, str] = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if SKIPPED & {*inside.parts} or any(part.startswith("test_") for part in inside.parts):
            continue
        for qualified, text in _documentation(path, inside):
            if len(re.findall(r"\w+", text)) >= SHORTEST:
                names_by_text.setdefault(text, qualified)
    return Corpus(
        pa.chunked_array([list(names_by_text.values())], pa.large_string()),
        pa.chunked_array([list(names_by_text)], pa.large_string()),
    )


def _root(name: str) -> Path | None:
    """Return the folder of an installed package, else None."""
    if name == "standard-library":
        return Path(sysconfig.get_paths()["stdlib"])
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _documentation(path: Path, inside: Path) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(read_bytes(path))
    except (SyntaxError, ValueError):  # templates, files of another Python version
        return
    waiting: list[tuple[str, Documented]] = [(".".join(inside.with_suffix("").parts), tree)]
    while waiting:
        name, node = waiting.pop()
        if text := ast.get_docstring(node):
            # Remove code: doctest lines, and words with characters that prose does not use.
            words = CODE_LINE.sub("", text).split()
            yield name, " ".join(w for w in words if not CODE_MARKS.search(w.strip(".,;:()")))
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting.extend(
                (f"{name}.{getattr(part, 'name', '')}", part)
                for part in node.body
                if isinstance(part, Documented)
            )
