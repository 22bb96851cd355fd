"""A map of documents: where each lies, what it says of itself, and nothing that others wrote."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedtopics import LDA
from fedtopics.errors import StudyError
from fedtopics.model.document_map import (
    HEIGHT,
    LETTER,
    LINE,
    WIDTH,
    DocumentMap,
    _places,
    apart,
    document_map,
    free_places,
    overlap,
    short_label,
)
from tests.helpers.clients import ALL
from tests.helpers.hostile import hostile
from tests.helpers.models import made

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def model() -> LDA:
    return LDA(2, max_rounds=20).fit(ALL)


@pytest.fixture(scope="module")
def shown(model: LDA) -> DocumentMap:
    return model.document_map(ALL)


def test_discs_are_apart_and_within_the_map() -> None:
    places, radii = np.array([[0, 0], [0, 0], [0.01, 0], [5, 5]]), np.array([60, 40, 0, 90])
    at = apart(places, radii)
    for one, other in combinations([0, 1, 3], 2):
        assert np.linalg.norm(at[one] - at[other]) >= radii[one] + radii[other]
    assert (at >= 0).all() and (at <= [WIDTH, HEIGHT]).all()


def test_documents_lie_in_the_disc_of_their_largest_topic() -> None:
    theta = np.array([[1, 0, 0], [0.6, 0.4, 0], [0, 1, 0], [0.1, 0.9, 0], [0, 0, 1]])
    topics = np.array([[0.0, 0], [1, 0], [0, 1]])
    places = _places(theta, np.arange(5), topics)
    centre = {k: places[theta.argmax(1) == k].mean(0) for k in range(3)}
    for place, main in zip(places, theta.argmax(1), strict=True):
        distances = {k: np.linalg.norm(place - c) for k, c in centre.items()}
        assert min(distances, key=distances.__getitem__) == main
    assert np.linalg.norm(places[1] - centre[1]) < np.linalg.norm(places[0] - centre[1])


def test_the_same_documents_have_the_same_map(model: LDA, shown: DocumentMap) -> None:
    again = model.document_map(ALL)
    assert again.svg() == shown.svg()
    assert len(np.unique(shown.places, axis=0)) == 80


def test_of_many_documents_some_from_all_over_are_shown(model: LDA) -> None:
    some = model.document_map([*ALL, "zebra"], most=3)
    assert some.documents.tolist() == [0, 40]
    assert (some.of, some.unknown) == (81, 1)
    assert repr(some) == "DocumentMap(2 of 81 documents)"
    assert "1 with nothing that the model knows are not shown." in some.sentence
    with pytest.raises(StudyError, match="most=0 cannot be used"):
        model.document_map(ALL, most=0)
    nothing = model.document_map(["zebra"])
    assert "<circle" not in nothing.svg()


def test_each_circle_says_which_document_it_is(model: LDA, shown: DocumentMap) -> None:
    root = ElementTree.fromstring(shown.svg())  # noqa: S314 - ours
    said = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sorted(int(re.findall(r"document (\d+):", each)[0]) for each in said) == [*range(80)]
    theta, words = model.transform(ALL), model.topics(3)
    first = next(each for each in said if each.startswith("document 7: "))
    main = int(theta[7].argmax())
    assert first.startswith(f"document 7: {' '.join(words[main])} {theta[7, main]:.0%}")
    assert not any(ALL[7][:20] in each for each in said)
    frame = shown.to_pandas()
    assert frame["Topic"].tolist() == theta.argmax(1).tolist()
    assert frame["Probability"].to_numpy() == pytest.approx(theta.max(1))
    assert [*frame.columns] == ["Document", "x", "y", "Topic", "Name", "Probability"]


def test_texts_are_there_if_asked_for_and_escaped(model: LDA, tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> oak & fir \x1b[2J " + "elm " * 100
    asked = model.document_map([hostile, *ALL], with_text=True)
    page = asked.save(tmp_path / "map.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; oak &amp; fir" in page
    assert "\x1b" not in page
    assert max(map(len, asked.to_pandas()["Text"])) <= 160
    assert "Not to be shared: it has beginnings of documents." in page
    assert (tmp_path / "map.html").stat().st_mode & 0o077 == 0
    assert "alert" not in model.document_map([hostile, *ALL]).page()
    assert asked._repr_html_().endswith("</svg>")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_labels_of_others_are_escaped_and_lead_to_their_topics(model: LDA) -> None:
    named = model.model_.with_labels({0: "<b>Trees"}).with_suggested_labels()
    drawn = document_map(named, ALL).svg("#topic-")
    assert "<b>" not in drawn
    assert '<a href="#topic-0"><text x=' in drawn
    assert drawn.count('font-style="italic"') == 1  # of the suggested one
    assert "Labels in italics are suggested." in document_map(named, ALL).sentence


def test_words_of_others_make_no_element() -> None:
    model = hostile().with_suggested_labels()
    words = [*model.vocabulary.words]
    drawn = model.document_map([words[:3], words[2:6]], with_text=True).svg("#topic-")
    tags = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(drawn).iter()}  # noqa: S314
    assert tags == {"svg", "g", "circle", "title", "text", "a"}


def test_no_label_is_on_another() -> None:
    rng = np.random.default_rng(0)
    centres = [*rng.uniform([0, 0], [WIDTH, HEIGHT], (30, 2)), *np.full((5, 2), 300.0)]
    texts = ["differential equations"] * 35
    found = free_places(centres, texts)
    half = len(texts[0]) * LETTER / 2
    boxes = [(x - half, y - LINE / 2, x + half, y + LINE / 2) for x, y in filter(None, found)]
    assert len(boxes) == 35
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    assert all(box[0] >= 0 and box[1] >= 0 and box[2] <= WIDTH for box in boxes)
    assert free_places([np.zeros(2)] * 2, ["x" * 500] * 2) == [None, None]


def test_labels_are_cut_between_their_parts() -> None:
    assert short_label("Oak, elm, fir") == "Oak, elm, fir"
    assert short_label("Probability density function, oak") == "Probability density function"
    assert short_label("x" * 60) == "x" * 29 + "…"


def test_a_model_of_one_place_has_a_map() -> None:
    assert len(made().document_map(["oak elm", "flu tea", "tea oak"]).documents) == 3
