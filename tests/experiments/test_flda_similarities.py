"""Similarities of topics, by hand, and how they are judged by pairs whose answer is known."""

from typing import Any

import numpy as np
import pytest

from experiments.flda.similarities import (
    MEASURES,
    Counted,
    judge,
    of_labelled,
    of_made,
    true_topics,
)
from fedtopics.methods.flda.labelled_pairs import TopicPair


def test_similarities_by_hand() -> None:
    one: list[Any] = [{"tea": 9.0, "milk": 16.0}]
    other: list[Any] = [{"milk": 3.0, "tea": 0.0}, {"tea": 1.0, "sea": 1.0}]
    values = {name: measure(one, other)[0].tolist() for name, measure in MEASURES.items()}
    assert values["cosine"] == pytest.approx([16 / 337**0.5, 9 / 337**0.5 / 2**0.5])
    assert values["hellinger"] == pytest.approx([0.8, 0.18**0.5])
    entropy = -sum(share * np.log2(share) for share in (0.36, 0.64))
    middle = -sum(share * np.log2(share) for share in (0.18, 0.82))
    assert values["jensen_shannon"][0] == pytest.approx(1 - (middle - entropy / 2))
    assert values["jaccard"] == pytest.approx([1, 1 / 3])


def test_how_well_pairs_are_told_apart() -> None:
    same = np.array([True, True, False, False])
    assert judge(np.array([0.9, 0.5, 0.5, 0.1]), same) == {"auc": 0.875, "accuracy": 0.75}
    assert judge(np.array([0.9, 0.5, 0.5, 0.1]), np.ones(4, bool))["auc"] is None
    pairs = [
        TopicPair("oak elm", "elm oak", 0.4, True),
        TopicPair("oak elm", "sea oak", 0.6, False),
        TopicPair("oak elm", "sea", 0.1, False),
        TopicPair("sea", "sea", 0.9, None),
    ]
    assert of_labelled(pairs) == {
        "pairs": 3,
        "same": 1,
        "scores": {
            "cosine": {"auc": 0.5, "accuracy": 2 / 3},
            "jaccard": {"auc": 1.0, "accuracy": 1.0},
        },
    }


def test_topics_that_are_known() -> None:
    true = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    assert true_topics(true, np.column_stack([true[:, 1], true[:, 0], [0.3] * 3])).tolist() == [
        1,
        0,
        -1,
    ]
    sharp = of_made(Counted(0.01, 100), 0, quick=True)
    assert (sharp["pairs"], sharp["same"]) == (100, 10)
    assert {name: score["auc"] for name, score in sharp["scores"].items()} == dict.fromkeys(
        MEASURES, 1.0
    ), "topics that share no word"
