"""Synthetic documents for the benchmarks, the same for every contestant."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

WORDS_A_DOCUMENT = 100


def bag_of_words(n_documents: int, n_words: int, seed: int = 0) -> sparse.csr_array:
    """Draw Zipf-like documents in which every word of the vocabulary occurs.

    Returns
    -------
    float32 CSR array of shape (n_documents, n_words)
    """
    rng = np.random.default_rng(seed)
    rank = np.arange(1, n_words + 1)
    cumulative = np.cumsum(1 / (rank + 10.0))
    drawn = rng.random((n_documents, WORDS_A_DOCUMENT)) * cumulative[-1]
    words = np.searchsorted(cumulative, drawn)
    every = np.arange(n_words)
    rows = np.concatenate(
        [np.repeat(np.arange(n_documents), WORDS_A_DOCUMENT), every % n_documents]
    )
    columns = np.concatenate([words.ravel(), every])
    ones = np.ones(len(rows), np.float32)
    bag = sparse.csr_array(sparse.coo_array((ones, (rows, columns)), (n_documents, n_words)))
    bag.sum_duplicates()
    return bag


def tokenised(bag: sparse.csr_array) -> Any:
    """Turn a bag of words into documents of tokens w0, w1, ..., without a Python string."""
    import pyarrow as pa  # the peer's environment has none

    bag.sort_indices()
    names = pa.array([f"w{i}" for i in range(bag.shape[1])], pa.large_string())
    ends = np.concatenate([[0], np.cumsum(bag.sum(1))]).astype(np.int64)
    words = names.take(pa.array(np.repeat(bag.indices, bag.data.astype(int))))
    return pa.chunked_array([pa.LargeListArray.from_arrays(pa.array(ends), words)])


def embedded(n_documents: int, dimension: int = 384, seed: int = 0) -> Any:
    """Draw embeddings of unit length, float32 of shape (n_documents, dimension)."""
    vectors = np.random.default_rng(seed).standard_normal((n_documents, dimension), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
