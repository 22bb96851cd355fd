"""The report in a real browser: nothing is asked of a host, and it can be used by everybody.

Needs playwright and Chromium, and is skipped where one is missing, unless FEDTOPICS_BROWSER is
"required".
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedtopics.federation.followed import FollowedRun
from fedtopics.federation.run_folder import RunFolder
from fedtopics.harmless import visible
from fedtopics.methods.events import Listening, RoundEnded
from fedtopics.model.shown_words import Reading
from fedtopics.model.topic_model import TopicModel
from fedtopics.report import summarise, write_report
from fedtopics.report.status import status_page
from tests.helpers.hostile import hostile, unchecked, wicked_run
from tests.helpers.models import made
from tests.helpers.report_runs import (
    RUNS,
    Reported,
    embedded,
    report_of,
    reported,
    reported_model,
)

REQUIRED = os.environ.get("FEDTOPICS_BROWSER") == "required"

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
except ImportError:
    if REQUIRED:
        raise
    pytest.skip("playwright or axe-playwright-python is missing", allow_module_level=True)

# Chromium of a container: no sandbox, and nothing that it would do by itself.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
QUICKLY = {"resultTypes": ["violations"]}
WIDE, PHONE = 1400, 400
BOTH = [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        (pytest.fail if REQUIRED else pytest.skip)("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, what it said on the console, and what it asked for."""

    page: Page
    file: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def topics(self) -> list[int]:
        """The topics that are shown, in their order."""
        shown = self.page.locator("table.topics > tbody:not([hidden])")
        ids: list[str] = shown.evaluate_all("all => all.map(topic => topic.id)")
        return [int(name.removeprefix("topic-")) for name in ids]

    def topic(self, number: int) -> Locator:
        """A topic, with its list of words."""
        return self.page.locator(f"#topic-{number}")

    def button(self, number: int) -> Locator:
        """What opens a topic."""
        return self.topic(number).locator("button.words")

    def words(self, number: int) -> list[str]:
        """The full list of a topic's words."""
        cells = self.topic(number).locator("table.list tbody th")
        found: list[str] = cells.all_text_contents()
        return found

    def await_open(self, number: int) -> None:
        """Follow a link to a topic, which opens it."""
        self.page.wait_for_url(f"**#topic-{number}")
        self.topic(number).locator("tr.full").wait_for()
        assert self.is_open(number)

    def is_open(self, number: int) -> bool:
        """Whether the full list is shown, to the eye and to a reader."""
        shown = self.topic(number).locator("tr.full").is_visible()
        assert self.button(number).get_attribute("aria-expanded") == str(shown).lower()
        return shown

    def tab_to(self, wanted: str, most: int = 60) -> None:
        """Press Tab until what has the focus is of this kind."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
                return
        raise AssertionError(f"{wanted} is not reached by Tab")

    def in_every_way(self) -> Iterator[int]:
        """Show the page to wide and narrow screens, light and dark; hand out the width."""
        for width, scheme in BOTH:
            self.page.set_viewport_size({"width": width, "height": 900})
            self.page.emulate_media(color_scheme=scheme)
            yield width

    def violations(self) -> list[tuple[str, str]]:
        """What axe finds, with the first element of each."""
        found = Axe().run(self.page, options=QUICKLY).response["violations"]
        return [(each["id"], each["nodes"][0]["html"][:200]) for each in found]


Open = Callable[..., Opened]


@pytest.fixture
def opening(browser: Browser) -> Iterator[Open]:
    """Open files; in the end, none may have complained or asked for anything."""
    all_opened = []

    def open_(file: Path, width: int = WIDE, scheme: Any = "light", **how: Any) -> Opened:
        size = {"width": width, "height": 900}
        context = browser.new_context(
            viewport=size, color_scheme=scheme, reduced_motion="reduce", **how
        )
        opened = Opened(context.new_page(), file.as_uri())
        all_opened.append(opened)
        page = opened.page
        page.on("console", lambda message: opened.said.append(message.text))
        page.on("pageerror", lambda error: opened.said.append(str(error)))
        page.on("dialog", lambda dialog: (opened.said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: opened.asked.append(request.url))
        page.goto(opened.file)
        return opened

    yield open_
    for opened in all_opened:
        assert opened.said == []
        own = ("blob:", "data:", "about:")  # within the page
        asked = {url.partition("#")[0] for url in opened.asked if not url.startswith(own)}
        assert asked == {opened.file}
        opened.page.context.close()


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported(request.param, tmp_path_factory)


@pytest.fixture
def demo(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return reported("demo", tmp_path_factory)


@pytest.fixture
def many(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """A report of 50 topics and 20 clients."""
    return reported("synthetic", tmp_path_factory)


# For everybody


def test_it_opens_without_a_word_and_asks_for_nothing(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    assert opened.asked == [run.page.as_uri()]
    assert opened.page.title() == f"{run.summary['title']}: {run.summary['kind']}s"
    assert opened.topics() == [topic["topic"] for topic in run.summary["topics"]]
    for topic in opened.topics():
        opened.button(topic).click()
    assert opened.said == []
    assert opened.asked == [run.page.as_uri()]


def test_axe_finds_nothing(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    opened.button(opened.topics()[0]).click()
    for details in opened.page.locator("details").all():
        details.locator("summary").click()
    large = len(run.summary["topics"]) > 20  # axe takes its time: of the largest report once
    for place, _ in enumerate(opened.in_every_way(), 1):
        if not large or place == len(BOTH):
            assert opened.violations() == []


def test_a_phone_scrolls_down_and_not_across(run: Reported, opening: Open) -> None:
    opened = opening(run.page, PHONE, has_touch=True, is_mobile=True)
    opened.button(opened.topics()[0]).tap()
    assert opened.is_open(opened.topics()[0])
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= PHONE
    full = opened.topic(opened.topics()[0]).locator("tr.full > td")
    assert full.evaluate("cell => cell.scrollWidth <= cell.clientWidth"), "nor does a list of words"
    wide = opened.page.locator("table.shares").evaluate("table => table.scrollWidth")
    box = opened.page.locator(".scroll:has(table.shares)")
    assert box.evaluate("box => box.scrollWidth") >= wide, "what is wider scrolls by itself"


def test_colours_follow_the_reader(demo: Reported, opening: Open) -> None:
    def colours(scheme: str) -> tuple[str, str, str]:
        page = opening(demo.page, scheme=scheme).page
        found: tuple[str, str, str] = tuple(
            page.evaluate(
                """() => {
                  const body = getComputedStyle(document.body);
                  const text = document.querySelector("#figure-map svg text");
                  return [body.backgroundColor, body.color, getComputedStyle(text).fill];
                }"""
            )
        )
        return found

    light, dark = colours("light"), colours("dark")
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(20, 23, 29)"
    assert light[1] == light[2] != dark[1] == dark[2]


def test_what_is_printed(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page, scheme="dark")
    first = opened.topics()[0]
    opened.button(first).click()
    for hidden in (".tools", "nav", ".downloads", ".lambda"):
        assert opened.page.locator(hidden).first.is_visible()
    opened.page.emulate_media(media="print")
    for hidden in (".tools", "nav", ".downloads", ".lambda"):
        assert not any(each.is_visible() for each in opened.page.locator(hidden).all())
    assert opened.page.locator("#figure-map svg").is_visible()
    assert opened.page.locator("table.shares").is_visible()
    assert len(opened.words(first)) == 30
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    assert opened.page.pdf().startswith(b"%PDF-")


def test_without_scripts_it_can_be_read(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page, java_script_enabled=False)
    for topic in demo.summary["topics"]:
        row = opened.topic(topic["topic"])
        assert row.locator("button.words").text_content() == " ".join(topic["words"])
    assert opened.page.locator("table.shares").is_visible()


# Search and sort


def found_by(lists: dict[str, Any], wanted: str) -> set[int]:
    """Topics of which a word of the full list has the wanted text in it."""
    return {int(k) for k, (words, _) in lists.items() if any(wanted in word for word, *_ in words)}


def test_search_finds_words_deep_in_a_list(many: Reported, opening: Open) -> None:
    opened = opening(many.page)
    lists = embedded(many.html)
    search, found = opened.page.get_by_label("Search"), opened.page.get_by_role("status")
    for topic in (0, 17, 49):
        word = lists[str(topic)][0][29][0]
        assert word not in many.model.topics(10)[topic]
        search.fill(word)
        assert set(opened.topics()) == found_by(lists, word) >= {topic}
        assert len(opened.topics()) < 50
        assert found.text_content() == f"{len(opened.topics())} of 50"
    search.fill("  TERM1 ")
    assert set(opened.topics()) == found_by(lists, "term1"), "in any case, without spaces"
    search.fill("zanzibar")
    assert opened.topics() == []
    assert found.text_content() == "0 of 50"
    search.fill("")
    assert opened.topics() == [topic["topic"] for topic in many.summary["topics"]]
    assert found.text_content() == ""


def test_search_by_number_and_label(opening: Open, tmp_path: Path) -> None:
    opened = opening(reported_model(made(), tmp_path).page)
    search = opened.page.get_by_label("Search")
    search.fill("2")
    assert opened.topics() == [2]
    search.fill("SHRUBS")
    assert opened.topics() == [0]


def test_search_by_keyboard(many: Reported, opening: Open) -> None:
    opened = opening(many.page)
    opened.tab_to("#search")
    opened.page.keyboard.type("7")
    assert set(opened.topics()) == {7} | found_by(embedded(many.html), "7")
    opened.tab_to("#sort")
    opened.page.keyboard.type("number")
    assert opened.topics() == sorted(opened.topics())


def test_sort(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    topics = {topic["topic"]: topic for topic in demo.summary["topics"]}
    orders = {
        "share": lambda k: -topics[k]["share"],
        "number": lambda k: k,
        "coherence": lambda k: -topics[k]["coherence"]["npmi"],
        "name": lambda k: topics[k]["words"][0],
    }
    sort = opened.page.get_by_label("Sort by")
    assert sort.input_value() == "share"
    seen = set()
    for by in ("number", "coherence", "name", "share"):
        sort.select_option(by)
        assert opened.topics() == sorted(topics, key=orders[by]), by
        seen.add(tuple(opened.topics()))
    assert len(seen) > 2, "the orders are not the same"
    opened.button(opened.topics()[-1]).click()
    sort.select_option("number")
    assert opened.is_open(demo.summary["topics"][-1]["topic"]), "what is open stays open"


def test_what_has_no_coherence_is_last(opening: Open, tmp_path: Path) -> None:
    opened = opening(reported_model(made(), tmp_path).page)
    opened.page.get_by_label("Sort by").select_option("coherence")
    assert opened.topics() == [0, 2, 1]


def test_sorted_and_searched_at_once(many: Reported, opening: Open) -> None:
    opened = opening(many.page)
    opened.page.get_by_label("Search").fill("term12")
    opened.page.get_by_label("Sort by").select_option("number")
    expected = sorted(found_by(embedded(many.html), "term12"))
    assert 1 < len(expected) < 50
    assert opened.topics() == expected


# Lists of words


def test_topics_open_by_keyboard(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    first, second = opened.topics()[:2]
    opened.tab_to("button.words")
    assert opened.page.evaluate("document.activeElement.getAttribute('aria-controls')") == (
        f"full-{first}"
    )
    assert not opened.is_open(first)
    for key in ("Enter", "Space"):
        opened.page.keyboard.press(key)
        assert opened.is_open(first)
        assert not opened.is_open(second)
        assert opened.words(first) == run.model.topics(30)[first], "as it is read"
        opened.page.keyboard.press(key)
        assert not opened.is_open(first)
    opened.tab_to("button.words", most=1)
    opened.page.keyboard.press("Enter")
    assert opened.is_open(second)


def test_the_slider_ranks_as_the_model_does(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    topic = opened.topics()[-1]
    opened.button(topic).click()
    opened.page.keyboard.press("Tab")
    slider, shown = (opened.topic(topic).locator(kind) for kind in ("input[type=range]", "output"))
    assert slider.evaluate("slider => slider === document.activeElement")
    assert slider.get_attribute("aria-label") == f"lambda of {run.summary['kind']} {topic}"
    for key, lambda_ in (("ArrowLeft", 0.0), ("ArrowRight", 1.0)):
        for _ in range(10):
            opened.page.keyboard.press(key)
        assert shown.text_content() == f"{lambda_:.1f}"
        assert opened.words(topic) == run.model.topics(30, lambda_=lambda_)[topic]
    for step in range(9, -1, -1):
        opened.page.keyboard.press("ArrowLeft")
        assert shown.text_content() == f"{step / 10:.1f}"
        assert opened.words(topic) == run.model.topics(30, lambda_=step / 10)[topic]


def test_numbers_of_words(opening: Open, tmp_path: Path) -> None:
    one = np.array([[0, 0, 0, 0, 8.0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    model = made(reading=Reading(1.0, by_sums=True), word_sums=one)
    opened = opening(reported_model(model, tmp_path).page)
    for topic in range(3):
        opened.button(topic).click()
    cells = opened.topic(0).locator("table.list tbody tr")
    assert cells.first.all_inner_texts() == ["__init__\t100 %\t10 %"]
    assert opened.topic(1).locator("table.list tbody td").all_inner_texts()[:2] == ["25 %", "30 %"]
    assert "NaN" not in opened.page.locator("body").inner_html()


# Links


def test_a_circle_of_the_map_opens_its_topic(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    circles = opened.page.locator("#figure-map svg a")
    numbers = [topic["topic"] for topic in run.summary["topics"]]
    assert circles.count() == len(numbers)
    # By keyboard: from the figure to its first circle.
    opened.page.locator("#figure-map .drawing").focus()
    opened.page.keyboard.press("Tab")
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
    circles.last.click()
    opened.await_open(numbers[-1])
    assert opened.topics() == [numbers[-1]]


def test_circles_have_names(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    tools = opened.page.context.new_cdp_session(opened.page)
    nodes = tools.send("Accessibility.getFullAXTree")["nodes"]
    links = [node["name"]["value"] for node in nodes if node["role"]["value"] == "link"]
    for topic in demo.summary["topics"]:
        # In the map, and in the table of clients.
        assert links.count(f"{topic['topic']} {' '.join(topic['words'][:3])}") == 2


def test_a_link_from_outside_opens_its_topic(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    other = opened.topics()[2]
    page = opened.page
    page.goto("about:blank")
    page.goto(f"{demo.page.as_uri()}#topic-{other}")
    assert opened.is_open(other)


def test_links_of_the_table_open_topics(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    last = demo.summary["topics"][-1]["topic"]
    opened.page.locator(f'table.shares a[href="#topic-{last}"]').click()
    opened.await_open(last)


def test_the_first_tab_skips_to_the_topics(demo: Reported, opening: Open) -> None:
    opened = opening(demo.page)
    opened.page.keyboard.press("Tab")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.id") == "search"


# Files


def test_topics_as_csv(run: Reported, opening: Open) -> None:
    opened = opening(run.page)
    with opened.page.expect_download() as download:
        opened.page.get_by_role("link", name="as CSV").click()
    assert download.value.suggested_filename == f"{run.summary['kind']}s.csv"
    with Path(download.value.path()).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows == run.csv
    assert [int(row["topic"]) for row in rows] == opened.topics()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_as_files(demo: Reported, opening: Open, scheme: str) -> None:
    opened = opening(demo.page, scheme=scheme)
    colour = {"light": "rgb(31, 36, 48)", "dark": "rgb(230, 233, 239)"}[scheme]
    for name in ("map", "clients", "loss"):
        figure = opened.page.locator(f"#figure-{name}")
        box = figure.locator("svg").evaluate(
            "svg => [svg.getAttribute('width'), svg.getAttribute('height')]"
        )
        for kind in ("SVG", "PNG"):
            with opened.page.expect_download() as download:
                figure.get_by_role("button", name=f"Save {name} as {kind}").click()
            assert download.value.suggested_filename == f"{name}.{kind.lower()}"
            data = Path(download.value.path()).read_bytes()
            if kind == "SVG":
                picture = ElementTree.fromstring(data)  # noqa: S314 - ours
                assert picture.tag == "{http://www.w3.org/2000/svg}svg"
                assert picture.get("color") == colour
                assert not re.search(rb"https?://(?!www\.w3\.org/)", data)
            else:
                assert data[:8] == b"\x89PNG\r\n\x1a\n"
                sides = [int.from_bytes(data[i : i + 4], "big") for i in (16, 20)]
                assert sides == [2 * int(side) for side in box]


# Odd reports


def test_a_report_with_documents(demo: Reported, opening: Open, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(demo.folder / "model", tmp_path / "model"))
    own = report_of(folder, documents=demo.corpora["north"])
    opened = opening(own.page)
    warning = opened.page.get_by_role("note")
    assert "Not to be shared." in str(warning.text_content())
    topic = next(k for k, found in own.summary["examples"].items() if found)
    opened.button(topic).click()
    text = own.summary["examples"][topic][0]["text"]
    for width in opened.in_every_way():
        assert warning.is_visible()
        assert opened.topic(topic).get_by_text(text).is_visible()
        assert opened.violations() == []
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("model", [hostile(), unchecked()], ids=["hostile", "unchecked"])
def test_words_names_and_titles_of_others(model: TopicModel, opening: Open, tmp_path: Path) -> None:
    """No script runs, nothing leaves, nothing is wider than the page."""
    page = write_report(summarise(model, wicked_run()), tmp_path / "report.html")
    opened = opening(page)
    shown = {visible(word) for topic in model.topics(30) for word in topic}
    for topic in range(3):
        opened.button(topic).click()
    assert {word for topic in range(3) for word in opened.words(topic)} == shown
    for details in opened.page.locator("details").all():
        details.locator("summary").click()
    opened.page.get_by_label("Search").fill("onerror")
    assert 0 < len(opened.topics()) <= 3
    opened.page.get_by_label("Search").fill("")
    assert opened.page.locator("script").count() == 2
    assert opened.page.locator("img, section b, section style, form, iframe, object").count() == 0
    for width in (PHONE, 900, WIDE):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        scrolled = "all => all.filter(box => box.scrollWidth > box.clientWidth).length"
        assert opened.page.locator("#topics > .scroll").evaluate_all(scrolled) == 0
    if " " not in shown:  # which names no row
        assert opened.violations() == []


def test_a_notebook_shows_words_of_others(opening: Open, tmp_path: Path) -> None:
    for name, model in (("hostile", hostile()), ("unchecked", unchecked())):
        page = tmp_path / f"{name}.html"
        page.write_text(f"<!doctype html><meta charset=utf-8>{model._repr_html_()}", "utf-8")
        opened = opening(page)
        assert opened.page.locator("td").count() == 12
        assert opened.page.locator("script, img, b, svg").count() == 0
        for width in (PHONE, 900, WIDE):
            opened.page.set_viewport_size({"width": width, "height": 900})
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_chart_shows_words_of_others(opening: Open, tmp_path: Path) -> None:
    """As Colab does, with a chart's own page: its words stand within a script there."""
    page = tmp_path / "chart.html"
    page.write_text(unchecked().plot_topics().to_html(inline=True), "utf-8")
    opened = opening(page)
    bars = opened.page.locator(".mark-rect path")
    bars.first.wait_for()
    assert bars.count() == 3
    bars.first.hover()
    opened.page.locator("#vg-tooltip-element.visible").wait_for()
    assert opened.page.locator("#vg-tooltip-element :is(script, img, b, svg)").count() == 0


