"""A real browser for tests: pages that are opened, what they say, and what they ask for.

Needs playwright and Chromium, and is skipped where one is missing, unless FEDTOPICS_BROWSER is
"required".
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("FEDTOPICS_BROWSER") == "required"

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
except ImportError:
    if REQUIRED:
        raise
    pytest.skip("playwright or axe-playwright-python is missing", allow_module_level=True)

__all__ = [
    "BOTH",
    "PHONE",
    "QUICKLY",
    "WIDE",
    "Axe",
    "Browser",
    "Open",
    "Opened",
    "expect",
    "launched",
    "opener",
]

# Chromium of a container: no sandbox, and nothing that it would do by itself.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
QUICKLY = {"resultTypes": ["violations"]}
WIDE = 1400
PHONE = 400
BOTH = [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")]


@contextmanager
def launched() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        (pytest.fail if REQUIRED else pytest.skip)("there is no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Opened:
    page: Page
    file: str
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def topics(self) -> list[int]:
        shown = self.page.locator("li.topic:not([hidden])")
        ids: list[str] = shown.evaluate_all("all => all.map(topic => topic.id)")
        return [int(name.removeprefix("topic-")) for name in ids]

    def topic(self, number: int) -> Locator:
        return self.page.locator(f"#topic-{number}")

    def button(self, number: int) -> Locator:
        return self.topic(number).locator("summary")

    def words(self, number: int) -> list[str]:
        return list(self._cells(number).all_text_contents())

    def open(self, number: int) -> None:
        """Open a topic by mouse; its list of words is filled in a little later."""
        self.button(number).click()
        self._cells(number)

    def _cells(self, number: int) -> Locator:
        cells = self.topic(number).locator("table.list tbody th")
        cells.first.wait_for(state="attached")
        return cells

    def await_open(self, number: int) -> None:
        """Follow a link to a topic, which opens it."""
        self.page.wait_for_url(f"**#topic-{number}")
        self.topic(number).locator("details[open]").wait_for()
        assert self.is_open(number)

    def is_open(self, number: int) -> bool:
        return self.topic(number).locator("table.list").is_visible()

    def tab_to(self, wanted: str, most: int = 60) -> None:
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
        return [
            (broken["id"], broken["nodes"][0]["html"][:200])
            for broken in Axe().run(self.page, options=QUICKLY).response["violations"]
        ]


Open = Callable[..., Opened]


@contextmanager
def opener(browser: Browser) -> Iterator[Open]:
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
        within_page = ("blob:", "data:", "about:")
        assert {
            url.partition("#")[0] for url in opened.asked if not url.startswith(within_page)
        } == {opened.file}
        opened.page.context.close()
