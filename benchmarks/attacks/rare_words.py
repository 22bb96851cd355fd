"""Words of few of a client's documents that its replies name: others made them agreed words.

Agreed are the words that enough documents of any client have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.attacks import tapped
from benchmarks.attacks.solving import study_of
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus


def rare_words(tap: tapped.Tap, corpus: Corpus) -> set[int]:
    """Return the agreed words that some, but fewer than `RARE` of a client's documents have."""
    frequency = (tapped.bag_of(corpus, tapped.vocabulary_of(tap.calls), least=0) > 0).sum(0)
    return set(np.flatnonzero((frequency > 0) & (frequency < tapped.RARE)).tolist())


def attack(
    study: Study, corpora: Mapping[str, Corpus], taps: Mapping[str, tapped.Tap]
) -> tuple[int, int, int]:
    """Return how many rare words the first client has, how many left, how many of one document."""
    name, corpus = next(iter(corpora.items()))
    function = "expected_counts" if study.method.method_name == "lda" else "gradients"
    rare = rare_words(taps[name], corpus)
    named: set[int] = set()
    for _, reply in taps[name].replies(function):
        named |= set(tapped.rows_of(reply).index.tolist())
    frequency = (tapped.bag_of(corpus, tapped.vocabulary_of(taps[name].calls), least=0) > 0).sum(0)
    return len(rare), len(rare & named), sum(int(frequency[word] == 1) for word in rare & named)


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    size, rounds = (150, 20) if quick else (500, 100)
    corpora = tapped.documents_of(data, 5, size)
    network = {"name": "gfedntm", "norm": "local", "hidden": [20, 20]}
    for title, method in (("gFedNTM", network), ("LDA", {})):
        study = study_of(rounds, 52, len(corpora), **method)
        rare, left, single = attack(study, corpora, tapped.federate(study, corpora)[1])
        yield (
            f"{title}, {size} documents, {rounds} rounds: {left} of {rare} rare words left, "
            f"{single} of them in one document"
        )
