"""Which words are shown of a topic, and which way of reading them is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.model.shown_words import READINGS, Reading, choose

SHARES = np.array([[0.5, 0.3, 0.2], [0.5, 0.1, 0.4]])
FREQUENCY = np.array([0.6, 0.1, 0.3])


def test_by_probability() -> None:
    assert Reading(1.0).order(SHARES, FREQUENCY, 3).tolist() == [[0, 1, 2], [0, 2, 1]]


def test_by_lift() -> None:
    """0.5 / 0.6, 0.3 / 0.1, 0.2 / 0.3; and 0.5 / 0.6, 0.1 / 0.1, 0.4 / 0.3."""
    assert Reading(0.0).order(SHARES, FREQUENCY, 3).tolist() == [[1, 0, 2], [2, 1, 0]]


def test_in_between() -> None:
    """Of the second: 0.5 / sqrt(0.6) = 0.65, 0.1 / sqrt(0.1) = 0.32, 0.4 / sqrt(0.3) = 0.73."""
    assert Reading(0.5).order(SHARES, FREQUENCY, 2).tolist() == [[1, 0], [2, 0]]


def test_a_word_without_a_share_comes_last_and_equals_stay_in_order() -> None:
    shares = np.array([[0.0, 0.5, 0.5]])
    assert Reading(1.0).order(shares, np.full(3, 1 / 3), 3).tolist() == [[1, 2, 0]]


def test_both_sources_and_every_weight_are_tried() -> None:
    assert len(READINGS) == 18
    assert {reading.by_sums for reading in READINGS} == {True, False}
    assert {reading.lambda_ for reading in READINGS} == {n / 10 for n in range(2, 11)}


# Choosing: two topics of ten words. The same common words in both are the most coherent.

ALIKE = [[f"common{i}" for i in range(10)]] * 2
APART = [[f"tree{i}" for i in range(10)], [f"boat{i}" for i in range(10)]]
NEARLY = [APART[0], [*APART[1][:8], "tree0", "tree1"]]  # 18 of 20 words differ


def npmi(*scores: float) -> dict[str, np.ndarray]:
    return {"npmi": np.array(scores), "c_v": -np.array(scores)}


@pytest.mark.parametrize(
    ("topics", "coherence", "chosen"),
    [
        ([ALIKE, APART], [npmi(0.5, 0.5), npmi(0.1, 0.1)], 1),
        ([APART, ALIKE], [npmi(0.1, 0.1), npmi(0.5, 0.5)], 0),
        ([APART, NEARLY], [npmi(0.1, 0.1), npmi(0.3, 0.0)], 1),
        ([APART, NEARLY], [npmi(0.1, 0.1), npmi(0.3, -0.2)], 0),
        ([APART, APART], [npmi(0.2, 0.2), npmi(0.2, 0.2)], 0),
        ([APART], [npmi(-1.0, -1.0)], 0),
    ],
    ids=["different first", "in any order", "nine of ten", "by the mean", "equal", "only one"],
)
def test_the_most_coherent_of_the_different_is_chosen(
    topics: list[list[list[str]]], coherence: list[dict[str, np.ndarray]], chosen: int
) -> None:
    assert choose(topics, coherence) == chosen


def test_where_none_is_different_enough_the_most_different_is_chosen() -> None:
    half = [APART[0], [*APART[0][:5], *APART[1][:5]]]  # 15 of 20
    less = [APART[0], [*APART[0][:7], *APART[1][:3]]]  # 13 of 20
    assert choose([less, half, ALIKE], [npmi(0.9, 0.9), npmi(0.0, 0.0), npmi(1.0, 1.0)]) == 1
