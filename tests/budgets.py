"""Check that no room is larger than its budget, and that what a reader pays only falls.

A size is a number of statements: nodes of the syntax tree, without imports and docstrings;
``a, b = x, y`` counts as two. Layout, names of arguments, comments and blank lines are free. The
rooms are the folders of ``src/fedtopics``; tests, benchmarks, experiments and the words of all
pages, without generated parts, have budgets as well. ``tests/budgets.toml`` has them all. A commit
may move a budget within a table, but the sum of a table may not rise above that of the commit
before, except by what is granted for new features. What a reader pays is counted in the package;
none of these numbers may rise.

    python tests/budgets.py          # check, and print all numbers
    python tests/budgets.py --lower  # write today's numbers where they are below the budget
"""

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = "tests/budgets.toml"
HEADER = """\
# The largest size of each room: statements of Python, words of pages; and, under "reader", what a
# reader of the package pays. `make check` compares. The sum of a table may only fall from one
# commit to the next; a room that needs more takes it from another room of its table. To write the
# numbers that fell: python tests/budgets.py --lower
# "granted" counts by how much tables were allowed to grow, for features that were agreed on.
"""
GENERATED = re.compile(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", re.DOTALL)
Budgets = dict[str, dict[str, int]]
# A name says what a thing is; these say only that there is one.
VAGUE = {"found", "known", "usual", "of_all", "there", "each", "kept", "own"}
# Functions of others that take any number of arguments.
TAKES_MANY = {
    "ExitStack", "add_row", "and_", "chain", "map", "max", "min", "option", "or_", "partial",
    "print", "product", "rand", "submit", "suppress", "union", "zip",
}  # fmt: skip
SCREEN = 50  # lines of a function's body
LONG = 30  # lines from which a body needs a comment that says why
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b")
SECONDS = re.compile(r"^[A-Z_]+ = [\d_.]+  # .*\bseconds\b", re.MULTILINE)
# A metric's number is a part of its definition, and not how many words are shown.
WORDS = re.compile(r"^[A-Z_]*WORDS[A-Z_]* = \d{1,2}\b(?! <<)|n(um)?_words: int = \d{1,2}\b", re.M)


def sizes(root: Path) -> Budgets:
    """Return today's size of every room, by table."""
    package: Counter[str] = Counter()
    home = root / "src" / "fedtopics"
    for path in home.rglob("*.py"):
        room = path.parent.relative_to(home).as_posix()
        package["ground" if room == "." else room] += statements(path)
    rooms = {
        name: sum(map(statements, (root / name).rglob("*.py")))
        for name in ("tests", "benchmarks", "experiments")
    }
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]
    texts = (GENERATED.sub("", path.read_text("utf-8")) for path in pages)
    words = {"pages": sum(len(text.split()) for text in texts)}
    return {
        "package": dict(sorted(package.items())),
        **{name: {name: size} for name, size in rooms.items()},
        "words": words,
        "reader": dict(sorted(costs(root, home).items())),
    }


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def statements(path: Path) -> int:
    """Count statements, without imports and docstrings."""
    count = 0
    for node in ast.walk(tree_of(path)):
        if is_text(node) or isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Assign) and is_dense(node):
            count += len(node.targets[0].elts)  # type: ignore[attr-defined]
        else:
            count += isinstance(node, ast.stmt)
    return count


def is_text(node: ast.AST) -> bool:
    """Whether a statement is only a string, such as a docstring."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def is_dense(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def costs(root: Path, home: Path) -> dict[str, int]:
    """Count what makes the package hard to read."""
    paths = sorted(home.rglob("*.py"))
    trees = {path: tree_of(path) for path in paths}
    texts = {path: path.read_text("utf-8") for path in paths}
    functions = [
        (path, node)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    many = takes_many(nodes)
    names = [node for node in nodes if isinstance(node, ast.Name)]
    public = Counter(name for tree in trees.values() for name in set(public_names(tree)))
    bodies = [body_of(texts[path].splitlines(), node) for path, node in functions]
    places = [*texts.values(), *(path.read_text("utf-8") for path in home.rglob("templates/*"))]
    project = root / "pyproject.toml"
    settings = project.read_text("utf-8") if project.exists() else ""
    ignored = re.search(r"ignore_imports = \[.*?\n\]", settings, re.DOTALL)
    return {
        "assignments of several names in one line": sum(
            isinstance(node, ast.Assign) and is_dense(node) for node in nodes
        ),
        "tuples splatted into calls": sum(len(list(splats(tree, many))) for tree in trees.values()),
        "fmt: skip": sum(text.count("# fmt: skip") for text in texts.values()),
        "vague names of variables": sum(
            name.id in VAGUE and isinstance(name.ctx, ast.Store) for name in names
        ),
        "functions of over 30 lines without a comment": sum(
            len(body) > LONG and "#" not in "".join(body) for body in bodies
        ),
        "functions of over 50 lines": sum(len(body) > SCREEN for body in bodies),
        "public names defined more than once": sum(times > 1 for times in public.values()),
        "Any in annotations": sum(name.id == "Any" for name in names),
        "imports of another room by a string": sum(
            len(set(imported_by_string(home, path, trees[path]))) for path in paths
        ),
        "ignore_imports": ignored[0].count(" -> ") if ignored else 0,
        "parameters of public functions without a text": sum(
            len(list(untold(tree))) for path, tree in trees.items() if offers(home, path)
        ),
        "settings that tests and benchmarks name at most twice": len(rarely_set(root, trees)),
        "places that define a number of words shown": sum(
            bool(WORDS.search(text)) for path, text in texts.items() if "metrics" not in path.parts
        ),
        "places that define a waiting time": sum(map(bool, map(SECONDS.search, places))),
        "places that define a colour": sum(map(bool, map(COLOUR.search, places))),
    }


def public_names(tree: ast.Module) -> Iterator[str]:
    """Yield the classes and functions of a module that others may import."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name


