"""The documentation as a site: built without a warning, and nothing is asked of another host."""

from __future__ import annotations

import ast
import html
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import fedtopics
from fedtopics.cli import app
from fedtopics.federation.study import Study
from fedtopics.methods.registry import METHODS, find_method
from tests.helpers.pages import DOCS

if find_spec("zensical") is None:
    pytest.skip("zensical is missing", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder; a warning, as of a link that leads nowhere, would fail."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCS / "_site" / "build.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Tags(HTMLParser):
    """What a page has its browser load, and what it says."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.said: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])
        self.loaded += [
            given[name] for name in ("src", "srcset", "data", "poster") if name in given
        ]

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.said).split())


def test_every_page_is_there(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        if page != DOCS / "README.md":
            assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file()
    assert "Topic models across organisations" in Tags(site / "index.html").text
    assert (site / "CHANGELOG.html").is_file()
    assert (site / "benchmarks/results/faults.html").is_file()
    assert not (site / "_site").exists()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for address in Tags(page).loaded:
            assert not re.match(r"(\w+:)?//", address), (page, address)
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", text), sheet


def words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from commands(inner, f"{name} {inner.name}")


def test_the_reference_has_every_option(site: Path) -> None:
    text = Tags(site / "reference/commands.html").text
    for name, command in commands(app, "fedtopics"):
        section = text.partition(f"Usage: {name} ")[2].partition("Usage: ")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[0] in section, (name, parameter)


def test_the_reference_has_every_key_of_a_study(site: Path) -> None:
    text = Tags(site / "reference/study.html").text
    for method in METHODS.names:
        section = text.partition(f'[method] name = "{method}"¶')[2].partition("¶")[0]
        for key, field in type(Study.make(method={"name": method}).method).model_fields.items():
            assert key == "embedding" or f" {key} " in section, (method, key)
            assert key == "embedding" or " ".join(str(field.description).split()) in section


def test_the_reference_says_what_leaves(site: Path) -> None:
    text = words(Tags(site / "reference/clients.html").text)
    for method in METHODS.names:
        for function in find_method(method).functions:
            assert words(find_method(method).leaves(function)) in text, (method, function)


@pytest.mark.parametrize("name", ["GuidedLDA", "ShortTextClustering", "TopicEstimator"])
def test_the_reference_has_the_defaults_of_the_code(site: Path, name: str) -> None:
    page = (site / "reference/python.html").read_text(encoding="utf-8")
    section = page.partition(f'id="fedtopics.{name}"')[2].partition("</table>")[0]
    rows = [
        [html.unescape(re.sub("<[^>]+>", "", cell)).strip() for cell in row.split("</td>")]
        for row in section.split("</tr>")[1:-1]
    ]
    shown = {row[0]: ast.literal_eval(row[3]) for row in rows if row[3] != "required"}
    given = inspect.signature(getattr(fedtopics, name)).parameters
    shown.pop("**others", None)
    assert shown == {key: given[key].default for key in shown}
    assert len(shown) > 2


def test_lists_are_lists(site: Path) -> None:
    """GitHub makes a list without an empty line before it; Python-Markdown does not."""
    for page in site.rglob("*.html"):
        text = re.sub(
            r"<(pre|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        assert not re.search(r"<p>[^<]*\n(- |\d+\. |\| )", text), page
