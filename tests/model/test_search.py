"""Topics of a word, by where its occurrences are, and documents that stand for a topic."""

import numpy as np
import pytest

from fedtopics import LDA
from fedtopics.errors import StudyError
from fedtopics.model import search
from fedtopics.model.finding import representatives
from fedtopics.text.vocabulary import Vocabulary
from tests.helpers.clients import ALL, TEXTS
from tests.helpers.models import made


def test_shares_of_a_words_occurrences() -> None:
    """Of "oak", 2 of 3 are in the first topic, 1 in the second."""
    assert made().find_topics("oak") == ([0, 1, 2], pytest.approx([2 / 3, 1 / 3, 0]))
    assert made().find_topics("The ELM!", top_n=1) == ([1], [1.0])
    assert made().find_topics(["oak", "elm"]) == ([1, 0, 2], pytest.approx([2 / 3, 1 / 3, 0]))


def test_an_unknown_word_stands_for_those_that_end_otherwise() -> None:
    words = ("heating", "heater", "rent", "renting", "tenant")
    model = made(vocabulary=Vocabulary(words, np.full(5, 9), np.array([30, 25, 20, 15, 10])))
    heat = (model.word_sums / np.maximum(model.word_sums.sum(0), 1))[:, :2].mean(1)
    assert model.find_topics("heat")[1] == pytest.approx(sorted(heat, reverse=True))
    assert model.find_topics("rents") == model.find_topics("rent")
    for unknown in ("hea", "oaks", "tenancies"):
        with pytest.raises(StudyError, match="knows no word of the query"):
            model.find_topics(unknown)


def test_an_unknown_word_is_held_against_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an ontology tens of thousands are: all words for each took minutes."""
    looked_at: list[str] = []
    monkeypatch.setattr(search, "is_form", lambda word, other: bool(looked_at.append(other)))
    words = ("funds", "fund", "bank", "funding", "oak", "elm", "fun", "tree")
    model = made(vocabulary=Vocabulary(words, np.full(8, 9), np.full(8, 9)))
    assert search.columns_like("funded", model) == []
    assert looked_at == ["fund", "fun"]
    looked_at.clear()
    assert search.columns_like("fundi", model) == []
    assert looked_at == ["funding", "fund", "fun"]


def test_rows_with_most_of_their_largest_topic() -> None:
    theta = np.array([[0.9, 0.1], [0.5, 0.5], [0.95, 0.05], [0.9, 0.1], [0.99, 0.01]])
    seen = np.array([True, True, True, True, False])
    assert representatives(theta, seen, theta) == [[2, 0, 3], []]
    assert representatives(theta, seen, theta, 9) == [[2, 0, 3, 1], []]
    assert representatives(theta, seen, -theta) == [[1, 0, 3], []]  # another order


def test_documents_of_several_clients_that_stand_for_topics() -> None:
    model = LDA(2, max_rounds=20).fit(ALL)
    rows = model.model_.representative_documents(TEXTS, n_documents=2)
    theta = model.transform(ALL)
    assert [row["topic"] for row in rows] == [0, 0, 1, 1]
    for topic in (0, 1):
        of_topic = [row for row in rows if row["topic"] == topic]
        [client] = {row["client"] for row in of_topic}
        assert [row["text"] for row in of_topic] == [TEXTS[client][r["document"]] for r in of_topic]
        assert [row["share"] for row in of_topic] == pytest.approx(
            sorted(theta[:, topic].tolist())[-2:][::-1], rel=1e-5
        )