def offers(home: Path, path: Path) -> bool:
    """Whether `fedtopics` itself offers names of this module."""
    module = ".".join(path.relative_to(home).with_suffix("").parts)
    package = (home / "__init__.py").read_text("utf-8") if (home / "__init__.py").exists() else ""
    return f'"{module}"' in package or f"fedtopics.{module} import" in package


def untold(tree: ast.Module) -> Iterator[str]:
    """Yield the parameters that neither a function's docstring nor its class's mentions."""
    for place in (node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)):
        for node in place.body if isinstance(place, ast.ClassDef) else [place]:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                text = f"{ast.get_docstring(place)} {ast.get_docstring(node)}"
                names = [part.arg for part in [*node.args.args, *node.args.kwonlyargs]]
                yield from set(names) - {"self", "cls", *re.findall(r"\w+", text)}


def rarely_set(root: Path, trees: Mapping[Path, ast.Module]) -> set[str]:
    """Return settings, which have a description, that tests and benchmarks name at most twice."""
    folders = (root / name for name in ("tests", "benchmarks", "experiments"))
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    times = Counter(re.findall(r"\w+", " ".join(path.read_text("utf-8") for path in paths)))
    return {
        node.target.id
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Call)
        and any(part.arg == "description" for part in node.value.keywords)
        and times[node.target.id] <= 2
    }


def body_of(lines: list[str], node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the lines of a function's body, without its docstring."""
    first = node.body[1] if is_text(node.body[0]) and len(node.body) > 1 else node.body[0]
    return lines[first.lineno - 1 : node.end_lineno]


def takes_many(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names of functions that take any number of arguments."""
    return TAKES_MANY | {
        node.name.lstrip("_")
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.args.vararg
    }


def splats(tree: ast.Module, many: Collection[str]) -> Iterator[int]:
    """Yield the lines of calls that fill parameters, which have names, from a tuple.

    The functions `many` may get them from one, and a function may pass on its own.
    """
    passed_on = {
        node.args.vararg.arg
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node.args.vararg
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")).lstrip("_")
            for part in node.args:
                value = part.value if isinstance(part, ast.Starred) else None
                if value is None or name in many or getattr(value, "id", "") in passed_on:
                    continue
                if not isinstance(value, ast.GeneratorExp):
                    yield node.lineno


def imported_by_string(home: Path, path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield other rooms whose names are strings in a module that imports modules by name."""
    nodes = list(ast.walk(tree))
    if path.name == "extras.py" or not any(
        isinstance(node, ast.Name) and node.id == "import_module" for node in nodes
    ):
        return
    for node in nodes:
        value = str(node.value) if isinstance(node, ast.Constant) else ""
        match = re.match(r"fedtopics\.(\w+)", value)
        if match and match[1] != path.relative_to(home).parts[0]:
            yield match[1]


def problems(root: Path) -> list[str]:
    """Return a sentence for each budget that is exceeded, missing, unused or larger than before."""
    budgets = tomllib.loads((root / FILE).read_text("utf-8"))
    granted = budgets.get("granted", {})
    sentences = []
    for table, rooms in sizes(root).items():
        limits = budgets.get(table, {})
        for room, size in rooms.items():
            if room not in limits:
                sentences.append(f"{table}: {room} has no budget: take one from another room")
            elif size > limits[room]:
                sentences.append(
                    f"{table}: {room} has {size:,}, and its budget is {limits[room]:,}"
                )
        sentences += [
            f"{table}: {room} is gone; remove its budget" for room in limits.keys() - rooms
        ]
        for revision in ("HEAD", "HEAD~1"):
            earlier = budgets_at(root, revision)
            before = earlier.get(table, {})
            most = sum(before.values()) + granted.get(table, 0)
            most -= earlier.get("granted", {}).get(table, 0)
            if before and sum(limits.values()) > most and table != "reader":
                sentences.append(
                    f"{table}: the budgets add up to {sum(limits.values()):,}, which is more than "
                    f"the {most:,} of {revision}"
                )
            sentences += [
                f"{table}: {room} may not rise, as it does since {revision}"
                for room in before
                if table == "reader" and limits.get(room, 0) > before[room]
            ]
    return sentences


def budgets_at(root: Path, revision: str) -> Budgets:
    """Return the budgets of a commit: none if it has no such file, is not here, or had lines."""
    shown = subprocess.run(
        ["git", "show", f"{revision}:{FILE}"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    budgets = tomllib.loads(shown.stdout) if shown.returncode == 0 else {}
    return budgets if "reader" in budgets else {}


def lower(root: Path) -> None:
    """Write today's numbers where they are below the budgets, or where there is none."""
    path = root / FILE
    budgets = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    text = HEADER
    for table, rooms in sizes(root).items():
        limits = budgets.get(table, {})
        text += f"\n[{table}]\n"
        text += "".join(
            f'"{room}" = {min(size, limits.get(room, size))}\n' for room, size in rooms.items()
        )
    granted = "".join(f"{table} = {size}\n" for table, size in budgets.get("granted", {}).items())
    path.write_text(f"{text}\n[granted]\n{granted}", "utf-8")


def show(root: Path) -> None:
    for table, rooms in sizes(root).items():
        print(f"{table}: {sum(rooms.values()):,}" if table != "reader" else "what a reader pays:")
        for room, size in rooms.items():
            print(f"{size:9,}  {room}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="write numbers that fell")
    if parser.parse_args().lower:
        lower(ROOT)
    show(ROOT)
    sentences = problems(ROOT)
    print("\n".join(sentences) if sentences else "Every room is within its budget.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
