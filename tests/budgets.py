"""Check that no folder is larger than its budget, and that budgets only fall.

The size of a folder of ``src/fedtopics`` is the lines of the Python files directly in it, comments
and blanks included. ``tests/budgets.toml`` has the budgets: of these folders, of tests, benchmarks
and experiments, and of the words of all pages, without generated parts. A commit may move a budget
within a table, but the sum of a table may not rise above that of the commit before.

    python tests/budgets.py          # check
    python tests/budgets.py --lower  # write today's sizes where they are below the budget
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = "tests/budgets.toml"
HEADER = """\
# The largest size of each room: lines of Python (comments and blanks included), words of pages.
# `make check` compares. The sum of a table may only fall from one commit to the next; a room that
# needs more takes it from another room of its table. To write the sizes that fell:
# python tests/budgets.py --lower
"""
GENERATED = re.compile(r"<!-- begin (\w+) -->.*?<!-- end \1 -->", re.DOTALL)
Budgets = dict[str, dict[str, int]]


def sizes(root: Path) -> Budgets:
    """Return today's size of every room, by table."""
    package: Counter[str] = Counter()
    home = root / "src" / "fedtopics"
    for path in home.rglob("*.py"):
        room = path.parent.relative_to(home).as_posix()
        package["ground" if room == "." else room] += lines(path)
    beside = {
        name: sum(map(lines, (root / name).rglob("*.py")))
        for name in ("tests", "benchmarks", "experiments")
    }
    pages = [root / "README.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]
    texts = (GENERATED.sub("", path.read_text("utf-8")) for path in pages)
    words = {"pages": sum(len(text.split()) for text in texts)}
    return {"package": dict(sorted(package.items())), "beside": beside, "words": words}


def lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def problems(root: Path) -> list[str]:
    """Return a sentence for each budget that is exceeded, missing, unused or larger than before."""
    budgets = tomllib.loads((root / FILE).read_text("utf-8"))
    found = []
    for table, rooms in sizes(root).items():
        given = budgets.get(table, {})
        for room, size in rooms.items():
            if room not in given:
                found.append(f"{table}: {room} has no budget: take one from another room")
            elif size > given[room]:
                found.append(f"{table}: {room} has {size:,}, and its budget is {given[room]:,}")
        found += [f"{table}: {room} is gone; remove its budget" for room in given.keys() - rooms]
        for revision in ("HEAD", "HEAD~1"):
            before = sum(budgets_at(root, revision).get(table, {}).values())
            if before and sum(given.values()) > before:
                found.append(
                    f"{table}: the budgets add up to {sum(given.values()):,}, which is more than "
                    f"the {before:,} of {revision}"
                )
    return found


def budgets_at(root: Path, revision: str) -> Budgets:
    """Return the budgets of a commit: none if it has no such file or is not here."""
    shown = subprocess.run(
        ["git", "show", f"{revision}:{FILE}"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return tomllib.loads(shown.stdout) if shown.returncode == 0 else {}


def lower(root: Path) -> None:
    """Write today's sizes where they are below the budgets, or where there is none."""
    path = root / FILE
    budgets = tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    text = HEADER
    for table, rooms in sizes(root).items():
        given = budgets.get(table, {})
        text += f"\n[{table}]\n"
        text += "".join(
            f'"{room}" = {min(size, given.get(room, size))}\n' for room, size in rooms.items()
        )
    path.write_text(text, "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lower", action="store_true", help="write sizes that fell")
    if parser.parse_args().lower:
        lower(ROOT)
    found = problems(ROOT)
    print("\n".join(found) if found else "Every room is within its budget.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
