"""Which documents count, and what each one adds to a sum: a vector with a norm of at most 1."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.errors import DataError
from fedtopics.inference.clusters import centred
from fedtopics.inference.vectors import TINY, Numbers, blocks, unit_rows
from fedtopics.privacy import Privacy
from fedtopics.text.corpus import Corpus

STEPS = 8  # steps of variational inference for the topics of documents
ENTRIES = 1 << 13  # entries of a bag that are processed at a time
LEAST_TOPIC = 1e-200  # smallest weight of a word in a topic, relative to the word's largest
DOUBLED = np.sqrt(2.0)
Vectors = NDArray[np.floating[Any]]


def counted_once(corpus: Corpus, privacy: Privacy | None) -> tuple[NDArray[np.int64], Numbers]:
    """Return the rows of the documents that count, and their weights; DataError as `persons`."""
    # A person's first different documents count, at most `most_documents`, and share weight 1.
    most = None if privacy is None else privacy.most_documents
    rows: list[int] = []
    whose = persons(corpus, privacy)
    seen: set[tuple[str, bytes]] = set()
    number: Counter[str] = Counter()
    for row, document in enumerate(zip(whose, _digests(corpus), strict=True)):
        name = document[0]
        if document not in seen and not (name and number[name] == most):
            seen.add(document)
            number[name] += 1
            rows.append(row)
    weights = [1 / number[whose[row]] if whose[row] else 1.0 for row in rows]
    return np.array(rows, np.int64), np.array(weights)


def persons(corpus: Corpus, privacy: Privacy | None) -> list[str]:
    """Return each document's person, "" if the bound is per document; DataError without column."""
    if privacy is None or privacy.unit == "document":
        return [""] * len(corpus)
    if corpus.persons is None:
        raise DataError(
            "The study protects persons, but the documents have no column of persons; name it with "
            "--columns person=NAME, or as person in the client's table."
        )
    return cast("list[str]", corpus.persons.to_pylist())


def _digests(corpus: Corpus) -> Iterator[bytes]:
    """Yield a digest of everything that each document can add to a sum."""
    for row, document in enumerate(chain.from_iterable(corpus.batches())):
        content = hashlib.sha256(json.dumps(document).encode())
        if corpus.embeddings is not None:
            content.update(corpus.embeddings[row].tobytes())
        yield content.digest()


def clipped_rows(rows: sparse.csr_array) -> sparse.csr_array:
    """Return rows scaled to length 1; a row of zeros stays unchanged."""
    return weighted_rows(rows, 1 / np.maximum(np.sqrt(_row_sums(rows, rows.data**2)), TINY))


def weighted_rows(rows: sparse.csr_array, weights: Numbers) -> sparse.csr_array:
    """Return rows times their weights."""
    return _with_data(rows, rows.data * np.repeat(weights, np.diff(rows.indptr)))


def bounded_occurrences(bag: sparse.csr_array, weights: Numbers) -> Numbers:
    """Return the number of documents with each word; of n words in one, each counts 1 / sqrt(n)."""
    return np.asarray(
        weighted_rows(clipped_rows(_with_data(bag, np.ones(bag.nnz))), weights).sum(0)
    )


def nearest_words(
    bag: sparse.csr_array, embeddings: Vectors, vectors: Vectors, most: int
) -> sparse.csr_array:
    """Return at most `most` words of each document, nearest to its embedding, as unit rows."""
    documents = _documents(bag)
    close = np.empty(len(documents))
    for part in _parts(len(documents)):
        close[part] = np.einsum("ij,ij->i", embeddings[documents[part]], vectors[bag.indices[part]])
    order = np.lexsort((-close, documents))
    # The ranks are those in the document, the nearest word first.
    chosen = np.sort(order[np.arange(len(order)) - bag.indptr[documents] < most])
    ends = np.concatenate([[0], np.cumsum(np.bincount(documents[chosen], minlength=bag.shape[0]))])
    return clipped_rows(
        sparse.csr_array((np.ones(len(chosen)), bag.indices[chosen], ends), bag.shape)
    )


def moments(embeddings: Vectors, weights: Numbers) -> tuple[Numbers, Numbers]:
    """Return the sum of embeddings, and the `packed` sum of their outer products."""
    n = embeddings.shape[1]
    total = np.zeros(n)
    products = np.zeros((n, n))
    for rows, block in blocks(embeddings):
        points = block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), 1)
        shares = points * weights[rows, None]
        total += shares.sum(0)
        products += points.T @ shares
    return total, packed(products)


def packed(symmetric: Numbers) -> Numbers:
    """Return the upper triangle of a symmetric matrix, as a vector of the matrix's length."""
    n = len(symmetric)
    return np.asarray((symmetric * np.where(np.eye(n, dtype=bool), 1, DOUBLED))[np.triu_indices(n)])


