"""Two models beside each other: which topics are the same, what is new, what is gone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtopics import Study, train
from fedtopics.errors import StudyError
from fedtopics.model.comparison import SAME_TOPIC, compare
from tests.helpers.federation import ANY_WORDS, study, subjects
from tests.helpers.models import model_of

A = model_of([{"a": 3, "b": 4}, {"c": 5}, {"d": 2, "e": 1}], [0.5, 0.2, 0.3], words="xy")
B = model_of([{"f": 5}, {"c": 3, "g": 4}, {"b": 4, "a": 3}], [0.1, 0.6, 0.3], words="x")


def test_topics_are_matched_by_word() -> None:
    comparison = compare(A, B, n_words=2, threshold=0.5)
    assert [(pair.a, pair.b) for pair in comparison.pairs] == [(1, 1), (0, 2)]
    assert [pair.similarity for pair in comparison.pairs] == pytest.approx([0.6, 1.0])
    assert comparison.similarity == pytest.approx(0.8)
    pair = comparison.pairs[1]
    assert (pair.share_a, pair.share_b) == (0.5, 0.3)
    # The models have 10 documents each: sqrt(.5 * .5 / 10) and sqrt(.3 * .7 / 10).
    assert pair.share_margin == pytest.approx(1.96 * (0.15811 + 0.14491), abs=1e-4)
    assert (pair.common, pair.new, pair.removed) == (["b", "a"], [], [])
    assert [(one.topic, one.share, one.words[0]) for one in comparison.new] == [(0, 0.1, "f")]
    assert [(one.topic, one.share, one.words[0]) for one in comparison.removed] == [(2, 0.3, "d")]
    assert (comparison.words_common, comparison.words_new, comparison.words_removed) == (4, 2, 3)


def test_the_threshold_decides() -> None:
    comparison = compare(A, B, threshold=0.7)
    assert [(pair.a, pair.b) for pair in comparison.pairs] == [(0, 2)]
    assert [one.topic for one in comparison.new] == [1, 0], "the largest first"
    assert [one.topic for one in comparison.removed] == [2, 1]
    none = compare(A, model_of([{"z": 1}], [1.0]))
    assert (none.pairs, none.similarity, len(none.new), len(none.removed)) == ([], 0.0, 1, 3)


def test_coherence_is_compared_over_pairs() -> None:
    a = replace(A, coherence={"npmi": np.array([0.5, 0.25, 0.0])})
    b = replace(B, coherence={"npmi": np.array([0.9, 0.5, 0.25])})
    same = compare(a, b, threshold=0.5)
    assert same.coherence == 0.0, "+.25 of one pair and -.25 of the other"
    assert same.coherence_margin == pytest.approx(12.706 * 0.25, abs=1e-3)
    one = compare(a, replace(b, coherence={"npmi": np.array([0.9, np.nan, 0.25])}), threshold=0.5)
    assert (one.coherence, one.coherence_margin) == (-0.25, None)


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5, float("nan")])
def test_what_is_no_threshold(threshold: float) -> None:
    with pytest.raises(StudyError, match="give a number in"):
        compare(A, B, threshold=threshold)


def test_pairs_are_those_that_sum_to_most() -> None:
    """Each topic's best would be the same one."""
    one = model_of([{"a": 10, "b": 1}, {"a": 10, "c": 4}], [0.5, 0.5])
    other = model_of([{"a": 1}, {"a": 1, "c": 1}], [0.5, 0.5])
    pairs = {(pair.a, pair.b) for pair in compare(one, other, threshold=0.5).pairs}
    assert pairs == {(0, 0), (1, 1)}


def test_a_model_and_itself() -> None:
    comparison = compare(A, replace(A))
    assert [(pair.a, pair.b) for pair in comparison.pairs] == [(0, 0), (2, 2), (1, 1)]
    assert comparison.similarity == pytest.approx(1)
    assert all(pair.similarity <= 1 for pair in comparison.pairs)
    assert comparison.new == comparison.removed == []


def test_trained_models_of_any_method() -> None:
    corpora = subjects({"east": 60, "north": 60})
    given: list[dict[str, Any]] = [
        {"name": "lda", "n_components": 4, "max_rounds": 10},
        {"name": "kmeans", "n_components": 3, "representation": "bow", "max_rounds": 3},
    ]
    models = [train(Study.make(method=method, vocabulary=ANY_WORDS), corpora) for method in given]
    models.append(train(study(max_rounds=10), corpora))
    for a in models:
        for b in models:
            comparison = compare(a, b)
            assert len(comparison.pairs) + len(comparison.new) == b.n_topics
            assert len(comparison.pairs) + len(comparison.removed) == a.n_topics
            assert all(SAME_TOPIC <= pair.similarity <= 1 for pair in comparison.pairs)
        assert all(pair.a == pair.b for pair in compare(a, a).pairs)
