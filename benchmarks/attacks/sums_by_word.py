"""Read embeddings in sums by word, as discriminative clustering sends them.

Three attackers, of growing knowledge, on one client's reply and on totals of several clients:

- An attacker with only the sums looks for two that differ by a vector of length 1, a document's.
- An attacker who also knows each document's words looks for few words, added and subtracted, whose
  sum is of fewer than ten documents: all combinations of two and three words, and from each word on
  the best next one, as long as that leaves fewer documents (as in lattice reduction).
- The same attacker solves the sums as equations for all embeddings, by least squares.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.attacks.pairs_of_sums import isolated
from benchmarks.consensus import documents
from fedtopics import Corpus
from fedtopics.datasets import split_clients
from fedtopics.federation.policy import Policy
from fedtopics.federation.program import client_of
from fedtopics.federation.study import Study
from fedtopics.inference.clusters import centred
from fedtopics.methods.core.plan import ClientContext
from fedtopics.methods.discriminative import client as clients

Numbers = NDArray[np.float64]
Whole = NDArray[Any]
CLIENTS = 4
STEPS = 12
EXACT = 1 - 1e-6  # cosine of what is read and a document's point
SETS = "agnews", "stackoverflow", "biomedical", "m10", "s2_tiny"
GUARD = clients.distinct_words


def unguarded(bag: sparse.csr_array, least: int) -> NDArray[np.bool_]:
    return np.ones(bag.shape[1], bool)


@dataclass(frozen=True)
class Sums:
    """Sums by word, and what they are of: to attack with, and to judge by."""

    sums: Numbers  # (n_words, n_dimensions), of words whose sums are sent
    has: Whole  # (n_documents, n_words): which documents are in which sum
    points: Numbers  # (n_documents, n_dimensions)

    def nearest(self, points: Numbers) -> set[int]:
        """Return the documents whose points these are."""
        near = points @ self.points.T / np.maximum(np.linalg.norm(points, axis=1), 1e-12)[:, None]
        return {int(row.argmax()) for row in near if row.max() > EXACT}


def played(corpora: Sequence[Corpus], least: int = 10, guarded: bool = True) -> list[Sums]:
    """Return each client's sums, and last the total with secure aggregation."""
    method = {"name": "discriminative", "embedding": {"dimension": dimension_of(corpora[0])}}
    study = Study.make(method=method)
    rules = Policy(min_persons=least)
    sums = []
    sides: list[Any] = [client_of(study, ClientContext("a", corpus, rules)) for corpus in corpora]
    names = sorted({word for side in sides for word in frequent_words(side)})
    for side in sides:
        side.adopt(names, 1, 1.0)
    origin = np.concatenate([corpus.embeddings for corpus in corpora]).mean(0, dtype=np.float64)
    enough = np.full(len(names), float(least))  # persons with each word, at all clients
    counted = {"squares": enough, "fourths": enough}
    clients.distinct_words = GUARD if guarded else unguarded
    try:
        for groups in ({}, {"least": least, "clients": 1, "counted": counted}):
            for side, corpus in zip(sides, corpora, strict=True):
                side.guard.of_all = bool(groups)
                reply = side.function("embedding_sums_by_word")(origin, groups)
                has = (side.bag > 0).toarray() * (reply["sent"] > 0)
                points = centred(np.asarray(corpus.embeddings), origin).astype(float)
                sums.append(Sums(reply["sums"], has.astype(np.int64), points))
    finally:
        clients.distinct_words = GUARD
    single = sums[: len(sides)]
    for_total = sums[len(sides) :]
    has = np.concatenate([part.has for part in for_total])
    total = sum(part.sums for part in for_total)
    enough = has.sum(0) >= least  # of all clients
    points = np.concatenate([part.points for part in for_total])
    return [*map(sent, single), sent(Sums(total * enough[:, None], has * enough, points))]


def sent(of: Sums) -> Sums:
    present = of.has.any(0)
    return Sums(of.sums[present], of.has[:, present], of.points)


