"""Arithmetic modulo 2^61 - 1 is that of Python's integers, also at the ends of its range."""

from __future__ import annotations

import numpy as np
import pytest

from fedtopics.errors import FederationError
from fedtopics.secure.field import (
    BLOCK,
    PRIME,
    _add,
    _dot,
    _subtract,
    add_stream,
    check_residues,
    dot_stream,
)

SEED = bytes(range(32))
MOST = 2**64 - 1
EXTREMES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**60, PRIME - 1]
WORDS = [*EXTREMES, PRIME, PRIME + 1, 2**63, 7 * 2**61, MOST - 7, MOST]  # of a keystream: any


def stream(size: int) -> list[int]:
    """The stream as one addition to zeros gives it; test_vectors.py has it by hand."""
    zeros = np.zeros(size, np.uint64)
    add_stream(zeros, SEED, 1)
    return [int(value) for value in zeros]


@pytest.mark.parametrize("size", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_streams_against_integers(size: int) -> None:
    values = np.random.default_rng(size).integers(0, PRIME, size, np.uint64)
    added, subtracted = values.copy(), values.copy()
    add_stream(added, SEED, 1)
    add_stream(subtracted, SEED, -1)
    pairs = [(int(a), b) for a, b in zip(values, stream(size), strict=True)]
    assert added.tolist() == [(a + b) % PRIME for a, b in pairs]
    assert subtracted.tolist() == [(a - b) % PRIME for a, b in pairs]
    assert dot_stream(SEED, values) == [sum(a * b for a, b in pairs) % PRIME]


def test_extremes() -> None:
    pairs = [(a, word) for a in EXTREMES for word in WORDS]
    totals = np.array([a for a, _ in pairs], np.uint64)
    words = np.array([word for _, word in pairs], np.uint64)
    for kernel, sign in ((_add, 1), (_subtract, -1)):
        changed = totals.copy()
        kernel(changed, words)
        assert changed.tolist() == [(a + sign * word) % PRIME for a, word in pairs]


def test_a_product_does_not_overflow() -> None:
    """Largest halves everywhere: of the factors, and of what is added up."""
    for a in EXTREMES:
        for word in WORDS:
            factors = np.full(BLOCK, a, np.uint64), np.full(BLOCK, word, np.uint64)
            sums = low, high, inner_low, inner_high = [int(found) for found in _dot(*factors)]
            found = low + (high << 32) + ((inner_low + (inner_high << 32)) << 31)
            assert found % PRIME == BLOCK * a * word % PRIME
            assert max(sums) <= BLOCK * (2**32 - 1), "and 2^32 of them fit into 64 bits"


@pytest.mark.parametrize(
    "values",
    [
        np.array([0, PRIME], np.uint64),
        np.array([0, MOST], np.uint64),
        np.zeros(3, np.uint64),
        np.zeros((2, 1), np.uint64),
        np.zeros(2, np.int64),
        [0, 0],
        None,
    ],
)
def test_what_are_no_residues(values: object) -> None:
    with pytest.raises(FederationError, match="not 2 numbers modulo"):
        check_residues(values, 2)


def test_residues() -> None:
    values = np.array([0, PRIME - 1], np.uint64)
    assert check_residues(values, 2) is values
