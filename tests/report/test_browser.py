"""The report in a real browser: nothing is asked of a host, and it can be used by everybody."""

import base64
import hashlib
import re
import shutil
import socket
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown import Markdown
from markdown_it import MarkdownIt

from fedtopics import TopicModel
from fedtopics.escaping import visible
from fedtopics.model.card import card
from fedtopics.model.exports import as_markdown
from fedtopics.report import summarise, write_report
from fedtopics.report.render import markdown
from tests.helpers.browser import BOTH, PHONE, WIDE, Browser, Open, Opened, expect
from tests.helpers.hostile import hostile, unchecked, wicked_run
from tests.helpers.models import made
from tests.helpers.report_runs import Reported, embedded, report_of, reported

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=["flda", "fstc"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported(request.param, tmp_path_factory)


@pytest.fixture
def opened(run: Reported, opening: Open) -> Opened:
    return opening(run.page)


@pytest.fixture
def many(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported("synthetic", tmp_path_factory)


def test_it_opens_without_a_word_and_asks_for_nothing(run: Reported, opened: Opened) -> None:
    assert opened.page.title() == f"{run.summary['title']}: {run.summary['kind']}s"
    assert opened.topics() == [topic["topic"] for topic in run.summary["topics"]]
    for topic in opened.topics():
        opened.open(topic)
    assert opened.asked == [run.page.as_uri()]


def test_axe_finds_nothing(run: Reported, opened: Opened) -> None:
    opened.open(opened.topics()[0])
    for details in opened.page.locator("#made details").all():
        details.locator("summary").click()
    large = len(run.summary["topics"]) > 20  # axe takes its time: of the largest report once
    for place, _ in enumerate(opened.in_every_way(), 1):
        if not large or place == len(BOTH):
            assert opened.violations() == []


def test_what_is_printed(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page, scheme="dark")
    opened.open(opened.topics()[0])
    for hidden in (".tools", "nav", ".downloads", ".lambda", "#left", "#made"):
        assert opened.page.locator(hidden).first.is_visible()
    opened.page.emulate_media(media="print")
    for hidden in (".tools", "nav", ".downloads", ".lambda", "#left", "#made"):
        assert not any(element.is_visible() for element in opened.page.locator(hidden).all())
    assert opened.page.locator("#figure-map svg.narrow").is_visible()
    assert opened.page.locator("table.topics .printed").first.is_visible()
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"


def found_by(lists: dict[str, Any], wanted: str) -> set[int]:
    """Topics of which a word of the full list has the wanted text in it."""
    return {int(k) for k, (words, _) in lists.items() if any(wanted in word for word, *_ in words)}


def test_search_finds_words_deep_in_a_list(many: Reported, opening: Open) -> None:
    opened = opening(many.page)
    lists = embedded(many.html)
    search = opened.page.get_by_label("Search")
    status = opened.page.get_by_role("status")
    for topic in (0, 17, 49):
        word = lists[str(topic)][0][29][0]
        assert word not in many.model.topics(10)[topic]
        search.fill(word)
        assert set(opened.topics()) == found_by(lists, word) >= {topic}
        assert len(opened.topics()) < 50
        assert status.text_content() == f"{len(opened.topics())} of 50"
    search.fill("  TERM1 ")
    assert set(opened.topics()) == found_by(lists, "term1"), "in any case, without spaces"
    search.fill("zanzibar")
    assert opened.topics() == []
    assert status.text_content() == "0 of 50"
    search.fill("")
    assert opened.topics() == [topic["topic"] for topic in many.summary["topics"]]
    assert status.text_content() == ""


def test_sort(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    topics = {topic["topic"]: topic for topic in demo.summary["topics"]}
    orders = {
        "share": lambda k: -topics[k]["share"],
        "number": lambda k: k,
        "coherence": lambda k: -topics[k]["coherence"]["npmi"],
        "name": lambda k: ", ".join(topics[k]["words"][:3]),
    }
    sort = opened.page.get_by_label("Sort by")
    assert sort.input_value() == "share"
    seen = set()
    for by in ("number", "coherence", "name", "share"):
        sort.select_option(by)
        assert opened.topics() == sorted(topics, key=orders[by]), by
        seen.add(tuple(opened.topics()))
    assert len(seen) > 2, "the orders are not the same"
    opened.open(opened.topics()[-1])
    sort.select_option("number")
    assert opened.is_open(demo.summary["topics"][-1]["topic"]), "what is open stays open"


def test_topics_open_by_keyboard(run: Reported, opened: Opened) -> None:
    first, second = opened.topics()[:2]
    opened.button(first).focus()
    assert not opened.is_open(first)
    for key in ("Enter", "Space"):
        opened.page.keyboard.press(key)
        assert opened.is_open(first)
        assert not opened.is_open(second)
        assert opened.words(first) == run.model.topics(30)[first], "as it is read"
        opened.page.keyboard.press(key)
        assert not opened.is_open(first)
    opened.tab_to("summary", most=3)
    opened.page.keyboard.press("Enter")
    assert opened.is_open(second)


def test_the_slider_ranks_as_the_model_does(run: Reported, opened: Opened) -> None:
    topic = opened.topics()[-1]
    opened.open(topic)
    opened.page.keyboard.press("Tab")
    slider, shown = (opened.topic(topic).locator(kind) for kind in ("input[type=range]", "output"))
    assert slider.evaluate("slider => slider === document.activeElement")
    assert slider.get_attribute("aria-label") == f"relevance of {run.summary['kind']} {topic}"
    for key, relevance in (("ArrowLeft", 0.0), ("ArrowRight", 1.0)):
        for _ in range(10):
            opened.page.keyboard.press(key)
        assert shown.text_content() == f"{relevance:.1f}"
        assert opened.words(topic) == run.model.topics(30, relevance=relevance)[topic]
    for step in range(9, -1, -1):
        opened.page.keyboard.press("ArrowLeft")
        assert shown.text_content() == f"{step / 10:.1f}"
        assert opened.words(topic) == run.model.topics(30, relevance=step / 10)[topic]


def test_a_circle_of_the_map_opens_its_topic(run: Reported, opened: Opened) -> None:
    circles = opened.page.locator("#figure-map svg.wide a")
    numbers = [topic["topic"] for topic in run.summary["topics"]]
    assert circles.count() == len(numbers)
    opened.tab_to("#figure-map svg.wide a")
    assert circles.first.evaluate("circle => circle === document.activeElement")
    opened.page.keyboard.press("Enter")
    opened.await_open(numbers[0])
    expect(opened.topic(numbers[0])).to_be_in_viewport()
    # The same circle again, after the topic was closed.
    opened.button(numbers[0]).click()
    assert not opened.is_open(numbers[0])
    circles.first.dispatch_event("click")
    assert opened.is_open(numbers[0])
    # By mouse, where a search hides the topic.
    opened.page.get_by_label("Search").fill("zanzibar")
    assert opened.topics() == []
    circles.last.locator("circle").first.click()
    opened.await_open(numbers[-1])
    assert opened.topics() == [numbers[-1]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_as_files(demo: Reported, opening: Open, scheme: str) -> None:
    opened = opening(demo.page, scheme=scheme)
    colour = {"light": "rgb(27, 33, 48)", "dark": "rgb(232, 235, 241)"}[scheme]
    for name in ("map", "loss"):
        figure = opened.page.locator(f"#figure-{name}")
        box = figure.locator("svg").first.bounding_box()
        assert box is not None
        for kind in ("SVG", "PNG"):
            with opened.page.expect_download() as download:
                figure.get_by_role("button", name=f"Save {name} as {kind}").click()
            assert download.value.suggested_filename == f"{name}.{kind.lower()}"
            data = Path(download.value.path()).read_bytes()
            if kind == "SVG":
                picture = ElementTree.fromstring(data)  # noqa: S314 - ours
                assert picture.tag == "{http://www.w3.org/2000/svg}svg"
                fills = {text.get("style") for text in picture.iter(f"{SVG}text")}
                assert all(f"fill: {colour}" in str(style) for style in fills)
                assert not re.search(rb"https?://(?!www\.w3\.org/)", data)
            else:
                assert data[:8] == b"\x89PNG\r\n\x1a\n"
                sides = [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)]
                assert sides == [2 * round(box[side]) for side in ("width", "height")]


def test_a_report_with_documents(demo: Reported, opening: Open, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo.folder / "model", tmp_path / "model"))
    report = report_of(folder, documents=demo.corpora["north"])
    opened = opening(report.page)
    warning = opened.page.get_by_role("note")
    assert "Do not share." in str(warning.text_content())
    topic = next(k for k, examples in report.summary["examples"].items() if examples)
    opened.open(topic)
    text = report.summary["examples"][topic][0]["text"]
    for width in opened.in_every_way():
        assert warning.is_visible()
        assert opened.topic(topic).get_by_text(text).is_visible()
        assert opened.violations() == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_words_names_and_titles_of_others(model: TopicModel, opening: Open, tmp_path: Path) -> None:
    """No script runs, nothing leaves, nothing is wider than the page."""
    opened = opening(write_report(summarise(model, wicked_run()), tmp_path / "report.html"))
    shown = {visible(word) for topic in model.topics(30) for word in topic}
    for topic in range(3):
        opened.open(topic)
    assert {word for topic in range(3) for word in opened.words(topic)} == shown
    for details in opened.page.locator("#made details").all():
        details.locator("summary").click()
    opened.page.get_by_label("Search").fill("onerror")
    assert 0 < len(opened.topics()) <= 3
    opened.page.get_by_label("Search").fill("")
    assert opened.page.locator("script").count() == 2
    assert opened.page.locator("img, b, section style, form, iframe, object").count() == 0
    for width in (PHONE, 900, WIDE):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        cut = "all => all.filter(card => card.scrollWidth > card.clientWidth).length"
        assert opened.page.locator("li.topic").evaluate_all(cut) == 0
    if " " not in shown:  # which names no row
        assert opened.violations() == []


FIRST = "report.csv", b'id;text\n1;"Oaks; here"\n2;"the ELM of\na line"\n3;an elm\n4;elmy\n'
LATIN = "report.csv", "text\nth\u00e9 elm".encode("cp1252")
LINES = "report.jsonl", b'{"text": "no"}\n{"text": "an elm"}\n'
PLAIN = "report.txt", b"\xef\xbb\xbfan elm\nother\n"
EMPTY = "report.csv", b"text\n"


@pytest.mark.parametrize(
    ("file", "status", "texts"),
    [
        (FIRST, "2 of 4 documents contain it as it is written.", ["the ELM of\na line", "an elm"]),
        (LATIN, "1 of 1 documents contain it as it is written.", ["th\u00e9 elm"]),
        (LINES, "1 of 2 documents contain it as it is written.", ["an elm"]),
        (PLAIN, "1 of 2 documents contain it as it is written.", ["an elm"]),
        (EMPTY, "This file has no documents", []),
    ],
)
def test_a_word_leads_to_the_readers_own_documents(
    opening: Open, tmp_path: Path, file: tuple[str, bytes], status: str, texts: list[str]
) -> None:
    opened = opening(write_report(summarise(made()), tmp_path / "report.html"))
    name, content = file
    opened.page.locator(".cloud span", has_text="elm").first.click()
    dialog = opened.page.locator("dialog")
    assert dialog.locator("h2").inner_text() == "\u201celm\u201d in your documents"
    assert opened.violations() == []
    chosen = {"name": name, "mimeType": "text/plain", "buffer": content}
    dialog.locator("input").set_input_files(chosen)  # type: ignore[arg-type]
    expect(dialog.locator("[role=status]")).to_contain_text(status)
    assert [item.text_content() for item in dialog.locator("li").all()] == texts
    assert [mark.text_content().lower() for mark in dialog.locator("mark").all()] == (
        ["elm"] * len(texts)
    )
    assert opened.asked == [(tmp_path / "report.html").as_uri()]


PLOTS = ["topics", "clients", "map", "words", "similarity", "hierarchy"]


@pytest.mark.parametrize("name", [f"plot_{name}" for name in PLOTS])
def test_a_figure_in_a_notebook(opening: Open, tmp_path: Path, name: str) -> None:
    """Its styles hold within it alone, and words of others are no elements."""
    figure = getattr(unchecked(), name)()
    page = tmp_path / "figure.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><table id=other><th>x</table>{figure._repr_html_()}",
        "utf-8",
    )
    opened = opening(page)
    assert opened.page.locator("script, img, b, a[href]").count() == 0
    padding = "getComputedStyle(document.querySelector('#other th')).padding"
    assert opened.page.evaluate(padding) == "1px"
    for width in (PHONE, 900, WIDE):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        shown = opened.page.locator("svg.map, .topics, .bars, .words, .heat, .tree")
        assert sum(element.is_visible() for element in shown.all()) >= 1


def test_a_script_of_others_is_not_run(browser: Browser, demo: Reported, tmp_path: Path) -> None:
    """Even if one were in the page: the browser executes the one with the right digest."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.0)
    host = f"http://127.0.0.1:{server.getsockname()[1]}"
    inserted = (
        "<script>document.title = 'script'</script>"
        f"<img src=x onerror=\"document.title = 'handler'\"><img src={host}/x>"
        f"<style>@import url({host}/y)</style><script src={host}/z></script>"
        "<a id=here href=\"javascript:document.title = 'link'\">here</a>"
    )
    page = tmp_path / "report.html"
    page.write_text(demo.html.replace("<main>", f"<main>{inserted}"), encoding="utf-8")
    opened = browser.new_page()
    opened.goto(page.as_uri())
    opened.locator("#here").click()
    opened.locator("li.topic summary").first.click()
    opened.locator("table.list tbody th").first.wait_for()
    assert opened.locator("table.list tbody th").count() == 30, "its own script was"
    assert opened.title() == f"{demo.summary['title']}: topics"
    opened.close()
    with server, pytest.raises(BlockingIOError):
        server.accept()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    page = write_report(
        summarise(unchecked(), wicked_run()), tmp_path_factory.mktemp("pages") / "report.html"
    )
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
    for text in ("`fedtopics audit log FOLDER`", "`--insecure-seed`", "- Study: `", "words, `"):
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
def test_markdown_makes_no_tag_of_others(model: TopicModel, render: Callable[[str], str]) -> None:
    tables = as_markdown(model.get_topic_info())
    for text in (card(model), tables, markdown(summarise(model, wicked_run()))):
        assert {tag.strip("/") for tag in re.findall(r"<([^>\s]*)", render(text))} <= TAGS


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_markdown_shows_words_and_labels_as_they_are(model: TopicModel) -> None:
    rows = model.get_topic_info()
    page = COMMON.render(as_markdown(rows))
    cells = [unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", page)]
    columns = len(cells) // len(rows)
    for row, words, label in zip(rows, cells[2::columns], cells[1::columns], strict=True):
        assert words == visible(" ".join(" ".join(row["words"]).split()))
        assert label == visible(" ".join(row["label"].split()))
