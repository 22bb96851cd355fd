"""Which topics a word is about, by where its occurrences are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.model import search
from tests.helpers.models import made


def test_shares_of_a_words_occurrences() -> None:
    """Of "oak", 2 of 3 are in the first topic, 1 in the second."""
    assert made().find_topics("oak") == ([0, 1, 2], pytest.approx([2 / 3, 1 / 3, 0]))
    assert made().find_topics("The ELM!", top_n=1) == ([1], [1.0])
    both = made().find_topics(["oak", "elm"])
    assert both == ([1, 0, 2], pytest.approx([2 / 3, 1 / 3, 0]))


def test_an_unknown_word_stands_for_those_that_end_otherwise() -> None:
    words = ("heating", "heater", "rent", "renting", "tenant")
    model = made()
    vocabulary = type(model.vocabulary)(words, np.full(5, 9), np.array([30, 25, 20, 15, 10]))
    model = made(vocabulary=vocabulary)
    sums = model.word_sums / np.maximum(model.word_sums.sum(0), 1)
    heat, topics = sums[:, :2].mean(1), model.find_topics("heat")
    assert topics[1] == pytest.approx(sorted(heat, reverse=True))
    assert model.find_topics("rents") == model.find_topics("rent")
    for unknown in ("hea", "oaks", "tenancies"):
        with pytest.raises(StudyError, match="knows no word of what is looked for"):
            model.find_topics(unknown)


def test_an_unknown_word_is_held_against_few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an ontology tens of thousands are: all words for each took minutes."""
    looked_at: list[str] = []
    monkeypatch.setattr(search, "is_form", lambda word, other: bool(looked_at.append(other)))
    words = ("funds", "fund", "bank", "funding", "oak", "elm", "fun", "tree")
    model = made()
    vocabulary = type(model.vocabulary)(words, np.full(8, 9), np.full(8, 9))
    model = replace(model, vocabulary=vocabulary)
    assert search.columns_of("funded", model) == []
    assert looked_at == ["fund", "fun"]
    looked_at.clear()
    assert search.columns_of("fundi", model) == []
    assert looked_at == ["funding", "fund", "fun"]
