"""How the report looks in a browser: at each width, light and dark, nothing is cut or crooked."""

import json
from pathlib import Path

import pytest

from fedtopics import TopicModel
from fedtopics.report import find_run, over_time, summarise, write_report
from tests.helpers.browser import Open, Opened
from tests.helpers.command_line import Typed
from tests.helpers.letters import ABOUT, OWN, letters_run
from tests.helpers.models import effect, made, table
from tests.helpers.report_runs import Reported, reported, reported_model

WIDTHS = 390, 768, 1280
SCHEMES = "light", "dark"
NEAR = 0.75  # pixels that edges in a column may differ

# Elements that reach over the page or their card; what is in a box that scrolls has its own edge.
CUT = """() => [...document.querySelectorAll("body *")]
  .filter((e) => !e.closest(".scroll, .skip") && e.getClientRects().length)
  .filter((e) => {
    const { left, right } = e.getBoundingClientRect();
    return right > innerWidth + 0.5 || left < -0.5;
  })
  .filter((e) => {  // what is shortened with an ellipsis ends at its own edge
    for (let box = e; box; box = box.parentElement)
      if (getComputedStyle(box).overflowX === "hidden") return false;
    return true;
  }).map((e) => e.outerHTML.slice(0, 80))"""

# The right edges of the numbers of each column, and the left ones of its bars, table by table.
EDGES = """() => [...document.querySelectorAll("table")]
  .filter((table) => table.getClientRects().length && !table.closest("details:not([open])"))
  .flatMap((table) => {
    const columns = {};
    for (const row of table.tBodies[0].rows) {
      if (getComputedStyle(row).display === "flex") continue;
      [...row.cells].forEach((cell, place) => {
        if (!cell.classList.contains("number") || !cell.textContent.trim()) return;
        const range = document.createRange();
        range.selectNodeContents(cell.querySelector(".value") ?? cell);
        (columns[place] ??= []).push(range.getBoundingClientRect().right);
        const bar = cell.querySelector(".bar")?.getBoundingClientRect();
        if (bar) (columns[`bars ${place}`] ??= []).push(bar.left);
      });
    }
    return Object.values(columns);
  })"""

# Texts whose contrast with what is behind them is below AA (WCAG 2.2, 1.4.3): 4.5, or 3 if large.
FAINT = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) =>
    [r, g, b].map((x, i) => x * a + below[i] * (1 - a)).concat(1);
  const light = (c) => c.slice(0, 3).map((x) => x / 255)
    .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4))
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement)
      layers.push(e.matches("svg.map text.at") ? [0, 0, 0, 0]
        : read(getComputedStyle(e).backgroundColor));
    let found = read(getComputedStyle(document.body).backgroundColor);
    for (const layer of layers.reverse()) found = over(layer, found);
    return found;
  };
  const faint = [];
  let seen = 0;
  for (const e of document.querySelectorAll("body *:not(script)")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length || e.closest("title")) continue;
    const style = getComputedStyle(e), svg = e instanceof SVGElement;
    const below = behind(e);
    const [one, other] = [over(read(svg ? style.fill : style.color), below), below]
      .map(light).sort((a, b) => b - a);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const least = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
    seen += 1;
    if ((one + 0.05) / (other + 0.05) < least)
      faint.push([e.outerHTML.slice(0, 80), ((one + 0.05) / (other + 0.05)).toFixed(2)]);
  }
  return [seen, faint];
}"""


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Five skewed clients, two years, a purpose and an operator."""
    run = letters_run(tmp_path_factory.mktemp("letters"))
    folder, facts = find_run(run)
    model = TopicModel.from_pretrained(folder)
    summary = summarise(model, facts, over_time=over_time(model, facts))
    return Reported(model, summary, write_report(summary, run / "report.html"), facts)


