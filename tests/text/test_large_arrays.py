"""Tests of arrays that lie in a file."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from fedtopics.text import large_arrays
from fedtopics.text.corpus import Corpus
from fedtopics.text.large_arrays import GrowingArray, set_aside
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words

MAPS = Path("/proc/self/maps")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few bytes be large."""
    monkeypatch.setattr(large_arrays, "LARGE", 16)


@pytest.mark.usefixtures("small")
def test_an_array_grows_across_the_limit() -> None:
    growing = GrowingArray(np.int32)
    parts = [np.arange(2), np.arange(9), np.zeros(0), np.arange(1)]
    for number, part in enumerate(parts, 1):
        growing.append(part)
        found = growing.array()
        assert found.dtype == np.int32
        assert found.tolist() == np.concatenate(parts[:number]).tolist()


@pytest.mark.usefixtures("small")
def test_what_is_large_lies_in_a_file_without_a_name() -> None:
    matrix = sparse.random_array((30, 40), density=0.3, rng=np.random.default_rng(0), format="csr")
    aside = set_aside(matrix)
    if MAPS.exists():  # on Linux
        assert MAPS.read_text(encoding="utf-8").count("(deleted)") >= 2
    assert (aside[[3, 4, 9]] != matrix[[3, 4, 9]]).nnz == 0
    aside.data[0] = 7  # as an array in memory
    assert aside[np.repeat(True, 30)].data[0] == 7


@pytest.mark.parametrize("limit", [16, 1 << 20])
def test_counts_are_the_same_in_a_file(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_arrays, "LARGE", limit)
    rows = [["tea", "milk", "tea"], [], ["sun"] * 9, ["milk", "sun"]] * 3000
    counted = count_words(Corpus.of(rows), TextRules())
    assert counted.words == ["tea", "milk", "sun"]
    assert counted.counts[:4].toarray().tolist() == [[2, 1, 0], [0, 0, 0], [0, 0, 9], [0, 1, 1]]
    assert counted.counts.shape == (12_000, 3)
    assert counted.counts.sum() == 14 * 3000
    assert counted.counts.indices.dtype == np.int32
