"""Pictures of the report, for its documentation: each view on a phone, a tablet and a desk.

The study is made up: letters to five offices of a city over two years (`tests/helpers/letters.py`).
Each picture shows one view side by side at 390, 768 and 1280 pixels, light and dark; one more is
the printed page, and one the beginning of the report. A digest of what the pictures show is next to
them; a test fails when the report's templates and texts have another, until they are taken again.
"""

import hashlib
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.common import ROOT, arguments
from fedtopics.terminal.run_report import write_report_of
from tests.helpers.letters import letters_run

FIGURES = ROOT / "docs" / "figures"
SCREENS = (390, "light"), (390, "dark"), (768, "light"), (1280, "dark")
VIEWS = {
    "header": "header",
    "map": "#map",
    "change": "#change",
    "topics": "#topics",
    "clients": "#clients",
    "tree": "#tree",
    "left": "#left",
}
TALLEST = 900
GAP = 24
SCALE = 0.6
PAPER = 720, 1040  # pixels of a printed page, less its margins
QUALITY = 50
PACKAGE = ROOT / "src" / "fedtopics"
SHOWN = "report/templates/*", "model/templates/*", "report/*.py", "guarantees.toml"
DIGEST = FIGURES / "report.sha256"


def digest_of_texts() -> str:
    """Return a digest of the templates and texts that the report shows."""
    paths = sorted(path for pattern in SHOWN for path in PACKAGE.glob(pattern) if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def opened(browser: Browser, page: Path, width: int, scheme: str) -> Page:
    how: Any = {"color_scheme": scheme, "reduced_motion": "reduce"}
    shown = browser.new_page(viewport={"width": width, "height": 900}, **how)
    shown.goto(page.as_uri())
    return shown


def picture_of(page: Page, view: str) -> Image.Image:
    """Return a view with the page's margins, not longer than is shown."""
    if view == "#map" and page.viewport_size and page.viewport_size["width"] > 1000:
        page.locator("svg.wide a .disc").nth(2).hover()
    top, height, width = page.locator(view).evaluate(
        "e => [e.getBoundingClientRect().top + scrollY, e.offsetHeight, innerWidth]"
    )
    above = min(top, 12 if view != "header" else 60)
    clip = {"x": 0, "y": top - above, "width": width, "height": min(height + 2 * above, TALLEST)}
    return Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))  # type: ignore[arg-type]


def beside(pictures: list[Image.Image]) -> Image.Image:
    width = sum(picture.width for picture in pictures) + GAP * (len(pictures) + 1)
    height = max(picture.height for picture in pictures) + 2 * GAP
    whole = Image.new("RGB", (width, height), "#8d95a3")
    x = GAP
    for picture in pictures:
        whole.paste(picture, (x, GAP))
        x += picture.width + GAP
    return whole


def shot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot()))


def save(picture: Image.Image, folder: Path, name: str) -> None:
    """Write a picture, smaller than it was, and say how large it is."""
    path = folder / f"report-{name}.webp"
    size = [round(side * SCALE) for side in picture.size]
    small = picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)
    small.save(path, quality=QUALITY, method=6)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def main() -> None:
    given = arguments(__doc__)
    out, screens = (given.folder, SCREENS[3:]) if given.quick else (FIGURES, SCREENS)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        page = write_report_of(letters_run(Path(name), part=0.2 if given.quick else 1.0))
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        pages = [opened(browser, page, *screen) for screen in screens]
        for view, selector in VIEWS.items():
            save(beside([picture_of(shown, selector) for shown in pages]), out, view)
        first = opened(browser, page, 1280, "light")
        first.set_viewport_size({"width": 1280, "height": 1330})
        save(shot(first), out, "first")
        first.emulate_media(media="print")
        first.set_viewport_size({"width": PAPER[0], "height": PAPER[1]})
        save(shot(first), out, "print")
        browser.close()
    if not given.quick:
        DIGEST.write_text(f"{digest_of_texts()}\n", "utf-8")
