"""Nearness of documents to topics, from sums by level."""

import numpy as np
import pytest

from fedtopics import Study
from fedtopics.model.evaluation import evaluate
from fedtopics.model.nearness import (
    LEVELS,
    centres_of,
    in_centres,
    joined_levels,
    level_sums,
    levels_of,
    nearness_scores,
    summarised,
)
from fedtopics.model.spread import bootstrap_interval
from tests.helpers.clusters import blobs, planned, trained
from tests.helpers.federation import ANY_WORDS


def test_levels_have_equal_widths() -> None:
    theta = np.array([[0.0], [0.14], [0.15], [0.5], [0.86], [1.0]])
    assert levels_of(theta)[..., 0].argmax(1).tolist() == [0, 0, 1, 3, 6, 6]


def test_the_score_is_that_of_a_hand() -> None:
    theta = np.array([[0.1], [0.1], [0.5], [0.9]])
    near = np.array([[0.0], [0.2], [0.3], [0.8]])
    sums = level_sums(levels_of(theta), theta, near)
    # Means of levels: shares .1, .5, .9; nearness .1, .3, .8.
    expected = (0.1 * 0.1 + 0.5 * 0.3 + 0.9 * 0.8) / 1.5 - 1.2 / 3
    assert nearness_scores(sums, np.ones((1, 2))) == pytest.approx(expected)
    assert np.isnan(nearness_scores(sums, np.zeros((1, 2)))), "a topic without a centre"
    assert np.isnan(nearness_scores(sums * (levels_of(theta[:1])), np.ones((1, 2)))), "one level"


def test_a_centre_is_of_documents_with_half_of_the_topic_if_there_are_any() -> None:
    theta = np.array([[0.8, 0.2], [0.6, 0.4], [0.1, 0.1]])
    np.testing.assert_allclose(
        in_centres(theta), [[0.8, 0, 0.8, 0.2], [0.6, 0, 0.6, 0.4], [0, 0, 0, 0]]
    )
    sums = np.array([[3.0, 4.0], [0, 0], [1, 0], [0, 2.0]])
    np.testing.assert_allclose(centres_of(sums), [[0.6, 0.8], [0, 1]])


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 0, 2, 0, 0, 4, 1], [7, 0, 0, 0, 0, 5, 0]),
        ([1, 0, 0, 4, 2, 3, 0], [0, 0, 0, 7, 0, 3, 0]),
        ([5, 0, 2, 0, 0, 2, 1], [0] * LEVELS),
        ([0] * LEVELS, [0] * LEVELS),
    ],
)
def test_small_levels_join_the_next_lower_one(counts: list[int], expected: list[int]) -> None:
    sums = np.array(counts, np.float64)[None, :, None] * [[[1.0]], [[0.5]], [[0.1]]]
    joined = joined_levels(sums, sums[0] >= 3)
    np.testing.assert_allclose(joined[..., 0], np.outer([1, 0.5, 0.1], expected))


def test_the_interval_is_over_topics_and_the_same_each_time() -> None:
    values = np.array([0.0, 1.0])
    assert bootstrap_interval(lambda rows: float(values[rows].mean()), 2) == (0, 1)
    assert bootstrap_interval(lambda rows: 0.0, 1) is None
    one, again = (summarised(np.array([0.1, np.nan, 0.2234, 0.3]), "e", 40) for _ in range(2))
    assert one is not None and one == again
    assert one["scores"] == [0.1, None, 0.223, 0.3]
    assert one["interval"][0] < one["mean"] == 0.208
    assert summarised(np.array([np.nan]), "e", 40) is None


def test_embeddings_of_a_models_own_encoder_favour_it() -> None:
    corpus = blobs(300)
    model = trained(planned("kmeans", coherence="documents", max_rounds=5), {"all": corpus})
    scores = evaluate(model, corpus)
    assert scores["nearness"]["mean"] == pytest.approx(model.info["nearness"]["mean"], abs=0.1)
    assert "over 5 of 5 topics, from 60 documents" in scores["nearness_basis"]
    assert scores["nearness_basis"].endswith("; trained on the same encoder, which favours it")
    # Embeddings of other documents.
    embeddings = np.random.default_rng(0).permutation(np.asarray(corpus.embeddings))
    method = {"name": "nmf", "n_components": 5, "coherence": "documents"}
    words = trained(Study.make(method=method, vocabulary=ANY_WORDS), {"all": corpus})
    assert "favours" not in evaluate(words, corpus)["nearness_basis"]
    chance = evaluate(words, corpus.with_embeddings(embeddings))["nearness"]["mean"]
    assert abs(chance) < 0.1 < 0.3 < evaluate(words, corpus)["nearness"]["mean"]
    assert evaluate(words, corpus.with_embeddings(None))["nearness"] is None