def unpacked(triangle: Numbers, n: int) -> Numbers:
    """Return the symmetric matrix (n, n) from its `packed` vector."""
    upper = np.zeros((n, n))
    upper[np.triu_indices(n)] = triangle / DOUBLED
    return np.asarray(upper + upper.T - np.diag(np.diag(upper)) * (2 - DOUBLED))


def placed(
    embeddings: Vectors, origin: Numbers, centres: Numbers
) -> tuple[Vectors, NDArray[np.int64]]:
    """Return embeddings less the origin, scaled to length 1, and each one's nearest unit centre."""
    points = centred(embeddings, origin)
    nearest = np.empty(len(embeddings), np.int64)
    for rows, block in blocks(points):
        # With `@` the last bits of a row, and so the result, would depend on the number of rows.
        nearest[rows] = np.einsum("ij,kj->ik", block, centres).argmax(1)
    return points, nearest


def sketched(
    bag: sparse.csr_array, rarity: Numbers, projection: Numbers, weights: Numbers
) -> Numbers:
    """Return a sketch (n_words, width) of the words that occur together.

    A document adds x (x' G), of at most length 1, without the products of a word with itself. In
    it, x has the roots of word counts times rarity, scaled to length 1, and G is the projection.
    """
    rows = clipped_rows(_with_data(bag, np.sqrt(bag.data) * rarity[bag.indices]))
    total = np.zeros(projection.shape)
    for part, block in blocks(rows):
        mixed = block @ projection
        shorter = weights[part] / np.maximum(_sketch_lengths(block, mixed, projection), 1)
        total += block.T @ (mixed * shorter[:, None])
        total -= (_with_data(block, block.data**2).T @ shorter)[:, None] * projection
    return total


def _sketch_lengths(rows: sparse.csr_array, mixed: Numbers, projection: Numbers) -> Numbers:
    """Return the length of each x (x' G) - diag(x^2) G; its row w is x_w (x' G - x_w G_w)."""
    documents = _documents(rows)
    squares = np.empty(len(documents))
    for part in _parts(len(documents)):
        share = rows.data[part, None]
        others = mixed[documents[part]] - share * projection[rows.indices[part]]
        squares[part] = share[:, 0] ** 2 * (others**2).sum(1)
    return np.sqrt(_row_sums(rows, squares))


def expected_words(
    bag: sparse.csr_array, topics: Numbers, alpha: float, weights: Numbers
) -> Numbers:
    """Return each topic's share of each word, summed over documents, (n_words, n_topics)."""
    from fedtopics.inference.variational import infer  # a server need not compile it

    topics = topics.astype(np.float64)
    # Relative to the word's largest: quotients of very rare words would not be numbers.
    topics = np.maximum(topics / topics.max(1, keepdims=True), LEAST_TOPIC)
    total = np.zeros(topics.shape)
    for rows, counts in blocks(bag):
        inferred = infer(counts, topics, alpha, STEPS)
        # Roots damp repetitions; those of a document have length 1 together.
        roots = weighted_rows(clipped_rows(_with_data(counts, np.sqrt(counts.data))), weights[rows])
        shared = _with_data(counts, inferred.ratios.data / counts.data * roots.data)
        total += (shared.T @ inferred.topics) * topics
    return total


def factored(
    points: sparse.csr_array, topics: Numbers, weights: Numbers
) -> tuple[Numbers, Numbers]:
    """Return X' W and `packed` W' W, for unit rows X with shares W of topics, weighted 1 / |w|."""
    from fedtopics.inference.variational import add_products, solve  # a server needs none

    sums = np.zeros(topics.shape)
    products = np.zeros((topics.shape[1],) * 2)
    for rows, block in blocks(clipped_rows(points)):  # tiny squares can make rows longer
        with np.errstate(over="ignore"):
            shares = _short(solve(block, topics))
        weighted = unit_rows(shares) * weights[rows, None]
        add_products(block, weighted, sums)
        products += shares.T @ weighted
    return sums, packed(products)


def _short(rows: Numbers) -> Numbers:
    """Return rows shortened to at most length 1; rows that are not finite become zeros."""
    rows = np.where(np.isfinite(rows).all(1, keepdims=True), rows, 0)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1))


def _row_sums(rows: sparse.csr_array, values: Numbers) -> Numbers:
    return np.asarray(np.bincount(_documents(rows), values, rows.shape[0]), np.float64)


def _documents(rows: sparse.csr_array) -> NDArray[np.int64]:
    return np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))


def _parts(n: int) -> Iterator[slice]:
    """Return slices of a range, `ENTRIES` at a time."""
    return (slice(start, start + ENTRIES) for start in range(0, n, ENTRIES))


def _with_data(rows: sparse.csr_array, data: NDArray[Any]) -> sparse.csr_array:
    return sparse.csr_array((data, rows.indices, rows.indptr), rows.shape)
