"""A form: sections of statements, tables and gaps, written as Markdown or as a page to print.

A statement says which record it comes from. A gap is what no record says: who has to fill it in,
and the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from markupsafe import Markup

from fedtopics.extras import VERSION
from fedtopics.files import check_output, write_output
from fedtopics.harmless import for_markdown, visible
from fedtopics.model.figures import resource
from fedtopics.report.render import environment

PROGRAM = f"fedtopics {VERSION}"


@dataclass(frozen=True)
class Statement:
    """A sentence, and the record that it comes from; of the program where none is named."""

    text: str
    source: str = PROGRAM
    kind: ClassVar[str] = "said"


@dataclass(frozen=True)
class Gap:
    """What people have to answer."""

    who: str
    question: str
    kind: ClassVar[str] = "gap"


@dataclass(frozen=True)
class Table:
    """Rows under a head, and the record that they come from."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str
    kind: ClassVar[str] = "table"


Part = Statement | Gap | Table


@dataclass(frozen=True)
class Section:
    """A numbered heading and what is under it."""

    number: str
    title: str
    parts: list[Part] = field(default_factory=list)

    @property
    def level(self) -> int:
        """How deep it is: 1 for a section, 2 for what is in one, 3 for what is in that."""
        return 1 + self.number.count(".")


@dataclass(frozen=True)
class Document:
    """A title, what is to be said before everything else, and sections in their order."""

    title: str
    opening: Sequence[str]
    sections: Sequence[Section]

    @property
    def gaps(self) -> int:
        """How many questions are left."""
        return sum(isinstance(part, Gap) for each in self.sections for part in each.parts)


def write_document(form: Document, path: Path, inputs: Sequence[Path | None] = ()) -> Path:
    """Write a form, as its file's name ends: .md or .html; an InputError for another ending."""
    writers = {".md": markdown, ".html": html}
    suffix = check_output(path, writers, inputs)
    return write_output(path, writers[suffix](form).encode(), writers, inputs)


def markdown(form: Document) -> str:
    """Return a form as Markdown."""
    made = environment(escaped=False, show=for_markdown)
    return made.get_template("dpia.md.j2").render(form=form)


def html(form: Document) -> str:
    """Return a form as a page without scripts, which asks no host for anything."""
    made = environment(escaped=True, show=visible)
    style = Markup(resource(made, "dpia.css"))  # noqa: S704 - ours
    return made.get_template("dpia.html.j2").render(form=form, style=style)
