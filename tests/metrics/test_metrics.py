"""Scores of topic models."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gensim.corpora import Dictionary
from gensim.topic_coherence.text_analysis import WordOccurrenceAccumulator

from fedtopics.errors import DataError, StudyError
from fedtopics.metrics import (
    WINDOWS,
    clustering_accuracy,
    coherence_of,
    count_cooccurrences,
    inverted_rank_biased_overlap,
    mean_cosine_dissimilarity,
    normalised_mutual_information,
    purity,
    topic_similarity,
    unique_words,
)
from tests.helpers.gensim_scores import gensim_scores

LABELS = ["a", "a", "b", "b", "c", "c"]


def test_purity() -> None:
    assert purity(LABELS, np.array([5, 5, 2, 2, 9, 9])) == 1.0
    assert purity(LABELS, np.array([0, 0, 0, 0, 1, 1])) == pytest.approx(4 / 6)
    assert purity(LABELS, np.zeros(6, int)) == pytest.approx(2 / 6)


def test_normalised_mutual_information() -> None:
    assert normalised_mutual_information(LABELS, np.array([5, 5, 2, 2, 9, 9])) == pytest.approx(1)
    assert normalised_mutual_information(LABELS, np.zeros(6, int)) == 0.0
    # I(labels; topics) = log 2, H(labels) = log 2, H(topics) = log 4
    split = normalised_mutual_information(["a", "a", "b", "b"], np.arange(4))
    assert split == pytest.approx(np.log(2) / ((np.log(2) + np.log(4)) / 2))
    split = normalised_mutual_information(["a", "a", "b", "b"], np.arange(4), average="geometric")
    assert split == pytest.approx(np.log(2) / np.sqrt(np.log(2) * np.log(4)))


def test_clustering_accuracy() -> None:
    assert clustering_accuracy(LABELS, np.array([5, 5, 2, 2, 9, 9])) == 1.0
    assert clustering_accuracy(LABELS, list("xxyyyz")) == pytest.approx(5 / 6)


def test_clusters_are_matched_together() -> None:
    """One cluster after the other, 0 would take a, and 1 have none left."""
    labels = list("aaaaabb")
    clusters = [0, 0, 0, 1, 1, 0, 0]
    # 0 as a and 1 as b: 3 right; 0 as b and 1 as a: 4 right
    assert clustering_accuracy(labels, clusters) == pytest.approx(4 / 7)
    assert purity(labels, np.array(clusters)) == pytest.approx(5 / 7)


def test_topic_similarity() -> None:
    true = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert topic_similarity(true, true) == pytest.approx(2)
    assert topic_similarity(true, true[::-1]) == pytest.approx(2)
    # closest to the first: sqrt(1 * 0.25); to the second: 2 sqrt(0.5 * 0.375)
    assert topic_similarity(true, np.array([[0.25, 0.375, 0.375]])) == pytest.approx(
        0.5 + 2 * np.sqrt(0.5 * 0.375)
    )


def test_unique_words() -> None:
    topics = [["a", "b", "c"], ["a", "d", "c"], ["e", "f", "c"]]
    assert unique_words(topics) == 6 / 9
    assert unique_words(topics, n_words=2) == 5 / 6
    assert np.isnan(unique_words([]))


def test_mean_cosine_dissimilarity() -> None:
    # cosines: 1, 0.6, 0.6
    beta = np.array([[1.0, 0.0], [1.0, 0.0], [3 / 7, 4 / 7]])
    assert mean_cosine_dissimilarity(beta) == pytest.approx(1 - 2.2 / 3)
    assert np.isnan(mean_cosine_dissimilarity(beta[:1]))


def test_rank_biased_overlap_by_hand_and_at_the_ends() -> None:
    # agreements 0, 1, 2/3; p = 1/2: (0 + 1/4 + 1/12) + 2/3 * 1/8
    topics = [["a", "b", "c"], ["b", "a", "d"]]
    assert inverted_rank_biased_overlap(topics, 0.5) == pytest.approx(1 - (1 / 3 + 1 / 12))

    assert inverted_rank_biased_overlap([["a", "b"], ["a", "b"]]) == pytest.approx(0)
    assert inverted_rank_biased_overlap([["a", "b"], ["c", "d"]]) == 1
    assert inverted_rank_biased_overlap([["a", "b"], ["a", "c"]], n_words=1) == pytest.approx(0)
    assert np.isnan(inverted_rank_biased_overlap([["a", "b"]]))


def slow_overlap(one: list[str], other: list[str], p: float) -> float:
    """Webber et al., equation 32 with lists of one length."""
    agreement = [len(set(one[:d]) & set(other[:d])) / d for d in range(1, len(one) + 1)]
    seen = sum(share * p**d for d, share in enumerate(agreement, 1))
    return agreement[-1] * p ** len(one) + (1 - p) / p * seen


@pytest.mark.parametrize("weight", [0.2, 0.9])
def test_rank_biased_overlap_is_the_formula(weight: float) -> None:
    rng = np.random.default_rng(0)
    topics = [rng.permutation(list("abcdefghijklmno"))[:10].tolist() for _ in range(4)]
    pairs = [(i, j) for i in range(4) for j in range(i)]
    assert inverted_rank_biased_overlap(topics, weight) == pytest.approx(
        1 - np.mean([slow_overlap(topics[i], topics[j], weight) for i, j in pairs])
    )


# Coherence and its counts, against gensim's


WORDS = [f"w{number}" for number in range(12)]
TOPICS = [WORDS[:4], WORDS[3:9], WORDS[::-1][:5]]
LONGER = 10_000  # than any document


def random_texts(seed: int) -> list[list[str]]:
    """Short, long and empty documents; repeated words; some without a word of interest."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(WORDS + [f"other{number}" for number in range(30)])
    texts = [
        rng.choice(vocabulary, rng.integers(0, longest), p=rng.dirichlet(np.full(42, 0.2)))
        for longest in (1, 4, 12, 12, 12, 40, 130, 300)
        for _ in range(4)
    ]
    return [WORDS, *(text.tolist() for text in texts), [], ["other1"] * 15]