def test_a_script_of_another_is_not_executed(
    browser: Browser, demo: Reported, tmp_path: Path
) -> None:
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
    opened.locator("button.words").first.click()
    assert opened.locator("table.list tbody th").count() == 30, "its own script was"
    assert opened.title() == f"{demo.summary['title']}: topics"
    opened.close()
    with server, pytest.raises(BlockingIOError):
        server.accept()


def test_without_figures(
    demo: Reported, opening: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedtopics.model.figures.available", lambda: False)
    opened = opening(reported_model(demo.model, tmp_path).page)
    assert opened.page.locator("svg").count() == 0
    assert opened.page.locator("#map").get_by_text("Figures need an extra").is_visible()
    opened.button(opened.topics()[0]).click()
    assert opened.is_open(opened.topics()[0])
    assert opened.violations() == []


@pytest.mark.parametrize(("width", "scheme"), [(PHONE, "light"), (WIDE, "dark")])
def test_the_page_of_a_run_that_is_followed(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    """It fits, can be read by all, and asks for nothing."""
    run = RunFolder(tmp_path, "study1")
    next(run.rounds(0, 3))
    run.event(Listening("x:1", ["north", "a-client-with-a-name-that-is-rather-long-" * 3]))
    run.event(RoundEnded(1, {"documents": 1, "topics": [{"words": ["oak"] * 40}]}, {}))
    path = tmp_path / "page.html"
    path.write_text(status_page(FollowedRun(tmp_path)))
    run.close()
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert asked == [path.as_uri()]
    violations = Axe().run(page, options=QUICKLY).response["violations"]
    assert [each["id"] for each in violations] == ["meta-refresh"], "which is what it is for"
    page.close()