def dimension_of(corpus: Corpus) -> int:
    return int(np.asarray(corpus.embeddings).shape[1])


def frequent_words(side: Any) -> list[str]:
    counts = side.counts
    frequency = np.bincount(counts.counts.indices, minlength=len(counts.words))
    return [counts.words[i] for i in np.flatnonzero(frequency >= side.rarest)]


def read_in_pairs(of: Sums) -> set[int]:
    """Return the documents that are read in differences of two sums, by the sums alone."""
    counts = of.has.sum(0).astype(float)
    return of.nearest(isolated(of.sums, counts))


def few(has: Whole, least: int = 10) -> dict[int, int]:
    """Count combinations of words that leave few, 1 to `least` - 1, lengths squared."""
    both = (has.T @ has).astype(np.int32)
    alone = both.diagonal()
    n = len(both)
    apart = alone[:, None] + alone - 2 * both
    by_length = {
        2: int((np.triu(apart, 1)[np.triu_indices(n, 1)] < least).sum() - equal(apart)),
        3: 0,
    }
    for word in range(n):  # of it, less two others
        left = alone[word] + (alone - 2 * both[word])[:, None] + (alone - 2 * both[word]) + 2 * both
        left[word] = left[:, word] = least
        inside = np.triu(np.ones((n, n), bool), 1)
        by_length[3] += int(((left > 0) & (left < least) & inside).sum())
    return by_length | {STEPS: sum(reduced(both, word, least) for word in range(n))}


def equal(apart: Whole) -> int:
    """Count pairs of words that the same documents have: their difference is nothing."""
    return int((apart == 0).sum() - len(apart)) // 2


def reduced(both: Whole, word: int, least: int) -> bool:
    """Whether few documents are left of a word, less the best others one after the other."""
    left = both[word].copy()
    size = int(both[word, word])
    alone = both.diagonal()
    for _ in range(STEPS):
        change = alone - 2 * np.abs(left)
        change[word] = 0
        best = int(change.argmin())
        if change[best] >= 0:
            break
        left = left - np.sign(left[best]) * both[best]
        size = size + int(change[best])
    return 0 < size < least


def solved(of: Sums) -> tuple[set[int], float]:
    """Return documents whose points solve the sums, and the largest share of one in a solution."""
    has = of.has.astype(float)
    inverse = np.linalg.pinv(has.T @ has, hermitian=True)
    shares = np.einsum("ij,ij->i", has @ inverse, has)
    return of.nearest(has @ inverse @ of.sums), float(shares.max(initial=0))


def texts(data: Path | None, name: str) -> Corpus:
    """Return texts with embeddings; without data synthetic ones, of which words go in pairs."""
    if data is None:
        rng = np.random.default_rng(0)
        words = [[f"word{w}" for w in np.flatnonzero(rng.random(60) < 0.1)] for _ in range(1200)]
        words = [
            [*document, *(w + "s" for w in document if rng.random() < 0.97)] for document in words
        ]
        return Corpus.of(words).with_embeddings(rng.normal(size=(1200, 64)).astype(np.float32))
    return documents(data, name)


def lines(data: Path | None, quick: bool) -> Iterator[str]:
    """Read embeddings in the sums by word of discriminative clustering, with and without guard."""
    for name in ("synthetic",) if data is None else SETS[-2:] if quick else SETS:
        corpora = split_clients(texts(data, name), by="even", n_clients=CLIENTS, seed=1)
        for guarded in (False, True):
            first, *_, total = played(list(corpora.values()), guarded=guarded)
            for whose, of in (("one client", first), (f"total of {CLIENTS}", total)):
                n, words = of.has.shape
                exact, share = solved(of)
                counted = ", ".join(f"{number} of {k}" for k, number in few(of.has).items())
                yield (
                    f"{name}, {whose}, {'with' if guarded else 'without'} guard: {words} words of "
                    f"{n} documents; read in pairs {len(read_in_pairs(of))}; combinations of few "
                    f"documents: {counted} words; solved {len(exact)}, largest share {share:.2f}"
                )
