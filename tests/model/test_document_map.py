"""A map of documents: where each lies, what it says of itself, and nothing that others wrote."""

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from fedtopics import LDA
from fedtopics.errors import StudyError
from fedtopics.model.document_map import HEIGHT, WIDTH, DocumentMap, _places, document_map
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


def test_documents_of_one_topic_are_neighbours(model: LDA, shown: DocumentMap) -> None:
    """Of nine in ten documents the nearest one is of the same topic, as t-SNE is to have it."""
    distances = np.linalg.norm(shown.places[:, None] - shown.places[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (shown.topics[distances.argmin(1)] == shown.topics).mean() > 0.9
    assert (shown.places >= 0).all() and (shown.places <= [WIDTH, HEIGHT]).all()


def test_few_documents_have_the_distances_of_their_thetas() -> None:
    theta = np.array([[1.0, 0, 0], [0.8, 0.2, 0], [0, 0, 1.0]])
    places = _places(theta, 0)
    far = [float(np.linalg.norm(places[0] - places[k])) for k in (1, 2)]
    hellinger = [np.linalg.norm(np.sqrt(theta[0]) - np.sqrt(theta[k])) for k in (1, 2)]
    assert far[0] / far[1] == pytest.approx(hellinger[0] / hellinger[1])
    assert _places(np.tile([0.5, 0.5], (20, 1)), 0).tolist() == [[WIDTH / 2, HEIGHT / 2]] * 20


def test_the_same_documents_have_the_same_map(model: LDA, shown: DocumentMap) -> None:
    assert model.document_map(ALL).svg() == shown.svg()


def test_of_many_documents_some_from_all_over_are_shown(model: LDA) -> None:
    some = model.document_map([*ALL, "zebra"], most=3)
    assert some.documents.tolist() == [0, 40]
    assert (some.of, some.unknown) == (81, 1)
    assert repr(some) == "DocumentMap(2 of 81 documents)"
    assert "1 with nothing that the model knows are not shown." in some.sentence
    with pytest.raises(StudyError, match="most=0 cannot be used"):
        model.document_map(ALL, most=0)
    assert "<circle" not in model.document_map(["zebra"]).svg()


def test_each_circle_says_which_document_it_is(model: LDA, shown: DocumentMap) -> None:
    root = ElementTree.fromstring(shown.svg())  # noqa: S314 - ours
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert sorted(int(re.findall(r"document (\d+):", text)[0]) for text in titles) == [*range(80)]
    theta = model.transform(ALL)
    words = model.topics(3)
    first = next(text for text in titles if text.startswith("document 7: "))
    main = int(theta[7].argmax())
    assert first.startswith(f"document 7: {' '.join(words[main])} {theta[7, main]:.0%}")
    assert not any(ALL[7][:20] in text for text in titles)
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
    assert "Do not share it: it contains beginnings of documents." in page
    assert (tmp_path / "map.html").stat().st_mode & 0o077 == 0
    assert "alert" not in model.document_map([hostile, *ALL])._repr_html_()
    assert asked._repr_html_().startswith('<div class="figure"')
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_labels_of_others_are_escaped_and_lead_to_their_topics(model: LDA) -> None:
    named = model.model_.with_labels({0: "<b>Trees"}).with_suggested_labels()
    drawn = document_map(named, ALL).svg(in_report=True)
    assert "<b>" not in drawn
    assert '<a href="#topic-0"><text x=' in drawn
    assert drawn.count('class="maybe"') == 1  # of the suggested one
    assert "Labels in italics are suggested." in document_map(named, ALL).sentence


def test_words_of_others_make_no_element() -> None:
    model = hostile().with_suggested_labels()
    words = [*model.vocabulary.words]
    drawn = model.document_map([words[:3], words[2:6]], with_text=True).svg(in_report=True)
    tags = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(drawn).iter()}  # noqa: S314
    assert tags == {"svg", "g", "circle", "title", "text", "a"}


def test_a_model_of_one_place_has_a_map() -> None:
    assert len(made().document_map(["oak elm", "flu tea", "tea oak"]).documents) == 3
