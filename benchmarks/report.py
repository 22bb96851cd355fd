"""How large reports are, and how soon Chromium paints them, beside a page of one word.

Reports of 50 and 200 topics and 20 clients, and of the runs that are named. Each page is opened
several times, in turns, in a new context: on this computer, and as on a phone with a processor that
is four times slower. Paint is the first contentful one, its median.

    python benchmarks/report.py [RUN ...]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from fedtopics import Study, TopicModel, train
from fedtopics.datasets import synthetic_lda
from fedtopics.report import find_run, summarise, write_report
from quick import parser_of

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
TOPICS = (50, 200)
CLIENTS = 20
PEER = "a page of one word"
SCREENS = {"here": (1400, 900, 1.0), "as on a phone": (400, 800, 4.0)}  # and how much slower
PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint");
  if (found.length) done(found[0].startTime);
}).observe({ type: "paint", buffered: true }))"""


def synthetic(n_topics: int, folder: Path) -> Path:
    """Train LDA on synthetic documents; return the run's folder."""
    drawn = synthetic_lda(
        CLIENTS, n_words=2000, n_topics=n_topics, shared_topics=n_topics // 5,
        n_documents=150, n_validation=1, lengths=(40, 80),
    )  # fmt: skip
    corpora = {name: documents.corpus() for name, documents in drawn.training.items()}
    method = {"name": "lda", "n_components": n_topics, "max_rounds": 5}
    train(Study.make(name=f"{n_topics} topics", method=method), corpora, out=folder)
    return folder


def report(run: Path, page: Path) -> Path:
    """Write the report of a run's folder."""
    folder, facts = find_run(run)
    return write_report(summarise(TopicModel.from_pretrained(folder), facts), page)


def paint(browser: Browser, page: Path, screen: str) -> float:
    """Return the milliseconds until something is to be seen."""
    width, height, slower = SCREENS[screen]
    context = browser.new_context(viewport={"width": width, "height": height})
    opened = context.new_page()
    tools = context.new_cdp_session(opened)
    tools.send("Emulation.setCPUThrottlingRate", {"rate": slower})
    opened.goto(page.as_uri())
    milliseconds = float(opened.evaluate(PAINTED))
    context.close()
    return milliseconds


def measure(pages: dict[str, Path], turns: int) -> dict[tuple[str, str], float]:
    """Return the median of each page on each screen."""
    found: dict[tuple[str, str], list[float]] = {}
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for turn in range(1 + turns):
            for name, page in pages.items():
                for screen in SCREENS:
                    milliseconds = paint(browser, page, screen)
                    if turn:  # the first only warms up
                        found.setdefault((name, screen), []).append(milliseconds)
        browser.close()
    return {which: statistics.median(values) for which, values in found.items()}


def table(pages: dict[str, Path], medians: dict[tuple[str, str], float]) -> str:
    """Say what was found, a row a page."""
    heads = [f"first paint {screen}, ms | of {PEER}'s" for screen in SCREENS]
    lines = [f"| report | KB | {' | '.join(heads)} |", "| --- " + "| ---: " * 5 + "|"]
    for name, page in pages.items():
        cells = [f"{page.stat().st_size / 1000:,.0f}"]
        for screen in SCREENS:
            own, peer = medians[name, screen], medians[PEER, screen]
            cells += [f"{own:.0f}", f"{own / peer:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("runs", nargs="*", type=Path, help="folders of further runs")
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = folder / "empty.html"
        empty.write_text("<!doctype html><title>Empty</title>Word", encoding="utf-8")
        topics, turns = (TOPICS[:1], 1) if arguments.quick else (TOPICS, arguments.turns)
        runs = {f"{n} topics, {CLIENTS} clients": synthetic(n, folder / str(n)) for n in topics}
        runs |= {str(run): run for run in arguments.runs}
        pages = {PEER: empty}
        for number, (name, run) in enumerate(runs.items()):
            pages[name] = report(run, folder / f"{number}.html")
        sys.stdout.write(table(pages, measure(pages, turns)))


if __name__ == "__main__":
    main()
