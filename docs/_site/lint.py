"""Check the prose of pages, docstrings, comments, messages and templates.

Findings are printed as `file:line: rule: text`. docs/_site/phrases.toml lists the phrases.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULES = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))
PHRASES = [(re.compile(rf"\b(?:{of})\b", re.IGNORECASE), say) for of, say in RULES["say"].items()]
WORDS = RULES["limits"]["words_in_a_sentence"]
CELL = RULES["limits"]["words_in_a_cell"]
SENTENCE = re.compile(r"(?<=[.!?:;])[\"')*]*\s+(?=[\"'(*\[`A-Z\d]|fedtopics\b|code\b)")
FENCE = re.compile(
    r"<!-- begin (\w+).*?<!-- end \1|^( *)```.*?^\2```|^---\n.*?^---$|<!--.*?-->|<[^>]+>",
    re.MULTILINE | re.DOTALL,
)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def pages() -> Iterator[Path]:
    """Yield the pages that are written by hand."""
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "experiments").rglob("*.md"))


def of_page(text: str) -> Iterator[tuple[int, str]]:
    """Check a page: phrases everywhere but in code, long sentences, long cells of tables."""
    text = FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    text = LINK.sub(r"\1", CODE.sub("code", text))
    yield from of_text(text)
    for line, block in _blocks(text):
        if block.startswith("|"):
            for row, cells in enumerate(block.splitlines()):
                longest = max(len(cell.split()) for cell in cells.split("|"))
                if longest > CELL:
                    yield line + row, f"a cell of {longest} words (at most {CELL})"
        else:
            for sentence in SENTENCE.split(block):
                if (count := len(re.findall(r"\w[\w'-]*", sentence))) > WORDS:
                    start = " ".join(sentence.split()[:6])
                    yield line, f"a sentence of {count} words (at most {WORDS}): {start} ..."


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield paragraphs, list entries and tables, each with the number of its first line."""
    line = 1
    for part in re.split(r"(\n\s*\n|\n(?= *(?:[-*]|\d+\.) ))", text):
        if part.strip():
            yield line, part.strip()
        line += part.count("\n")


def of_text(text: str) -> Iterator[tuple[int, str]]:
    """Check a text for phrases, over the ends of its lines."""
    flat = re.sub(r"\s", " ", text)
    for phrase, say in PHRASES:
        for found in phrase.finditer(flat):
            yield text.count("\n", 0, found.start()) + 1, f"{found[0]!r}: {say}"


def of_code(text: str) -> Iterator[tuple[int, str]]:
    """Check a module: comments, docstrings, and strings that contain a phrase of three words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from ((token.start[0], finding) for _, finding in of_text(token.string))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and re.search(r"[A-Za-z]+ [A-Za-z]+ ", str(node.value)):
            prose = CODE.sub("code", str(node.value))
            yield from ((node.lineno + n - 1, finding) for n, finding in of_text(prose))


def findings() -> Iterator[str]:
    """Check everything, file by file."""
    package = ROOT / "src/fedtopics"
    checks = dict.fromkeys(pages(), of_page)
    checks |= dict.fromkeys(sorted(package.rglob("*.py")), of_code)
    checks |= dict.fromkeys(sorted(package.rglob("*.j2")), of_text)
    for path, check in checks.items():
        for line, finding in sorted(set(check(path.read_text("utf-8")))):
            yield f"{path.relative_to(ROOT)}:{line}: {finding}"


if __name__ == "__main__":
    found = list(findings())
    print("\n".join(found) or "The prose keeps to the rules.")
    sys.exit(bool(found))
