"""Which topics a word is about, by where its occurrences are."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.errors import StudyError
from fedtopics.text.rules import TextRules
from tests.helpers.models import BETA, made

SHARE = np.array([0.375, 0.4375, 0.1875])


def test_shares_of_a_words_occurrences() -> None:
    """Of "oak", 2 of 3 are in the first topic, 1 in the second."""
    assert made().find_topics("oak") == ([0, 1, 2], pytest.approx([2 / 3, 1 / 3, 0]))
    assert made().find_topics("The ELM!", top_n=1) == ([1], [1.0])
    both = made().find_topics(["oak", "elm"])
    assert both == ([1, 0, 2], pytest.approx([2 / 3, 1 / 3, 0]))


def test_a_word_without_sums_is_looked_up_in_beta() -> None:
    """As of words that each client has too rarely."""
    joint = SHARE * BETA[:, 0]
    sums = np.array([[0.0, 0, 0, 0, 6], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]])
    topics, near = made(word_sums=sums).find_topics("oak")
    order = np.argsort(-joint)
    assert topics == order.tolist()
    assert near == pytest.approx((joint / joint.sum())[order].tolist())


def test_an_unknown_word_stands_for_those_that_end_otherwise() -> None:
    words = ("heating", "heater", "rent", "renting", "tenant")
    index = dict.fromkeys(words, 0)
    assert index
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


def test_models_of_lists_take_both() -> None:
    model = made(text=TextRules(token_pattern="lists"))  # noqa: S106
    assert model.find_topics("an oak") == model.find_topics(["oak"])
