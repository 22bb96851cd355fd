"""Reconstruct documents from the sums of many rounds, without knowing any minibatch.

Each document takes part in a round or does not: a signal of zeros and ones. LDA's replies are
mixtures of these signals, so the signals lie in the space that the replies span. Alternating
between the space and the nearest signals of as many ones as a document has rounds finds them, if
there are many more rounds than documents. A signal that lies in the space explains the sums
exactly: who attacks knows what he has found.

References
----------
Coron and Gini, Provably Solving the Hidden Subset Sum Problem via Statistical Learning,
Mathematical Cryptology 1(2), 2021: the same problem, of one sum a round.
Qu, Sun and Wright, Finding a Sparse Vector in a Subspace: Linear Sparsity Using Alternating
Directions, NIPS 2014: the iteration.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.solving import CERTAIN, Bag, minibatch_counts, study_of
from benchmarks.attacks.tapped import bag_of, documents_of, federate, vocabulary_of

STARTS = 1500
STEPS = 80
TURNS = 8
EXACT = 1e-6  # of a signal may lie outside the space, for rounding
CASES = [  # documents, minibatch, rounds
    (52, 10, 26),  # this and the next three: half as many rounds as documents, as policies allow
    (100, 10, 50),
    (200, 20, 100),
    (500, 52, 250),
    (50, 10, 60),
    (50, 10, 200),
    (50, 10, 600),
    (100, 10, 200),
    (100, 10, 600),
    (200, 20, 600),
    (200, 20, 2000),
    (500, 52, 600),
    (500, 52, 4000),
]


def signals(counts: Bag, share: float, seed: int = 0) -> NDArray[np.float64]:
    """Find in which rounds single documents took part, shape (n_rounds, n_found)."""
    left, size, _ = np.linalg.svd(counts - counts.mean(0), full_matrices=False)
    rank = int((size > 1e-8 * size[0]).sum())
    if rank >= len(counts) - 1:
        return np.zeros((len(counts), 0))  # as many unknowns as rounds: everything would fit
    space = left[:, :rank]
    rng = np.random.default_rng(seed)
    distinct: dict[bytes, NDArray[np.float64]] = {}
    for _ in range(TURNS):
        before = len(distinct)
        for signal in _settled(_starts(space, share, rng), space, share).T:
            distinct.setdefault(signal.tobytes(), signal)
        if len(distinct) == before:
            break
    return np.array(list(distinct.values())).reshape(-1, len(counts)).T


def _starts(space: NDArray[np.float64], share: float, rng: np.random.Generator) -> Bag:
    """Begin with a round and two others that have something in common with it."""
    signal = np.zeros((len(space), STARTS))
    many = int(1.5 * share * len(space)) + 2
    for column in signal.T:
        first = rng.integers(len(space))
        near = space @ space[first]
        near[first] = -np.inf
        others = np.argpartition(-near, many)[:many]
        column[[first, *rng.choice(others, 2, replace=False)]] = 1
    return signal


def _settled(signal: Bag, space: Bag, share: float) -> Bag:
    """Alternate; return the signals that lie in the space."""
    ones = max(1, round(share * len(space)))
    for step in range(STEPS):
        projected = space @ (space.T @ signal)
        least = 0.5 - share  # of signals that are there nearly, whatever their number of ones
        if step < STEPS // 2:
            least = -np.partition(-projected, ones - 1, axis=0)[ones - 1]
        signal = (projected >= least).astype(float)
    deviation = signal - signal.mean(0)
    rest = np.linalg.norm(deviation - space @ (space.T @ deviation), axis=0)
    length = np.linalg.norm(deviation, axis=0)
    return signal[:, (length > 0) & (rest < EXACT * length)]


def documents(counts: Bag, member: NDArray[np.float64]) -> Bag:
    """Find the documents of these signals: how much more there is of words where they take part."""
    design = np.column_stack([member, np.ones(len(member))])
    estimates = np.linalg.lstsq(design, counts, rcond=1e-9)[0][:-1]
    # Minibatches are of one size: a count more for all fits as well.
    return np.asarray(estimates - estimates.min(0))


def attack(counts: Bag, actual: Bag, share: float) -> tuple[int, int]:
    member = signals(counts, share)
    if not member.shape[1]:
        return 0, 0
    estimates = documents(counts, member)
    rounded = np.round(estimates) + 0.0
    sure = (np.abs(estimates - rounded) < CERTAIN).all(1)
    right = {row.tobytes() for row in rounded[sure]} & {row.tobytes() for row in actual}
    return member.shape[1], len(right)


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Reconstruct documents from the sums of many rounds, without knowing any minibatch."""
    for size, batch, rounds in CASES[4:5] if quick else CASES:
        corpora = documents_of(data, 2, size)
        _, taps = federate(study_of(rounds, batch, len(corpora)), corpora)
        name = next(iter(corpora))
        start = time.perf_counter()
        actual = bag_of(corpora[name], vocabulary_of(taps[name].calls))
        n_signals, right = attack(minibatch_counts(taps[name]), actual, batch / size)
        yield (
            f"{size} documents, minibatches of {batch}, {rounds} rounds: {n_signals} signals, "
            f"{right} documents exactly, {time.perf_counter() - start:.0f} s"
        )
