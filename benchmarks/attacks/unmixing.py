"""Separate sums whose parts have few words each, and decide whether a document is in a sum.

A table of sums has a row a word: over the documents that have it, how much of it is in each times
what the sum makes of this document. As long as a row has as many numbers as there are documents,
the columns span what the documents span, and the documents are the vectors in this space that are
nowhere negative and have the most zeros. Who attacks sees the zeros, and knows what he has found.

References
----------
Donoho and Stodden, When Does Non-Negative Matrix Factorization Give a Correct Decomposition into
Parts?, NIPS 2003: documents are extreme rays of the cone of what is nowhere negative.
Homer and others, Resolving Individuals Contributing Trace Amounts of DNA to Highly Complex Mixtures
Using High-Density SNP Genotyping Microarrays, PLoS Genetics 2008: membership by what is in a sum.
"""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import poisson, rankdata

Numbers = NDArray[np.float64]
NOTHING = 1e-4  # of a vector's largest number: less than that is a zero
PATIENCE = 30.0  # seconds for a corner
WHOLE = 0.05  # nearer to whole numbers than this, they are
SURE = 0.95  # how often a word of a document in the sum is counted: not if it is rare at its client
ROWS = 10  # times the dimensions, of which a corner is looked for
FITS = 30  # of what is to be expected
STEPS = 150  # until the diagonal is found


def space_of(rows: Numbers, exact: float, most: int) -> Numbers:
    """Return an orthonormal basis of what the columns span, up to so many directions."""
    scale = np.linalg.norm(rows, axis=0)
    left, size, _ = np.linalg.svd(rows / np.where(scale > 0, scale, 1), full_matrices=False)
    return left[:, : min(most, int((size > exact * size[0]).sum()))]


def parts(
    space: Numbers, n: int, seconds: float, read: Callable[[Numbers], Numbers], seed: int = 0
) -> list[Numbers]:
    """Find the vectors of a space that are nowhere negative and mostly zero, at most n, and read.

    They are the furthest corners of what is not negative and sums to 1, in directions that no part
    points to that is found. What `read` returns of a part are counts, if they are whole numbers.
    """
    rng = np.random.default_rng(seed)
    rank = space.shape[1]
    read_parts: dict[bytes, Numbers] = {}
    basis = np.zeros((rank, 0))
    end = time.process_time() + seconds
    while len(read_parts) < n and time.process_time() < end:
        drawn = rng.standard_normal((rank, 1))[:, 0]
        direction = drawn - basis @ (basis.T @ drawn)
        part = _corner(space, direction, rng)
        if part is None:
            continue
        counts = read(part)
        if np.abs(counts - np.round(counts)).max() < WHOLE:
            read_parts.setdefault(np.round(counts).tobytes(), np.round(counts))
            rest = space.T @ part
            rest -= basis @ (basis.T @ rest)
            length = np.linalg.norm(rest)
            if length > NOTHING * np.linalg.norm(part):
                basis = np.column_stack([basis, rest / length])
    return list(read_parts.values())


def _corner(space: Numbers, direction: Numbers, rng: np.random.Generator) -> Numbers | None:
    """Look for a corner by some of the rows, then by all among what has zeros where it has."""
    some = space[rng.permutation(len(space))[: ROWS * space.shape[1]]]
    while space.shape[1] > 1:
        answer = linprog(
            direction,
            A_ub=-some,
            b_ub=np.zeros(len(some)),
            A_eq=some.sum(0)[None],
            b_eq=[1],
            bounds=(None, None),
            options={"time_limit": PATIENCE},
        )
        if answer.status:
            return None
        corner = space @ answer.x
        zeros = np.abs(corner) < NOTHING * np.abs(corner).max()
        _, size, right = np.linalg.svd(space[zeros], full_matrices=False)
        remaining = right[int((size > NOTHING).sum()) :]
        if not 0 < len(remaining) < len(right):
            return None
        space = some = space @ remaining.T
        direction = remaining @ direction
    part: Numbers = space[:, 0] * np.sign(space[:, 0].sum())
    part = np.where(np.abs(part) < NOTHING * part.max(), 0, part)
    return None if part.min() < 0 else part


def without_diagonal(rows: Numbers, directions: Numbers, n: int) -> Numbers:
    """Add to each row as much of its direction as makes them all span n dimensions only.

    Sums of what is beside words leave a word out beside itself, by a number that is not known.
    """
    diagonal = np.zeros(len(rows))
    scale = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    for _ in range(STEPS):
        _, _, right = np.linalg.svd(
            (rows + diagonal[:, None] * directions) / scale, full_matrices=False
        )
        outside = right[n:].T
        projected = directions @ outside
        length = np.maximum(np.square(projected).sum(1), 1e-300)
        before = diagonal
        diagonal = -(projected * (rows @ outside)).sum(1) / length
        if np.abs(diagonal - before).max() <= 1e-14 * np.abs(diagonal).max():
            break
    return np.asarray(rows + diagonal[:, None] * directions)


def occurrences(gradient: Numbers, topics: Numbers) -> Numbers:
    """Return about how often each word occurs, by the gradient of its bias (n_words,).

    That is how often it was to be expected, less how often it occurs; and what is to be expected of
    a word is nearly a polynomial of its numbers in the topics (n_topics, n_words). Words that do
    not occur lie on it, all others below.
    """
    first, second = np.triu_indices(len(topics))
    features = np.vstack([np.ones_like(gradient), topics, topics[first] * topics[second]]).T
    on_curve = np.ones(len(gradient), bool)
    for _ in range(FITS):
        fitted = np.linalg.lstsq(features[on_curve], gradient[on_curve], rcond=None)[0]
        counted = features @ fitted - gradient
        on_curve = counted < max(0.3, float(np.quantile(counted, 0.3)))
    return np.asarray(counted)


def inside(space: Numbers, candidates: Numbers) -> Numbers:
    """Return which share of each candidate, a row, lies in a space."""
    length = np.maximum(np.linalg.norm(candidates, axis=1), 1e-300)
    return np.asarray(np.linalg.norm(candidates @ space, axis=1) / length)


def leverage(products: Numbers, candidates: Numbers) -> Numbers:
    """Return how usual each candidate, a row, is by the sum of outer products: 0, or below it."""
    size, axes = np.linalg.eigh(products)
    weight = 1 / np.maximum(size, 1e-7 * size[-1])
    return np.asarray(-(np.square(candidates @ axes) * weight).sum(1))


def likelihood(counts: Numbers, exact: bool, mean_counts: Numbers, candidates: Numbers) -> Numbers:
    """Return how much likelier counts are if a candidate, a row of counts, is in the sum (nats).

    `mean_counts` are the counts to be expected. If they are not exact, only zeros are known.
    """
    scores = np.zeros(len(candidates))
    for score, row in zip(np.arange(len(candidates)), candidates, strict=True):
        words = np.flatnonzero(row)
        seen = counts[words]
        expected = np.maximum(mean_counts[words], 1e-3)
        if exact:
            others = poisson.pmf(seen - row[words], expected)
            ratio = others / np.maximum(poisson.pmf(seen, expected), 1e-300)
        else:
            ratio = np.where(seen > 0, 1 / -np.expm1(-expected), 0)
        scores[score] = np.log(SURE * ratio + 1 - SURE).sum()
    return scores


def area(members: Numbers, others: Numbers) -> float:
    """Return the area under the ROC curve: how often a member has the larger score."""
    ranks = rankdata(np.concatenate([members, others]))[: len(members)]
    least = len(members) * (len(members) + 1) / 2
    return float((ranks.sum() - least) / (len(members) * len(others)))
