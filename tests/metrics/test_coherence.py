"""Coherence and its counts, against gensim's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gensim.corpora import Dictionary
from gensim.models import CoherenceModel
from gensim.topic_coherence.text_analysis import WordOccurrenceAccumulator

from fedtopics.errors import DataError, StudyError
from fedtopics.metrics import WINDOWS, coherence, coherence_of, count_cooccurrences

WORDS = [f"w{number}" for number in range(12)]
TOPICS = [WORDS[:4], WORDS[3:9], WORDS[::-1][:5]]
LONGER = 10_000  # than any document
GENSIM = {"c_v": "c_v", "npmi": "c_npmi", "u_mass": "u_mass"}


def random_texts(seed: int) -> list[list[str]]:
    """Short, long and empty documents; repeated words; some without a word of interest."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(WORDS + [f"other{number}" for number in range(30)])
    texts = [
        rng.choice(vocabulary, rng.integers(0, longest), p=rng.dirichlet(np.full(42, 0.2)))
        for longest in (1, 4, 12, 12, 12, 40, 130, 300)
        for _ in range(4)
    ]
    nothing_of_interest = ["other1"] * 15
    return [WORDS, *(text.tolist() for text in texts), [], nothing_of_interest]


def gensim_scores(texts: list[list[str]], measure: str, window: int | None) -> list[float]:
    model = CoherenceModel(
        topics=TOPICS,
        texts=texts,
        dictionary=Dictionary(texts),
        coherence=GENSIM[measure],
        window_size=window,
        processes=1,
    )
    scores: list[float] = model.get_coherence_per_topic()
    return scores


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
    scores = coherence_of(TOPICS, texts, measure, window)
    assert scores == pytest.approx(gensim_scores(texts, measure, size), abs=1e-9)


@pytest.mark.parametrize("window", [3, 110, None])
def test_clients_counts_add_up_to_the_pooled(window: int | None) -> None:
    clients = [random_texts(seed) for seed in range(3)]
    counts: list[Any] = [count_cooccurrences(texts, WORDS, window) for texts in clients]
    total = {field: sum(part[field] for part in counts) for field in counts[0]}
    pooled = [text for texts in clients for text in texts]
    assert_same(total, count_cooccurrences(pooled, WORDS, window))


def test_counts_by_hand() -> None:
    """Windows: a x, x b, b a; then the short document; then the empty one."""
    counts = count_cooccurrences([["a", "x", "b", "a"], ["b"], []], ["a", "b", "c"], 2)
    expected = {
        "windows": 5,
        "occurrences": [2, 3, 0],
        "together": [[2, 1, 0], [1, 3, 0], [0, 0, 0]],
    }
    assert_same(counts, expected)


def test_coherence_by_hand() -> None:
    """a in 2 of 4 documents, b in 2 of 4, together in 1: independent."""
    texts = [["a", "b"], ["a"], ["b"], ["c"]]
    assert coherence_of([["a", "b"]], texts, "npmi", None) == pytest.approx([0], abs=1e-9)
    assert coherence_of([["a", "b"]], texts, "u_mass") == pytest.approx([np.log(1 / 2)])
    # contexts (1, 0) and (0, 1), their sum (1, 1)
    assert coherence_of([["a", "b"]], texts, "c_v", None) == pytest.approx([np.sqrt(1 / 2)])


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


def test_mistakes() -> None:
    counts = count_cooccurrences([["a"]], ["a"], 2)
    with pytest.raises(DataError, match="Topic 1 holds a word that was not counted"):
        coherence([["a"], ["b"]], counts, ["a"], "npmi")
    with pytest.raises(StudyError, match="'c_w2v' is unknown; choose from c_v, npmi, u_mass"):
        coherence_of([["a"]], [["a"]], "c_w2v")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="given twice"):
        count_cooccurrences([["a"]], ["a", "a"], 2)
    with pytest.raises(StudyError, match="A window of 0 tokens"):
        count_cooccurrences([["a"]], ["a"], 0)
