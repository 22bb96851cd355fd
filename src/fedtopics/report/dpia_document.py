"""A document of sections with statements, tables and gaps, as Markdown or a page to print."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from markupsafe import Markup

from fedtopics.escaping import for_markdown, visible
from fedtopics.files import check_output, write_output
from fedtopics.model.figures import resource
from fedtopics.report.render import report_templates
from fedtopics.versions import VERSION

PROGRAM = f"fedtopics {VERSION}"


@dataclass(frozen=True)
class Statement:
    """A sentence and the record that it comes from, by default the program."""

    text: str
    source: str = PROGRAM


@dataclass(frozen=True)
class Gap:
    """A question for people."""

    who: str
    question: str


@dataclass(frozen=True)
class FormTable:
    """Rows under a head, and the record that they come from."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str = PROGRAM


Part = Statement | Gap | FormTable


@dataclass(frozen=True)
class Section:
    """A numbered heading and its content."""

    number: str
    title: str
    parts: list[Part] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    """A title, opening sentences, and sections in order."""

    title: str
    opening: Sequence[str]
    sections: Sequence[Section]

    @cached_property
    def sources(self) -> list[str]:
        """The records that parts name, in order of their first appearance."""
        return list(
            dict.fromkeys(
                source
                for section in self.sections
                for part in section.parts
                if not isinstance(part, Gap)
                for source in part.source.split("; ")
            )
        )

    def cited(self, source: str) -> str:
        """Return the numbers of a part's records in the list at the end."""
        return str([self.sources.index(record) + 1 for record in source.split("; ")])

    @property
    def gaps(self) -> int:
        """The number of open questions."""
        return sum(isinstance(part, Gap) for section in self.sections for part in section.parts)


def write_document(form: Document, path: Path, inputs: Sequence[Path | None] = ()) -> Path:
    """Write the document; the file's ending, .md or .html, sets the format."""
    writers = {".md": form_as_markdown, ".html": form_as_html}
    suffix = check_output(path, writers, inputs)
    return write_output(path, writers[suffix](form).encode(), writers, inputs)


def form_as_markdown(form: Document) -> str:
    return report_templates(for_markdown).get_template("dpia.md.j2").render(form=form)


def form_as_html(form: Document) -> str:
    """Return a page without scripts that loads nothing from other hosts."""
    templates = report_templates(visible)
    style = Markup(  # noqa: S704 - ours
        resource(templates, "colours.css") + resource(templates, "dpia.css")
    )
    return templates.get_template("dpia.html.j2").render(form=form, style=style)
