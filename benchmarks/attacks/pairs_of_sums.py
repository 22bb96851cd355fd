"""Compare the sums of clusters: two that differ by one document tell its embedding.

The study is honest, and so is everybody in it. A client's documents move between the clusters of a
start in groups only; but different starts end with clusters that are nearly the same, and nobody
holds their sums against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.attacks.tapped import Tap, federate, synthetic
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus

DIMENSION, N = 64, 400
EXACT = 1e-3  # of a difference's length from 1, which is that of a document's point
Numbers = NDArray[np.float64]


def documents(n_clients: int, groups: int = 8, seed: int = 5) -> dict[str, Corpus]:
    """Return clients with embeddings in overlapping groups."""
    rng = np.random.default_rng(seed)
    middles = 0.6 * rng.normal(size=(groups, DIMENSION))
    corpora = {}
    for client in range(n_clients):
        vectors = rng.normal(size=(N, DIMENSION)) * 0.6 + middles[rng.integers(groups, size=N)]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        corpora[f"client{client}"] = Corpus.of(synthetic(N, seed=client)).with_embeddings(
            vectors.astype(np.float32)
        )
    return corpora


def isolated(sums: Numbers, counts: Numbers) -> Numbers:
    """Return the different points by which two sums differ, whose counts differ by one."""
    found: list[Numbers] = []
    for count in np.unique(counts):
        more, less = sums[counts == count + 1], sums[counts == count]
        if count and len(more) and len(less):
            squares = (more**2).sum(1)[:, None] + (less**2).sum(1) - 2 * more @ less.T
            for i, j in np.argwhere(np.abs(squares - 1) < EXACT):
                point = more[i] - less[j]
                if abs(np.linalg.norm(point) - 1) < EXACT:
                    found.append(point)
    return np.array(found).reshape(-1, sums.shape[1])


def replies(tap: Tap) -> tuple[Numbers, Numbers]:
    """Return all sums of clusters that left, and of how many documents they are."""
    sums: list[Numbers] = []
    counts: list[Numbers] = []
    for _, reply in tap.replies("cluster_sums"):
        sums.append(reply["sums"].reshape(-1, DIMENSION))
        counts.append(reply["counts"].ravel())
    return np.concatenate(sums), np.concatenate(counts)


def attack(method: Mapping[str, Any]) -> str:
    """Run a study; count whose embeddings are differences of two of the first client's sums."""
    corpora = documents(3)
    study = Study.make(method={"name": "kmeans", "embedding": {"dimension": DIMENSION}, **method})
    _, taps = federate(study, corpora)
    tap = next(iter(taps.values()))
    points = isolated(*replies(tap))
    origin = next(payload["origin"] for payload, _ in tap.replies("cluster_sums"))
    vectors = np.asarray(next(iter(corpora.values())).embeddings, float) - origin
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = np.abs(points @ vectors.T)
    right = {int(row.argmax()) for row in near if row.max() > 0.999}
    return f"{len(right)} of {N} embeddings"


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    cases = [{"n_components": 8}, {"n_components": 20}, {"n_components": 8, "starts": 200}]
    for case in cases[: 2 if quick else None]:
        yield f"k-means, {case}: {attack(case)}"
