"""Take what pages link to outside docs/ into the site; fill the reference in.

Pages are written for readers of the repository: their links lead to files of it. README.md of the
repository is the site's first page.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from generated import PARTS
from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST = ROOT / "README.md"
ROW = re.compile(r"^\|.*", re.MULTILINE)  # of a table
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=[)#\s])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that the site's pages lead to."""
    contents = files.get_file_from_path("README.md")
    if contents:  # docs/README.md is a table of contents, which the site has
        files.remove(contents)
    waiting = [FIRST, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    waiting += [path for file in files.documentation_pages() for path in _linked(_origin(file))]
    while waiting:
        path = waiting.pop()
        place = _place(path)
        if files.get_file_from_path(place):
            continue
        file = File.generated(config, place, abs_src_path=str(path))
        files.append(file)
        waiting += _linked(path)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let a page's links lead to where their files are in the site; fill the reference in."""
    here = _origin(page.file)

    def moved(link: re.Match[str]) -> str:
        target = (here.parent / link[1]).resolve()
        if not _of_repository(target):
            return link[1]
        return os.path.relpath(_place(target), Path(page.file.src_uri).parent)

    text = ROW.sub(_bare, LINK.sub(moved, markdown))
    for name, part in PARTS.items():
        if f"<!-- {name} -->" in text:
            text = text.replace(f"<!-- {name} -->", part())
    return text


def _bare(row: re.Match[str]) -> str:
    """Take the backslashes away that | needs in a table's code at GitHub, but not here."""
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def _origin(file: File) -> Path:
    return Path(str(file.abs_src_path)).resolve()


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
