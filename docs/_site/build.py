"""Build the site: what is in docs/, what its pages link to outside it, and the reference filled in.

Pages are written for readers of the repository: their links lead to files of it. Here they are
written anew, with links that lead to pages of the site; README.md of the repository is its first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from generated import filled

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST = ROOT / "README.md"
ROW = re.compile(r"^\|.*", re.MULTILINE)  # of a table
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=[)#\s])")


def main(folder: Path) -> int:
    """Write the pages, and the site of them to site/ in a folder; return the exit status."""
    pages = folder / "pages"
    own = Path(__file__).parent
    shutil.rmtree(pages, ignore_errors=True)
    for source in _sources():
        place = pages / _place(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            place.write_text(_page(source), encoding="utf-8")
        else:
            shutil.copyfile(source, place)
    shutil.copyfile(own / "mkdocs.yml", folder / "mkdocs.yml")
    path = os.pathsep.join([str(own), str(ROOT / "src")])
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    os.chdir(folder)
    os.environ["PYTHONPATH"] = path
    return subprocess.run(command, check=False).returncode  # noqa: S603 - a fixed command


def _sources() -> set[Path]:
    """Find the files of docs/, and those outside that they lead to."""
    of_site = Path(__file__).parent
    waiting = [path for path in DOCS.rglob("*") if path.is_file() and of_site not in path.parents]
    waiting.remove(DOCS / "README.md")  # a table of contents, which the site has
    waiting += [FIRST, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _linked(path)
    return found


def _page(source: Path) -> str:
    """Return a page whose links lead to where their files are in the site, the reference in it."""
    here = Path(_place(source)).parent

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        return os.path.relpath(_place(target), here) if _of_repository(target) else link[1]

    text = filled(source.read_text(encoding="utf-8"), site=True)
    return ROW.sub(_bare, LINK.sub(moved, text))


def _bare(row: re.Match[str]) -> str:
    """Take the backslashes away that | needs in a table's code at GitHub, but not here."""
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def _linked(page: Path) -> Iterator[Path]:
    """Find the files outside docs/ that a page links to."""
    if page.suffix != ".md":
        return
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if _of_repository(target) and not target.is_relative_to(DOCS):
            yield target


def _of_repository(path: Path) -> bool:
    return path.is_file() and path.is_relative_to(ROOT)


def _place(path: Path) -> str:
    """Say where a file of the repository is in the site."""
    if path in (FIRST, DOCS / "README.md"):
        return "index.md"
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