def assert_same(counts: Any, expected: Any) -> None:
    assert counts["windows"] == expected["windows"]
    assert np.array_equal(counts["occurrences"], expected["occurrences"])
    assert np.array_equal(counts["together"], expected["together"])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("window", [1, 2, 5, 10, 110, None])
def test_counts_are_gensims(seed: int, window: int | None) -> None:
    texts = random_texts(seed)
    dictionary = Dictionary(texts)
    ids = {dictionary.token2id[word] for word in WORDS}
    theirs = WordOccurrenceAccumulator(ids, dictionary).accumulate(texts, window or LONGER)
    expected = {
        "windows": theirs.num_docs,
        "occurrences": [theirs[word] for word in WORDS],
        "together": [[theirs[one, other] for other in WORDS] for one in WORDS],
    }
    assert_same(count_cooccurrences(texts, WORDS, window), expected)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("measure", ["c_v", "npmi", "u_mass"])
@pytest.mark.parametrize("window", ["usual", None])
def test_coherence_is_gensims(seed: int, measure: Any, window: Any) -> None:
    texts = random_texts(seed)
    size = LONGER if window is None else WINDOWS[measure]
    assert coherence_of(TOPICS, texts, measure, window) == pytest.approx(
        gensim_scores(TOPICS, texts, measure, size), abs=1e-9
    )


@pytest.mark.parametrize("window", [3, 110, None])
def test_clients_counts_add_up_to_the_pooled(window: int | None) -> None:
    clients = [random_texts(seed) for seed in range(3)]
    counts: list[Any] = [count_cooccurrences(texts, WORDS, window) for texts in clients]
    total = {field: sum(part[field] for part in counts) for field in counts[0]}
    assert_same(
        total, count_cooccurrences([text for texts in clients for text in texts], WORDS, window)
    )


def test_a_word_that_occurs_nowhere() -> None:
    texts = [["a", "b"], ["a", "b"], ["c"]]
    pairs = [["a", "nowhere"], ["nowhere", "a"], ["nowhere", "never"]]
    assert coherence_of(pairs, texts, "npmi").tolist() == [-1, -1, -1]
    assert coherence_of(pairs, texts, "c_v") == pytest.approx([1 / 2, 1 / 2, 0])
    assert coherence_of(pairs, texts, "u_mass") == pytest.approx([np.log(1.5e-12), 0, 0])


@pytest.mark.parametrize("measure", ["c_v", "npmi", "u_mass"])
def test_no_text_and_no_topic(measure: Any) -> None:
    assert np.isfinite(coherence_of([["a", "b"]], [], measure)).all()
    assert np.isnan(coherence_of([[]], [["a"]], measure)).all()
    assert coherence_of([], [["a"]], measure).shape == (0,)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: clustering_accuracy([], []), DataError, "0 labels but 0 clusters of documents"),
        (lambda: clustering_accuracy(["a"], [0, 1]), DataError, "There are 1 labels but 2 clus"),
        (
            lambda: inverted_rank_biased_overlap([["a"], ["a", "b"]]),
            DataError,
            "different numbers of words",
        ),
        (
            lambda: inverted_rank_biased_overlap([["a"], ["b"]], weight=1.0),
            StudyError,
            r"weight=1\.0 is out of range",
        ),
        (
            lambda: coherence_of([["a"]], [["a"]], "c_w2v"),  # type: ignore[arg-type]
            StudyError,
            "'c_w2v' is unknown; choose from c_v, npmi, u_mass",
        ),
        (lambda: count_cooccurrences([["a"]], ["a", "a"], 2), DataError, "given twice"),
        (lambda: count_cooccurrences([["a"]], ["a"], 0), StudyError, "window=0 cannot be used"),
    ],
)
def test_mistakes(call: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
