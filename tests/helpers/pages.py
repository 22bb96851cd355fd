"""Pages of the documentation as their readers use them: block by block."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.registries import restored

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TUTORIALS = [*sorted(DOCS.glob("tutorials/*.md")), DOCS / "how-to/dask.md"]  # all are typed
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "experiments").rglob("*.md")),
    *sorted(DOCS.rglob("*.md")),
]

FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page: sh, python, toml or text; a title is the file that it is saved as."""

    page: str
    number: int
    kind: str
    title: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}"

    def commands(self) -> Iterator[str]:
        """Lines of a shell's block, continued ones as one, without comments."""
        for line in self.text.replace("\\\n", " ").splitlines():
            command = re.sub(r"(^|\s+)#.*", "", line)
            if command:
                yield command


@cache
def blocks(page: Path, *kinds: str) -> list[Block]:
    name = page.relative_to(ROOT).as_posix()
    fences = FENCE.findall(page.read_text(encoding="utf-8"))
    numbered = (
        Block(name, number, kind, title or None, text)
        for number, (kind, title, text) in enumerate(fences, 1)
    )
    return [block for block in numbered if not kinds or block.kind in kinds]


@cache
def run(page: Path) -> dict[str, Any]:
    """Run a page's Python, one block after the other, in an empty folder; return its names."""
    names: dict[str, Any] = {"__name__": page.stem}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), restored():
        for block in blocks(page, "python"):
            exec(compile(block.text, str(block), "exec", dont_inherit=True), names)  # noqa: S102
    return names
