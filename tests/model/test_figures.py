"""Figures draw a model's numbers, need no host, and are no markup of others."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtopics import TopicModel
from fedtopics.errors import DataError, StudyError
from fedtopics.model import figure_layout as layout
from fedtopics.model import figures
from fedtopics.model.effects import Effects
from fedtopics.model.figures import Panel, chart
from tests.helpers.hostile import hostile
from tests.helpers.models import effect, made, table

PLOTS = [
    f"plot_{name}" for name in ["topics", "clients", "map", "words", "similarity", "hierarchy"]
]


def cells_of(html: str) -> list[list[str]]:
    """The texts of tables' rows."""
    return [
        [
            re.sub(r"<[^>]*>", "", cell).strip()
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    ]


def test_shares_of_topics() -> None:
    _, *rows = cells_of(made().plot_topics().content)
    names = ["1 __init__, flu, tea", "0 Trees | shrubs", "2 oak, elm, flu"]
    assert [row[1] for row in rows] == ["43.8%", "37.5%", "18.8%"]
    assert all(row[0].startswith(name) for name, row in zip(names, rows, strict=True))


def test_clients_beside_each_other() -> None:
    content = made().plot_clients().content
    assert [row[1] for row in cells_of(content)] == ["25 %", "50 %", "25 %", "100 %", "0 %", "0 %"]
    assert re.findall(r"</span>(\w+) <small>(\d+) documents", content) == [
        ("north", "30"),
        ("south", "10"),
    ]


def test_hidden_shares_are_not_in_the_facts() -> None:
    rows = figures.figure_facts(made(), min_documents=8)["topics"]
    assert [(row["topic"], row["clients"]) for row in rows] == [
        (1, {"north": None, "south": 1.0}),
        (0, {"north": 0.5, "south": None}),
        (2, {"north": None, "south": None}),
    ]
    assert [row["owner"] for row in rows] == [None] * 3, "15 documents are too few to be sure"
    many = figures.figure_facts(made(documents={"north": 300, "south": 100}), min_documents=80)
    assert [row["owner"] for row in many["topics"]] == [None, "north", None]


def test_words_with_the_readers_own_documents() -> None:
    model = TopicModel.from_matrix([[3, 1, 0], [0, 2, 2]], ["oak", "elm", "sea"])
    rows = re.findall(r"<span>(\w+)</span> .*?>([\d.]+%)<", model.plot_words(n_words=2).content)
    assert rows[:2] == [("oak", "75.0%"), ("elm", "25.0%")]
    texts = ["oak elm", "<b>elm sea", "elm", "oak", f"elm {'oak ' * 60}"]
    content = model.plot_words(texts, n_words=2).content
    [(_, found)] = re.findall(r"<summary><span>(oak)</span>.*?<ul>(.*?)</ul>", content)[:1]
    assert re.findall("<li>(.*?)</li>", found) == [f"elm {'oak ' * 39}", "oak", "oak elm"]
    assert "&lt;b&gt;elm sea" in content and "<b>" not in content


def test_similar_topics_are_next_to_each_other() -> None:
    model = TopicModel.from_matrix([[8, 2, 0], [0, 0, 1], [2, 8, 0]], ["oak", "elm", "sea"])
    titles = re.findall("<title>(.*?)</title>", model.plot_similarity().content)
    order = [title.partition(" ")[0] for title in titles[::3]]
    assert {*order[:2]} == {"0", "2"} or {*order[1:]} == {"0", "2"}
    pair = next(t for t in titles if t.startswith("0 ") and ", 2 " in t)
    assert pair.endswith("0.80")  # 2 sqrt(.8 x .2)
    assert len(re.findall("<li data-topic", model.plot_hierarchy().content)) == 3


def test_a_map_has_a_circle_a_topic() -> None:
    assert (
        re.findall(r'aria-label="(\d) [^"]*, ([\d.]+%)"', made().plot_map().content)
        == [("1", "43.8%"), ("0", "37.5%"), ("2", "18.8%")] * 2
    )


@pytest.mark.parametrize("name", PLOTS)
def test_a_figure_in_a_notebook_and_as_a_page(name: str, tmp_path: Path) -> None:
    figure = getattr(made(), name)()
    shown = figure._repr_html_()
    assert shown.startswith('<div class="figure"><style>.figure {')
    assert ":root" not in shown and "href=" not in shown
    page = figure.save(tmp_path / "figure.html").read_text("utf-8")
    assert shown in page
    assert not re.search(r"<script|@import|url\(|https?:", page)
    assert getattr(made(), name)() == figure, "the same again"
    assert repr(figure) == f"Figure({figure.title!r})"


@pytest.mark.parametrize("name", PLOTS)
def test_words_are_no_markup(name: str) -> None:
    content = getattr(hostile(), name)().content
    assert not re.search(r"<(script|img|b|!--)[ >]", content)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", content)


def test_too_few_periods() -> None:
    with pytest.raises(DataError, match="Fewer than two periods"):
        made(groups=(table("time", "2026-03-01"),)).plot_over_time()


def test_intervals_of_an_estimate() -> None:
    model = made(groups=(table("funded", "no", "yes"),), estimates=(effect("funded + client"),))
    content = model.plot_effects("funded + client").content
    assert "<h4>funded is yes, compared with no</h4>" in content
    # 0.03, -0.01 and -0.02, with errors of 0.005 of 400 persons, and for all three at once
    assert cells_of(content) == [
        ["0 Trees | shrubs", "", "3 (1.8 to 4.2)"],
        ["1 __init__, flu, tea", "", "-1 (-2.2 to 0.21)"],
        ["2 oak, elm, flu", "", "-2 (-3.2 to -0.79)"],
    ]
    (places,) = [of["places"] for of in layout.intervals(effect("funded").rows()[:1])]
    assert places == {"zero": 0, "at": 0.7126, "low": 0.4778, "high": 0.9473} | {
        "least": 0.4251,
        "most": 1,
    }
    with pytest.raises(StudyError, match="no term 'maybe'; choose from yes"):
        model.plot_effects("funded + client", "maybe")


def test_an_estimate_that_was_refused() -> None:
    summary = made(estimates=(Effects.refusal("funded", "few persons"),))
    with pytest.raises(StudyError, match="'funded' were not computed: few persons"):
        summary.plot_effects("funded")


def test_shares_by_group_with_intervals() -> None:
    model = made(groups=(table("funded", "no", "yes"),))
    content = model.plot_groups("funded").content
    # 1.966 standard errors of 0.01: the quantile of Student's t with 399 degrees of freedom
    assert cells_of(content)[:2] == [
        ["no", "", "30.0% (28 to 32)"],
        ["yes", "", "30.0% (28 to 32)"],
    ]
    assert content.count("<article") == 3
    hostile_names = made(groups=(table("<b>", "<i>no", "yes"),)).plot_groups("<b>").content
    assert "<b>" not in hostile_names and "&lt;i&gt;no" in hostile_names
    with pytest.raises(StudyError, match="no groups by 'year'; choose from funded"):
        model.plot_groups("year")


def distances(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(points[:, None] - points[None], axis=2))


def hellinger(beta: NDArray[np.float64]) -> NDArray[np.float64]:
    return distances(np.sqrt(beta)) / np.sqrt(2)


def drawn_topics(n: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).dirichlet(np.full(20, 0.3), n)


def test_three_topics_are_as_far_apart_as_hellinger_says() -> None:
    beta = drawn_topics(3)
    np.testing.assert_allclose(distances(figures.positions(beta)), hellinger(beta), atol=1e-8)


def test_of_many_topics_the_plane_is_the_best_one() -> None:
    beta = drawn_topics(12)
    positions = figures.positions(beta)
    roots = np.sqrt(beta / 2)
    sizes = np.linalg.svd(roots - roots.mean(0), compute_uv=False)
    np.testing.assert_allclose(positions.mean(0), 0, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(positions, axis=0), sizes[:2])
    assert (distances(positions) <= hellinger(beta) + 1e-8).all()
    np.testing.assert_allclose(
        distances(figures.positions(beta[::-1]))[::-1, ::-1], distances(positions), atol=1e-8
    )


@pytest.mark.parametrize("n", [1, 2])
def test_few_topics(n: int) -> None:
    beta = drawn_topics(n)
    positions = figures.positions(beta)
    assert positions.shape == (n, 2)
    np.testing.assert_allclose(distances(positions), hellinger(beta), atol=1e-8)
    np.testing.assert_array_equal(positions[:, 1], 0)


@pytest.mark.parametrize("n_words", [1, 2, 7])
@pytest.mark.filterwarnings("error")
def test_topics_that_are_all_equal_are_in_one_place(n_words: int) -> None:
    weights = np.arange(1, n_words + 1) / (n_words * (n_words + 1) / 2)
    np.testing.assert_array_equal(figures.positions(np.tile(weights, (3, 1))), np.zeros((3, 2)))


def test_a_chart_has_a_panel_a_score() -> None:
    line = [(0.0, 1.0), (10.0, 3.0)]
    one = Panel("coherence", "topics", line, [1.0, 1.0])
    picture = chart([one, Panel("<b>", "x", line, dots=[(5.0, 2.0)], mark=(5.0, "here"))])
    assert 'd="M52.0 134.5L346.0 63.5"' in picture
    assert 'd="M52.0 99.0L346.0 28.0L346.0 99.0L52.0 170.0Z"' in picture, "the band"
    assert picture.count("<circle") == 1 and ">here</text>" in picture
    assert "<b>" not in picture and "&lt;b&gt;" in picture
    assert 'viewBox="0 0 720 210"' in picture
