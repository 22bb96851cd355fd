"""The docstrings' sections as mkdocstrings understands them.

"Leaves the client" is a section of our own. Of parameters that are described together, griffe would
show the first one's type and default for all, and of choices the first as the default: each
parameter is given an entry of its own, and choices are left to the signature.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import griffe

TITLE = "Leaves the client"
LEAVES = re.compile(rf"^{TITLE}\n((?: {{4}}.*\n?)+)", re.MULTILINE)
PARAMETERS = re.compile(r"(?<=^Parameters\n-{10}\n)[\s\S]*?(?=^\S.*\n-{3,}$|\Z)", re.MULTILINE)
ENTRY = re.compile(r"^(\w.*?)( : .*)?\n((?:\n* {4}.*\n?)*)", re.MULTILINE)


class Sections(griffe.Extension):
    """Write docstrings as griffe reads them, before it does."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change an object's docstring, if it has one."""
        if obj.docstring:
            text = LEAVES.sub(_underlined, obj.docstring.value)
            obj.docstring.value = PARAMETERS.sub(lambda found: _one_each(found[0]), text)


def _underlined(found: re.Match[str]) -> str:
    return f"{TITLE}\n{'-' * len(TITLE)}\n{dedent(found[1])}"


def _one_each(entries: str) -> str:
    return ENTRY.sub(_split, f"{entries.rstrip()}\n") + "\n"


def _split(entry: re.Match[str]) -> str:
    names, kind, meaning = entry.groups()
    kind = "" if not kind or kind.startswith(" : {") else kind
    return "".join(f"{name}{kind}\n{meaning.rstrip()}\n" for name in re.split(r",\s*", names))