@pytest.fixture(params=["letters", "synthetic", "compared"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reported:
    if request.param == "compared":
        groups = table("funded", "no", "yes"), table("time", "2024-01-01", "2025-01-01")
        estimates = effect("funded + client"), effect("change", "later"), effect("funded", "x" * 60)
        model = made(groups=groups, estimates=estimates)
        return reported_model(model, tmp_path_factory.mktemp("compared"))
    if request.param == "letters":
        letters_report: Reported = request.getfixturevalue("letters")
        return letters_report
    return reported(request.param, tmp_path_factory)


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_crooked_or_faint(report: Reported, opening: Open, width: int) -> None:
    opened = opening(report.page, width)
    opened.open(opened.topics()[0])
    opened.page.locator("#groups details").evaluate_all("all => all.forEach((e) => e.open = true)")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.evaluate(CUT) == []
    columns = [column for column in opened.page.evaluate(EDGES) if len(column) > 1]
    assert len(columns) > 3
    for column in columns:
        assert max(column) - min(column) < NEAR, "one right edge of numbers, one zero of bars"
    for scheme in SCHEMES:
        opened.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        seen, faint = opened.page.evaluate(FAINT)
        assert seen > 100
        assert faint == [], scheme


def under(opened: Opened, heading: str) -> str:
    """What is visible right under a heading, found by its text."""
    element = opened.page.get_by_role("heading", name=heading, exact=True)
    assert element.is_visible()
    return str(element.locator("xpath=..").inner_text())


@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
def test_five_questions_have_their_answer_in_one_look(
    letters: Reported, opening: Open, width: int
) -> None:
    opened = opening(letters.page, width)
    summary = letters.summary
    # Which topics does south alone have?
    (vineyards,) = (t for t in summary["topics"] if t["owner"] == "south")
    assert vineyards["label"] == next(name for name, client in OWN.items() if client == "south")
    panel = opened.page.get_by_role("article").filter(
        has=opened.page.get_by_role("heading", name="south")
    )
    assert f"Only here: {vineyards['topic']} Vineyards" in panel.inner_text()
    assert "south has nearly all of “Vineyards”" in under(opened, "What was found")
    # What grew this year?
    first = opened.page.get_by_role("table", name="Change of shares").locator("tbody tr").first
    assert "Floods" in first.inner_text()
    assert "2025 compared with 2024: “Floods” grew by 7.7 points" in under(opened, "What was found")
    assert "Floods" in under(opened, "What grew, what shrank")
    # What left us?
    left = under(opened, "Data sent by each client")
    assert "No document left its client" in left
    for client in summary["left"]["clients"]:
        assert f"{client['name']}\t{client['replies']:,}\t" in left
    # Is it private?
    private = under(opened, "Is it private?")
    assert "Only sums, no guarantee" in private
    assert "Sums have no bound for a single document" in private
    assert "Yes" in under(opened, "Were policies met?")
    # Who runs it?
    assert ABOUT["operator"] in under(opened, "Who runs it")


def test_a_topic_lights_up_wherever_it_is(letters: Reported, opening: Open) -> None:
    page = opening(letters.page, 1280).page
    number = next(n for n, topic in enumerate(letters.summary["topics"]) if topic["label"])
    topic = letters.summary["topics"][number]["topic"]

    def lit() -> set[str]:
        elements: list[str] = page.locator(".lit").evaluate_all(
            "all => all.map((e) => e.closest('svg, table, li').tagName + ' ' + e.dataset.topic)"
        )
        return {*elements}

    assert lit() == set()
    everywhere = {f"{kind} {topic}" for kind in ("svg", "TABLE", "LI")}
    for place in (
        f'svg.wide a[data-topic="{topic}"] circle.disc',
        f'table.topics tr[data-topic="{topic}"]',
        f'article:first-of-type tr[data-topic="{topic}"]',
        f'.leaves li[data-topic="{topic}"]',
    ):
        page.locator(place).hover()
        assert lit() == everywhere, place
        # At the clients too, each of them.
        assert page.locator("article .lit").count() == len(letters.summary["clients"])
        name = letters.summary["topics"][number]["label"]
        assert str(page.locator("#peek").text_content()).startswith(f"{name}: ")
        page.locator("h1").hover()
        assert lit() == set()


def test_names_are_edited(letters: Reported, opening: Open, typed: Typed, tmp_path: Path) -> None:
    opened = opening(letters.page, 1280)
    topic = next(t["topic"] for t in letters.summary["topics"] if not t["label"])
    card = opened.topic(topic)
    name = "Häfen & <b>Möwen</b>"
    assert opened.page.locator("#keep").is_hidden()
    card.get_by_role("button", name=f"Rename topic {topic}").click()
    opened.page.keyboard.type("never mind")
    opened.page.keyboard.press("Escape")
    assert "never mind" not in opened.page.locator("body").inner_text()
    card.get_by_role("button", name=f"Rename topic {topic}").click()
    opened.page.keyboard.type(name)
    opened.page.keyboard.press("Enter")
    assert card.locator("h3 input").count() == 0, "the key does not press the button as well"
    shown = opened.page.locator(f'[data-name-of="{topic}"]').all_text_contents()
    assert {*shown} == {name}
    assert len(shown) > len(letters.summary["clients"]) + 3
    opened.page.reload()
    assert {*opened.page.locator(f'[data-name-of="{topic}"]').all_text_contents()} == {name}
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="Save names").click()
    assert download.value.suggested_filename == "topics.json"
    rows = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    labels = {t["topic"]: t["label"] for t in letters.summary["topics"]} | {topic: name}
    assert {row["topic"]: row["label"] for row in rows} == labels
    # The model takes the file.
    letters.model.save_pretrained(tmp_path / "model")
    names = tmp_path / "names.json"
    names.write_text(json.dumps(rows), encoding="utf-8")
    assert typed("report", tmp_path / "model", "--labels", names)[0] == 0
    again = TopicModel.from_pretrained(tmp_path / "model")
    assert {**dict.fromkeys(range(again.n_topics), ""), **again.labels} == labels
    assert "Häfen &amp; &lt;b&gt;" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_suggested_names_say_so_until_looked_at(
    letters: Reported, opening: Open, tmp_path: Path
) -> None:
    summary = json.loads(json.dumps(letters.summary, default=str))
    summary |= {"change": None, "examples": None}
    summary["topics"][0] |= {"suggested": True}
    opened = opening(write_report(summary, tmp_path / "report.html"))
    card = opened.topic(summary["topics"][0]["topic"])
    assert card.get_by_text("suggested").is_visible()
    assert opened.page.locator(".badge").count() == 1
    assert opened.page.locator(".maybe").count() > len(summary["clients"])
    assert "Names in italics are suggested" in opened.page.locator("#topics").inner_text()
    card.get_by_role("button", name="Rename").click()
    opened.page.locator("h1").click()  # to look at it and go away is no answer
    assert opened.page.locator(".badge").count() == 1
    card.get_by_role("button", name="Rename").click()
    opened.page.keyboard.press("Enter")
    assert opened.page.locator(".badge, .maybe").count() == 0
    opened.page.reload()
    assert opened.page.locator(".badge, .maybe").count() == 0, "the browser keeps that as well"
