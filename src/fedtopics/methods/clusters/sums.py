"""Sums from which clusterings are trained; how clients split the documents does not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedtopics.inference.vectors import TINY, Discriminant, Numbers, Points, blocks, unit_rows
from fedtopics.methods.core.groups import ROUNDING, PersonShares
from fedtopics.model.formulas import one_hot

DIGITS = 6  # significant digits with which clusterings are compared


@dataclass(frozen=True)
class Moments:
    """The number of vectors, their mean (n_dimensions,) and covariance matrix."""

    count: int
    mean: Numbers
    scatter: Numbers

    @classmethod
    def of(cls, count: int, total: Numbers, products: Numbers) -> Moments:
        """Return moments from the vectors' sum and the sum of their outer products."""
        mean = total / count
        return cls(count, mean, products / count - np.outer(mean, mean))

    def draw(self, n: int, rng: np.random.Generator) -> Numbers:
        """Draw vectors, (n, n_dimensions), from the normal distribution with these moments."""
        values, vectors = np.linalg.eigh(self.scatter)
        spread = vectors * np.sqrt(np.maximum(values, 0))
        return np.asarray(self.mean + rng.standard_normal((n, len(self.mean))) @ spread.T)


def sums_by_label(points: Points, labels: NDArray[np.int64], n: int) -> tuple[Numbers, Numbers]:
    """Sum the points of each label, (n, n_dimensions), and count them, (n,)."""
    total = np.zeros((n, points.shape[1]))
    for rows, block in blocks(points):
        total += one_hot(labels[rows], n).T @ block
    return total, np.bincount(labels, minlength=n).astype(np.float64)


def ranked(values: Numbers) -> NDArray[np.int64]:
    """Return the order of values, smallest first; values equal up to rounding keep their order."""
    # Equal clusterings differ in last digits, depending on where the documents are.
    largest = max(np.abs(values).max(initial=0), TINY)
    return np.asarray(np.argsort(np.round(values / largest, DIGITS), kind="stable"))


def flows(
    before: NDArray[np.int64], now: NDArray[np.int64], n: int, owners: NDArray[np.int64] | None
) -> Numbers:
    """Count persons by the earlier and present cluster of their documents, (n, n).

    A person with documents in several moves counts in each with an equal part, so no sum of moves
    counts her more than once.
    """
    moves = before * n + now
    shares = np.ones(len(moves))
    if owners is not None:
        whose, moves = np.divmod(np.unique(owners * n * n + moves), n * n)
        stays = moves // n == moves % n
        shares = np.where(stays, 1.0, 1 / np.maximum(np.bincount(whose, ~stays), 1)[whose])
    return np.asarray(np.bincount(moves, shares, minlength=n * n).reshape(n, n), np.float64)


def may_move(counts: Numbers, least: int) -> NDArray[np.bool_]:
    """Return which `flows` may happen: at least `least` persons must join or leave a cluster."""
    # Undoing moves reduces the moves of other clusters, so the check repeats.
    moves = counts * ~np.eye(len(counts), dtype=bool)
    allowed = np.ones(counts.shape, bool)
    while True:
        few = moves.sum(0) + moves.sum(1) < least * (1 - ROUNDING)
        back = (moves > 0) & (few[:, None] | few)
        if not back.any():
            return allowed
        allowed &= ~back
        moves[back] = 0


def discriminate(
    sums: Numbers, weights: Numbers, moments: Moments, shrinkage: float
) -> tuple[Numbers, Numbers, float]:
    """Find Fisher's projection: clusters have the largest distances relative to their widths.

    `sums` (n_clusters, n_dimensions) and `weights` (n_clusters,) are of points and memberships,
    `moments` of all points. `shrinkage` times their mean variance is added to variances within
    clusters. Returns the projection (n_dimensions, n_directions), the leading solutions of
    S_B a = l S_W a with variance 1 within clusters; the clusters' mean directions in it; and the
    trace of S_W^-1 S_B.
    """
    n_clusters, n_dimensions = sums.shape
    means = sums / np.maximum(weights, TINY)[:, None]
    # S_B = H H' has a rank below the number of clusters, so a matrix of that size suffices.
    shares = weights / max(weights.sum(), TINY)  # sums may cover only some of the points
    between = ((means - moments.mean) * np.sqrt(shares)[:, None]).T
    within = moments.scatter - between @ between.T
    ball = shrinkage * np.trace(moments.scatter) / n_dimensions
    within[np.diag_indices(n_dimensions)] += ball + TINY
    solved = _solve(within, between, ball + TINY)
    values, vectors = np.linalg.eigh(between.T @ solved)
    leading = np.argsort(-values)[: min(n_clusters - 1, n_dimensions)]
    scale = np.where(values[leading] > TINY, 1 / np.sqrt(np.maximum(values[leading], TINY)), 0)
    projection = solved @ (vectors[:, leading] * scale)
    return projection, unit_rows(means @ projection), float(values[leading].sum())


def _solve(within: Numbers, between: Numbers, least: float) -> Numbers:
    """Return S_W^-1 H; variances below `least` (due to clients that joined later) are raised."""
    try:
        solved: Numbers = cho_solve(cho_factor(within), between)
    except LinAlgError:
        values, vectors = np.linalg.eigh(within)
        solved = vectors @ (vectors.T @ between / np.maximum(values, least)[:, None])
    return solved


def sums_by_class(
    points: Points,
    temperature: float,
    owners: NDArray[np.int64] | None = None,
    *,
    projection: Numbers,
    directions: Numbers,
    bias: Numbers,
) -> tuple[Numbers, Numbers, dict[str, Numbers]]:
    """Sum points by their memberships in several `Discriminant`s, and sum the memberships.

    Returns also the powers of the `PersonShares` of the points' `owners`.
    """
    sums = np.zeros((*bias.shape, points.shape[1]))
    weights = np.zeros(bias.shape)
    powers = {"squares": np.zeros(bias.shape), "fourths": np.zeros(bias.shape)}
    for i, (axes, centres, offsets) in enumerate(zip(projection, directions, bias, strict=True)):
        of_persons = PersonShares(owners, bias.shape[1])
        clusters = Discriminant(axes, centres, offsets, temperature)
        for rows, share in clusters.memberships(points):
            sums[i] += share.T @ points[rows].astype(np.float64)
            weights[i] += share.sum(0)
            of_persons.add(rows, share)
        for name, power in of_persons.powers().items():
            powers[name][i] = power
    return sums, weights, powers


def agreeing_pairs(
    points: Points, temperature: float, first: dict[str, Numbers], second: dict[str, Numbers]
) -> dict[str, float]:
    """Count the pairs of points that share a cluster, for two `Discriminant`s."""
    both = [Discriminant(**clusters, temperature=temperature) for clusters in (first, second)]
    labels = [
        np.concatenate(
            [
                np.zeros(0, np.int64),
                *(shares.argmax(1) for _, shares in clusters.memberships(points)),
            ]
        )
        for clusters in both
    ]
    table = np.zeros((labels[0].max(initial=0) + 1, labels[1].max(initial=0) + 1))
    np.add.at(table, tuple(labels), 1)
    sizes = {"together": table, "first": table.sum(1), "second": table.sum(0)}
    pairs = {name: float((counts * (counts - 1) / 2).sum()) for name, counts in sizes.items()}
    n = points.shape[0]
    return pairs | {"chance": pairs["first"] * pairs["second"] / max(n * (n - 1) / 2, 1.0)}
