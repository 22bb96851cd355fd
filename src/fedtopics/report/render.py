"""A summary as one HTML file that loads nothing from other hosts, and as Markdown."""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from fedtopics.escaping import for_markdown, visible
from fedtopics.files import check_output, write_output
from fedtopics.model import figure_layout as layout
from fedtopics.model import figures
from fedtopics.model.exports import as_csv
from fedtopics.report.summary import Summary

CURVES = {  # title by key of a round
    "loss": "Loss",
    "clients": "Clients whose updates counted",
    "bytes": "Bytes sent by the clients",
    "seconds": "Seconds",
}
STYLES = "colours.css", "figures.css", "report.css", "topics.css", "print.css"
SCRIPTS = "topics.js", "documents.js", "labels.js", "save.js"


def write_report(
    summary: Summary, path: str | Path, inputs: Sequence[str | Path | None] = ()
) -> Path:
    """Write a report as HTML, and next to it as Markdown.

    Parameters
    ----------
    summary : dict
        From `summarise`.
    path : path
        The HTML file; the other one has the ending .md.
    inputs : sequence of paths, optional
        Files that must not be overwritten.

    Returns
    -------
    path
        The HTML file.

    Raises
    ------
    InputError
        If the ending is not .html, or a file exists that is not a report.
    """
    page = Path(path)
    check_output(page, [".html"], inputs)
    write_output(page.with_suffix(".md"), markdown(summary).encode(), [".md"], inputs)
    return write_output(page, html(summary).encode(), [".html"], inputs)


def html(summary: Summary) -> str:
    """Return the report as a self-contained page; its digest lets browsers run only our script."""
    templates = report_templates(visible)
    script = "".join(figures.resource(templates, name) for name in SCRIPTS)
    return templates.get_template("report.html.j2").render(
        s=summary,
        **figures.drawn(summary),
        tree=layout.tree(summary["tree"], len(summary["topics"])),
        curves=[
            (name, title, curve)
            for name, title in CURVES.items()
            if (curve := layout.curve(summary["rounds"], name))
        ],
        style=Markup(  # noqa: S704 - ours, as the next
            "".join(figures.resource(templates, name) for name in STYLES)
        ),
        script=Markup(script),  # noqa: S704
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_for_script(
            {
                t["topic"]: [[[visible(word), *shares] for word, *shares in t["full"]], t["orders"]]
                for t in summary["topics"]
            }
        ),
        csv="data:text/csv;base64,"
        + base64.b64encode(as_csv(summary["topics"]).encode("utf-8-sig")).decode(),
    )


def markdown(summary: Summary) -> str:
    return report_templates(for_markdown).get_template("report.md.j2").render(s=summary)


def report_templates(show: Callable[[str], str]) -> Environment:
    """Return the environment of figures, with the report's templates and filters."""
    templates = figures.figure_templates(show, PackageLoader("fedtopics.report"), in_report=True)
    templates.filters |= {"bytes": _bytes, "number": _number}
    return templates


def _for_script(content: Any) -> Markup:
    """Return JSON that cannot end its script element."""
    plain = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Markup(  # noqa: S704
        plain.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    )


def _bytes(number: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number = number / 1000
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


def _number(value: float) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
