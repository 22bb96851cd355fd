"""Reports of models and runs whose every text others wrote to do harm."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from html import unescape

import pytest
from markdown import Markdown
from markdown_it import MarkdownIt

from fedtopics.harmless import visible
from fedtopics.model.card import card
from fedtopics.model.exports import as_markdown
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import summarise, write_report
from fedtopics.report.render import markdown
from tests.helpers.hostile import hostile, unchecked, wicked_run
from tests.helpers.report_runs import embedded


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    page = write_report(summarise(unchecked(), wicked_run()), folder / "report.html")
    return {
        file.suffix: file.read_text(encoding="utf-8") for file in (page, page.with_suffix(".md"))
    }


def test_every_character_prints(pages: dict[str, str]) -> None:
    for page in pages.values():
        assert [line for line in page.split("\n") if visible(line) != line] == []
    for words, _ in embedded(pages[".html"]).values():
        assert [word for word, *_ in words if visible(word) != word] == []


def test_the_page_has_its_own_scripts_alone(pages: dict[str, str]) -> None:
    page = pages[".html"]
    data, script = re.findall(r"<script\b[^>]*>(.*?)</script\s*>", page, re.DOTALL | re.IGNORECASE)
    assert page.count("<script") == 2
    assert "<" not in data
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert f"script-src 'sha256-{digest}';" in unescape(policy[1])
    assert policy[1].startswith("default-src 'none';")
    assert "base-uri 'none'; form-action 'none'" in policy[1]


def test_no_mark_of_markdown_is_anothers(pages: dict[str, str]) -> None:
    twin = re.sub(r"<!-- fedtopics [0-9a-f]{64} -->\n\Z", "", pages[".md"])
    ours = ("`fedtopics ledger FOLDER`", "`--secret-from-seed`", "- Study: `", "words, `")
    for text in ours:
        twin = twin.replace(text, "")
    twin = re.sub(r"`$", "", twin, flags=re.MULTILINE)  # ends of the two that have a digest
    assert not re.search(r"(?<!\\)(?:\\\\)*[<`*]", twin)
    tables: dict[int, set[int]] = {}
    for number, block in enumerate(re.split(r"\n\n+", pages[".md"])):
        for line in block.splitlines():
            if line.startswith("|"):
                cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
                tables.setdefault(number, set()).add(cells)
    assert len(tables) > 5
    assert all(len(cells) == 1 for cells in tables.values())


TAGS = {"h1", "h2", "p", "ul", "li", "code", "table", "thead", "tbody", "tr", "th", "td"}
COMMON = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
DOCS = Markdown(extensions=["tables", "attr_list", "md_in_html", "fenced_code", "admonition"])


@pytest.mark.parametrize("render", [COMMON.render, DOCS.convert], ids=["GitHub's", "MkDocs'"])
@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_markdown_becomes_a_page_without_anothers_tag(
    model: TopicModel, render: Callable[[str], str]
) -> None:
    tables = as_markdown(model.get_topic_info())
    for text in (card(model), tables, markdown(summarise(model, wicked_run()))):
        page = render(text)
        assert {tag.strip("/") for tag in re.findall(r"<([^>\s]*)", page)} <= TAGS


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_markdown_shows_words_and_labels_as_they_are(model: TopicModel) -> None:
    rows = model.get_topic_info()
    page = COMMON.render(as_markdown(rows))
    cells = [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", page)]
    columns = len(cells) // len(rows)
    for row, words, label in zip(rows, cells[2::columns], cells[1::columns], strict=True):
        assert words == visible(" ".join(" ".join(row["words"]).split()))
        assert label == visible(" ".join(row["label"].split()))
