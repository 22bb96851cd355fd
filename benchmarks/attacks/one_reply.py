"""Reconstruct documents of a minibatch from one update, by words that only one of them has.

The row of a word is a sum over the documents that have it, each a direction of the document's own
times how often the word is in it. Rows of words of one document alone are parallel. Between known
directions, the rows of all other words can be divided up.

No secret helps against this. It ends where the adder sees no single reply: with masks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from benchmarks.attacks import tapped
from benchmarks.attacks.solving import study_of
from fedtopics.federation.study import Study
from fedtopics.inference.lda import topic_weights
from fedtopics.text.corpus import Corpus

Rows = NDArray[np.float64]
ROUNDS = 5  # over which the figures are means
LARGEST = 16.0  # logarithm of a count, of that of the least
BETWEEN = 1e-3  # nearer to what two directions add up to, it is no third one


@dataclass
class Told:
    """Of a minibatch's documents: those some words of which are told, those told wholly."""

    documents: float = 0
    some: float = 0
    wholly: float = 0

    def __str__(self) -> str:
        some = f"words of {self.some:.3g} of {self.documents:.3g} documents"
        return f"{some}, {self.wholly:.3g} wholly"


def directions(rows: Rows, least: int, near: float) -> tuple[Rows, list[NDArray[np.int64]]]:
    """Find the directions that at least so many rows share, and whose rows they are."""
    length = np.linalg.norm(rows, axis=1)
    unit = rows / np.maximum(length, 1e-300)[:, None]
    groups = []
    free = length > 0
    for i in range(len(unit)):
        if free[i]:
            alike = free & (1 - np.abs(unit @ unit[i]) < near)
            free &= ~alike
            if alike.sum() >= least:
                groups.append(np.flatnonzero(alike))
    means = np.array([unit[group].mean(0) for group in groups]).reshape(-1, rows.shape[1])
    chosen = np.ones(len(groups), bool)
    by_size = sorted(range(len(groups)), key=lambda i: len(groups[i]))
    for i in by_size if 1.5 * len(groups) <= rows.shape[1] else ():
        chosen[i] = False  # where two documents have the same words, these are between the two
        chosen[i] = nnls(means[chosen].T, means[i])[1] > BETWEEN if chosen.any() else True
    return means[chosen], [group for group, keep in zip(groups, chosen, strict=True) if keep]


def judge(groups: list[NDArray[np.int64]], shares: Rows, actual: Rows) -> Told:
    """Count the documents that a group of words belongs to alone, and those found wholly."""
    some: set[int] = set()
    wholly: set[int] = set()
    for number, group in enumerate(groups):
        owners = np.flatnonzero((actual[:, group] > 0).all(1))
        if len(owners) == 1 and (np.delete(actual, owners[0], 0)[:, group] == 0).all():
            some.add(int(owners[0]))
            if (actual[owners[0]] == shares[:, number]).all():
                wholly.add(int(owners[0]))
    return Told(len(actual), len(some), len(wholly))


def of_lda(payload: Mapping[str, Any], reply: Mapping[str, Any], actual: Rows) -> Told:
    """Take LDA's expected counts apart: rows of topics, divided by the weights of all."""
    rows = tapped.rows_of(reply)
    weights = topic_weights(payload["pseudo_counts"], rows.index)
    shared, groups = directions(rows.values / weights, 3, 1e-11)
    shares = divided(rows.values / weights, shared) * (weights @ shared.T)
    return judge(groups, np.round(shares), actual[:, rows.index])


def of_gradients(reply: Mapping[str, Any], actual: Rows) -> Told:
    """Take the gradient of gFedNTM's first layer apart: rows of log(1 + count)."""
    rows = tapped.rows_of(reply)
    shared, groups = directions(rows.values.astype(float), 3, 1e-9)
    shares = divided(rows.values.astype(float), shared)
    counts = [whole(shares[:, i], shares[group, i].min()) for i, group in enumerate(groups)]
    return judge(groups, np.array(counts).T, actual[:, rows.index])


def whole(shares: Rows, least: float) -> Rows:
    """Find the counts c that shares are log(1 + c) of, but for a factor: all are whole numbers."""
    if least <= 0:
        return np.zeros_like(shares)
    logs = np.minimum(shares / least, LARGEST)
    tried = [np.expm1(logs * np.log(1 + first)) for first in (1, 2, 3)]
    best = min(tried, key=lambda counts: float(np.abs(counts - np.round(counts)).mean()))
    return np.asarray(np.round(best))


def divided(rows: Rows, shared: Rows) -> Rows:
    """Divide rows up between directions, (n_rows, n_directions); each has a sign of its own."""
    if len(shared) == 0:
        return np.zeros((len(rows), 0))
    shares = np.array([nnls(shared.T, row)[0] for row in rows])
    shares[shares < 1e-4 * shares.max(1, keepdims=True)] = 0
    return shares


def attack(study: Study, corpora: Mapping[str, Corpus], taps: Mapping[str, tapped.Tap]) -> Told:
    """Take the first client's first replies apart, one by one; return the means."""
    name, corpus = next(iter(corpora.items()))
    tap = taps[name]
    lda = study.method.method_name == "lda"
    function = "expected_counts" if lda else "gradients"
    planned = study.with_clients(corpora)
    member = tapped.membership(planned, name, tap.calls, len(corpus), function, **tap.site)
    bag = tapped.bag_of(corpus, tapped.vocabulary_of(tap.calls), 5 if lda else 1)
    told = [
        astuple(of_lda(payload, reply, bag[who]) if lda else of_gradients(reply, bag[who]))
        for who, (payload, reply) in zip(member, tap.replies(function), strict=True)
    ]
    return Told(*np.mean(told, axis=0).tolist())


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    """What one reply tells: documents of a minibatch, by words that no other of them has."""
    corpora = tapped.documents_of(data, 2, 120 if quick else 500)
    studies: dict[str, dict[str, Any]] = {
        "LDA, 20 topics": {},
        "LDA, 50 topics": {"n_components": 50},
        "gFedNTM": {"name": "gfedntm", "norm": "local", "n_components": 20},
    }
    for batch, (title, method) in product((10, 52), studies.items()):
        study = study_of(ROUNDS, batch, len(corpora), **method)
        _, taps = tapped.federate(study, corpora)
        yield f"{title}, a reply over {batch} documents: {attack(study, corpora, taps)}"
