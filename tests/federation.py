"""Small corpora and federations for the tests."""

from __future__ import annotations

import numpy as np

from fedtopics.corpus import Corpus
from fedtopics.study import Study

COMMON = [f"common{i}" for i in range(20)]


def subjects(sizes: dict[str, int], seed: int = 0) -> dict[str, Corpus]:
    """One subject a client: 40 words of its own, 20 that all share."""
    rng = np.random.default_rng(seed)
    corpora = {}
    for name, size in sizes.items():
        words = np.array([f"{name}{i}" for i in range(40)] + COMMON)
        weights = rng.dirichlet(np.full(len(words), 0.3))
        documents = [
            rng.choice(words, rng.integers(5, 30), p=weights).tolist() for _ in range(size)
        ]
        corpora[name] = Corpus.of(documents)
    return corpora


def study(**method: object) -> Study:
    """A small study on those corpora."""
    method = {"n_components": 6, "hidden": [16, 12], "max_rounds": 50, **method}
    return Study.make(method=method, vocabulary={"min_document_frequency": 1}, checkpoint_every=10)
