"""Which words are shown of a topic, and which way of reading them is chosen."""

import numpy as np
import pytest

from fedtopics.model.shown_words import WORD_RANKINGS, WordRanking, choose, keep_coherent

SHARES = np.array([[0.5, 0.3, 0.2], [0.5, 0.1, 0.4]])
FREQUENCY = np.array([0.6, 0.1, 0.3])


@pytest.mark.parametrize(
    ("relevance", "expected"),
    [
        (1.0, [[0, 1, 2], [0, 2, 1]]),
        # 0.5 / 0.6, 0.3 / 0.1, 0.2 / 0.3; and 0.5 / 0.6, 0.1 / 0.1, 0.4 / 0.3
        (0.0, [[1, 0, 2], [2, 1, 0]]),
        # Of the second: 0.5 / sqrt(0.6) = 0.65, 0.1 / sqrt(0.1) = 0.32, 0.4 / sqrt(0.3) = 0.73
        (0.5, [[1, 0, 2], [2, 0, 1]]),
    ],
)
def test_by_probability_by_lift_and_in_between(relevance: float, expected: list[list[int]]) -> None:
    assert WordRanking(relevance).order(SHARES, FREQUENCY, 3).tolist() == expected


def test_both_sources_and_every_weight_are_tried() -> None:
    assert len(WORD_RANKINGS) == 18
    assert {reading.by_sums for reading in WORD_RANKINGS} == {True, False}
    assert {reading.relevance for reading in WORD_RANKINGS} == {n / 10 for n in range(2, 11)}


def test_first_words_come_before_all_others_as_ranked() -> None:
    told = WordRanking(1.0, first=((2,), (1,)))
    assert told.order(SHARES, FREQUENCY, 3).tolist() == [[2, 0, 1], [1, 0, 2]]
    two = WordRanking(1.0, first=((2, 1), (2, 0)))
    assert two.order(SHARES, FREQUENCY, 2).tolist() == [[1, 2], [0, 2]]
    shares = np.array([[0.0, 0.5, 0.5]])  # a word without a share comes last, equals in order
    assert WordRanking(1.0).order(shares, np.full(3, 1 / 3), 3).tolist() == [[1, 2, 0]]


@pytest.mark.parametrize(
    ("first", "fits"),
    [
        ((), True),
        (((0, 2), (1, 0)), True),
        (((0, 2),), False),
        (((0, 3), (1, 0)), False),
        (((0, -1), (1, 0)), False),
        (((0, 0), (1, 0)), False),
        (((0, 2), (1,)), False),
    ],
)
def test_first_words_that_a_model_can_have(first: tuple[tuple[int, ...], ...], fits: bool) -> None:
    assert WordRanking(first=first).fits(2, 3) == fits


# Two topics of ten words. The same common words in both are the most coherent.
ALIKE = np.array([range(10), range(10)])
APART = np.array([range(10), range(10, 20)])
NEARLY = np.array([range(10), [*range(10, 18), 0, 1]])  # 18 of 20 words differ


def npmi(*scores: float, n: int = 10) -> np.ndarray:
    """All pairs of a topic have its score."""
    return np.stack([np.full((n, n), score) for score in scores])


@pytest.mark.parametrize(
    ("columns", "pairs", "chosen"),
    [
        ([ALIKE, APART], [npmi(0.5, 0.5), npmi(0.1, 0.1)], 1),
        ([APART, ALIKE], [npmi(0.1, 0.1), npmi(0.5, 0.5)], 0),
        ([APART, NEARLY], [npmi(0.1, 0.1), npmi(0.3, 0.0)], 1),
        ([APART, NEARLY], [npmi(0.1, 0.1), npmi(0.3, -0.2)], 0),
        ([APART, APART], [npmi(0.2, 0.2), npmi(0.2, 0.2)], 0),
        ([APART], [npmi(-1.0, -1.0)], 0),
    ],
)
def test_the_most_coherent_of_the_different_is_chosen(
    columns: list[np.ndarray], pairs: list[np.ndarray], chosen: int
) -> None:
    readings = WORD_RANKINGS[: len(columns)]
    assert choose(readings, columns, pairs) == readings[chosen]


def test_the_least_coherent_word_goes_again_and_again() -> None:
    """Alone word 1 is the loneliest; without it word 2 is, which had but word 1."""
    pairs = np.full((4, 4), 0.5)
    pairs[1] = pairs[:, 1] = -0.5
    pairs[2] = pairs[:, 2] = 0.0
    pairs[1, 2] = pairs[2, 1] = 0.9
    np.fill_diagonal(pairs, 1.0)
    assert keep_coherent(pairs, 3) == [0, 2, 3]
    assert keep_coherent(pairs, 2) == [0, 3]
    assert keep_coherent(pairs, 5) == [0, 1, 2, 3]


def lonely(words: np.ndarray, *columns: int) -> np.ndarray:
    """Pairs with these words are never together, all others often."""
    alone = np.isin(words, columns)
    return np.where(alone[:, :, None] | alone[:, None], -1.0, 0.5)


def test_the_most_coherent_words_are_first() -> None:
    words = np.array([range(12), range(12, 24)])
    chosen = choose([WordRanking(0.7)], [words], [lonely(words, 0, 3, 13, 23)])
    coherent = (1, 2, *range(4, 12)), (12, *range(14, 23))
    assert chosen == WordRanking(0.7, first=coherent)
