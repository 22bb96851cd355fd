"""Word vectors, and the distances of topics that rest on them."""

import sys

import numpy as np
import pytest
from gensim.models import KeyedVectors

from experiments.fstc.runs import damaged, mistakes
from experiments.gfedntm.word_mover import WordVectors, amwmd, word_mover_distances
from fedtopics.errors import FedTopicsError

WORDS = ["tea", "milk", "sand", "sea", "grün", "new_york"]


@pytest.fixture(scope="module")
def keyed() -> KeyedVectors:
    vectors = KeyedVectors(5)
    vectors.add_vectors(WORDS, np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32))
    return vectors


def of(vectors: dict[str, list[float]]) -> WordVectors:
    return WordVectors(
        {word: number for number, word in enumerate(vectors)}, np.array(list(vectors.values()))
    )


def test_word_mover_distances_are_gensims(keyed: KeyedVectors) -> None:
    topics = [["tea", "milk"], ["sand", "sea", "grün"], ["tea", "sea", "unknown"], ["sand"]]
    distances = word_mover_distances(topics, topics, WordVectors(keyed.key_to_index, keyed.vectors))
    assert distances == pytest.approx(
        np.array([[keyed.wmdistance(one, other) for other in topics] for one in topics]), abs=1e-6
    )
    assert distances == pytest.approx(distances.T)
    assert np.diagonal(distances) == pytest.approx(0, abs=1e-12)


def test_topics_without_vectors() -> None:
    vectors = of({"a": [1.0, 0.0], "b": [0.0, 2.0], "zero": [0.0, 0.0]})
    distances = word_mover_distances([["a"], ["zero", "x"]], [["b", "x"], ["x"], []], vectors)
    assert distances[0, 0] == pytest.approx(np.sqrt(2))
    assert np.isnan(distances[0, 1:]).all() and np.isnan(distances[1]).all()


def test_amwmd() -> None:
    vectors = of({"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0]})
    # a to b: sqrt 2, a to c: 2; b to b: 0
    result = amwmd([["a"], ["b"]], [["c"], ["b"], ["unknown"]], vectors)
    assert result.total == pytest.approx(np.sqrt(2))
    assert result.mean == pytest.approx(np.sqrt(2) / 2)
    assert amwmd([["a"], ["b"]], [["b"], ["a"]], vectors) == (0, 0)
    assert np.isnan(amwmd([["a"], ["unknown"]], [["b"]], vectors)).all()


def test_the_optional_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(FedTopicsError, match=r"pip install '\.\[experiments\]'"):
        word_mover_distances([["a"]], [["a"]], of({"a": [1.0]}))


TEXTS = ["oaks and beeches along the river", "a ketch of two masts"] * 500


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 1.0])
def test_a_share_of_the_words_is_damaged(share: float) -> None:
    damaged_texts = damaged(TEXTS, share, seed=3)
    words, others = (" ".join(texts).split() for texts in (TEXTS, damaged_texts))
    changed = [(word, other) for word, other in zip(words, others, strict=True) if word != other]
    assert len(changed) / len(words) == pytest.approx(share, abs=0.02)
    assert all(other in mistakes(word) for word, other in changed)
    assert [len(text.split()) for text in damaged_texts] == [len(text.split()) for text in TEXTS]


def test_the_seed_draws() -> None:
    assert damaged(TEXTS, 0.3, seed=3) == damaged(TEXTS, 0.3, seed=3)
    assert damaged(TEXTS, 0.3, seed=3) != damaged(TEXTS, 0.3, seed=4)


def test_a_mistake_changes_a_word_and_leaves_some_of_it() -> None:
    assert mistakes("two") == ["to", "tow", "ttwo", "tw", "twoo", "twwo", "wo", "wto"]
    assert mistakes("a") == ["aa"]
    assert "oo" not in mistakes("oo")
