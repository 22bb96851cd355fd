"""Word vectors, and the distances of topics that rest on them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from experiments.gfedntm.word_mover import amwmd, word_mover_distances
from experiments.gfedntm.word_vectors import WordVectors, read_word_vectors
from fedtopics.errors import DataError, FedTopicsError

WORDS = ["tea", "milk", "sand", "sea", "grün", "new_york"]


@pytest.fixture(scope="module")
def keyed() -> KeyedVectors:
    vectors = KeyedVectors(5)
    vectors.add_vectors(WORDS, np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32))
    return vectors


def assert_holds(vectors: WordVectors, keyed: KeyedVectors, words: list[str]) -> None:
    assert list(vectors.index) == words
    assert np.array_equal(vectors.vectors, np.array([keyed[word] for word in words]))


@pytest.mark.parametrize("header", [True, False])
def test_text(tmp_path: Path, keyed: KeyedVectors, header: bool) -> None:
    path = tmp_path / "vectors.txt"
    keyed.save_word2vec_format(str(path), write_header=header)
    assert_holds(read_word_vectors(path), keyed, WORDS)
    assert_holds(read_word_vectors(str(path), ["sea", "absent", "tea"]), keyed, ["tea", "sea"])


def test_binary(tmp_path: Path, keyed: KeyedVectors) -> None:
    path = tmp_path / "vectors.bin"
    keyed.save_word2vec_format(str(path), binary=True)
    assert_holds(read_word_vectors(path), keyed, WORDS)
    assert_holds(read_word_vectors(path, ["grün"]), keyed, ["grün"])


def test_objects(keyed: KeyedVectors) -> None:
    assert_holds(WordVectors.of(keyed), keyed, WORDS)
    assert_holds(WordVectors.of(keyed, ["milk"]), keyed, ["milk"])
    assert_holds(WordVectors.of({word: keyed[word] for word in WORDS}), keyed, WORDS)
    assert len(WordVectors.of({})) == 0
    with pytest.raises(DataError, match="int holds no word vectors"):
        WordVectors.of(3)
    with pytest.raises(DataError, match="differ in length"):
        WordVectors.of({"a": [1.0], "b": [1.0, 2.0]})
    with pytest.raises(DataError, match="not a list of finite numbers"):
        WordVectors.of({"a": 1.0})
    with pytest.raises(DataError, match="not a list of finite numbers"):
        WordVectors.of({"a": [1.0, np.nan]})


def test_glove_words_with_spaces_and_repeated_words(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2\n. . 3 4\na 5 6\n\n")
    vectors = read_word_vectors(path)
    assert vectors.index == {"a": 0, ". .": 1}
    assert vectors.vectors.tolist() == [[1, 2], [3, 4]]


def test_pickles_are_refused(tmp_path: Path, keyed: KeyedVectors) -> None:
    path = tmp_path / "vectors.kv"
    keyed.save(str(path))
    with pytest.raises(DataError, match=r"vectors\.kv: a pickle.*save_word2vec_format"):
        read_word_vectors(path)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps({"a": [1.0]}, protocol))
        with pytest.raises(DataError):
            read_word_vectors(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"a 1 2\nb 1\n", "line 2: 1 numbers where 2 belong"),
        (b"2 2\na 1 2\nb 1 x\n", "line 3: not all that follows the word is a number"),
        (b"a 1 nan\n", "line 1: a number is not finite"),
        (b"a 1 1e300\n", "line 1: a number is not finite"),
        (b"3 2\na 1 2\nb 1 2\n", "line 1 announces 3 words, but 2 follow"),
        (b"1 2\na 1 2\nb 1 2\n", "line 1 announces 1 words, but 2 follow"),
        (b"one\n", "line 1: no numbers follow the word"),
        (b"1 0\na\n", "line 2: no numbers follow the word"),
        (b"a 1 2\n\xff\xfe 1 2\n", "line 2: the word is not UTF-8"),
        (b"2 1\na \x00\x00\x80\x3fb \x00\x00", "word 2 of 2 is damaged, or the file ends"),
        (b"1 1\na \x00\x00\x80\x7f", "word 1 of 1: a number is not finite"),
        (b"1 1\n\xff\xfe \x00\x00\x80\x3f", "word 1 of 1: the word is not UTF-8"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_word_vectors(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_word_vectors(tmp_path / "absent.txt")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_word_vectors(tmp_path)


def test_word_mover_distances_are_gensims(keyed: KeyedVectors) -> None:
    topics = [["tea", "milk"], ["sand", "sea", "grün"], ["tea", "sea", "unknown"], ["sand"]]
    found = word_mover_distances(topics, topics, WordVectors.of(keyed))
    expected = [[keyed.wmdistance(one, other) for other in topics] for one in topics]
    assert found == pytest.approx(np.array(expected), abs=1e-6)
    assert found == pytest.approx(found.T)
    assert np.diagonal(found) == pytest.approx(0, abs=1e-12)


def test_topics_without_vectors() -> None:
    vectors = WordVectors.of({"a": [1.0, 0.0], "b": [0.0, 2.0], "zero": [0.0, 0.0]})
    found = word_mover_distances([["a"], ["zero", "x"]], [["b", "x"], ["x"], []], vectors)
    assert found[0, 0] == pytest.approx(np.sqrt(2))
    assert np.isnan(found[0, 1:]).all() and np.isnan(found[1]).all()


def test_amwmd() -> None:
    vectors = WordVectors.of({"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0]})
    # a to b: sqrt 2, a to c: 2; b to b: 0
    result = amwmd([["a"], ["b"]], [["c"], ["b"], ["unknown"]], vectors)
    assert result.total == pytest.approx(np.sqrt(2))
    assert result.mean == pytest.approx(np.sqrt(2) / 2)
    assert amwmd([["a"], ["b"]], [["b"], ["a"]], vectors) == (0, 0)
    assert np.isnan(amwmd([["a"], ["unknown"]], [["b"]], vectors)).all()


def test_the_optional_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(FedTopicsError, match=r"pip install '\.\[experiments\]'"):
        word_mover_distances([["a"]], [["a"]], WordVectors.of({"a": [1.0]}))
