"""Record the sums of a study for attacks, with the documents to compare their results with."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.attacks.tapped import Tap, counted, federate, synthetic, vocabulary_of
from benchmarks.common import parquet
from fedtopics.contract.payload import SparseRows
from fedtopics.federation.policy import Policy
from fedtopics.federation.study import Study
from fedtopics.text.corpus import Corpus
from fedtopics.text.embeddings import EmbeddingSettings, document_embeddings

Numbers = NDArray[np.float64]
MASKED = 2.0**40  # sums are of multiples of one of so many
SEED = 7
OUTSIDE = 500  # documents that nobody has
DIMENSION = 384  # of embeddings
CANDIDATES = 500  # documents of which it is asked whether they are in a sum, at most


@dataclass(frozen=True)
class Summed:
    """What some clients added up in a study, and documents that are in no sum."""

    taps: Mapping[str, Tap]  # of these clients
    reference: Corpus  # what who attacks knows of such documents in general
    others: Corpus

    def sums(self, *functions: str) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
        for calls in zip(*(tap.calls for tap in self.taps.values()), strict=True):
            _, given, reply = calls[0]
            if given[0] in functions and reply is not None:
                yield given[1], added([call[2] for call in calls])

    @cached_property
    def words(self) -> list[str]:
        return vocabulary_of(next(iter(self.taps.values())).calls)

    def bags(self, round_: int | None = None) -> Numbers:
        """Return the counts of words that are summed: of all documents, or those of a round."""
        drawn = self._drawn(round_)
        rows = [half.bag[rows].toarray() for half, rows in drawn]
        return np.concatenate(rows).astype(float)

    def embedded(self, round_: int | None = None) -> Numbers:
        drawn = self._drawn(round_)
        return np.concatenate([half.corpus.embeddings[rows] for half, rows in drawn]).astype(float)

    def members(self, round_: int | None = None) -> Numbers:
        """Return some of the documents as who asks after them has them: with all agreed words."""
        texts = [
            text for half, rows in self._drawn(round_) for text in tokens(half.corpus.take(rows))
        ]
        return counted(texts[:: -(-len(texts) // CANDIDATES)], self.words)

    def outside(self) -> Numbers:
        return counted(tokens(self.others), self.words)

    def usual(self, n: int) -> Numbers:
        return np.asarray(n * counted(tokens(self.reference), self.words).mean(0))

    def _drawn(self, round_: int | None) -> list[tuple[Any, NDArray[np.int64]]]:
        """Return the clients, and which documents are in the sum."""
        halves = [tap.half for tap in self.taps.values()]
        if round_ is None:
            return [(half, np.arange(half.bag.shape[0])) for half in halves]
        return [(half, half.minibatches.draw(round_, half.attempt)) for half in halves]


def tokens(corpus: Corpus) -> list[list[str]]:
    return [list(words) for batch in corpus.batches() for words in batch]


def added(replies: Sequence[Any]) -> Any:
    """Add up replies as masks do; lists of words are left as they are."""
    first = replies[0]
    if isinstance(first, Mapping):
        return {name: added([reply[name] for reply in replies]) for name in first}
    if isinstance(first, SparseRows):
        total = np.sum([rounded(reply.dense()) for reply in replies], axis=0)
        present = np.unique(np.concatenate([reply.index for reply in replies]))
        return SparseRows(present, total[present], first.n_rows)
    if isinstance(first, (int, float, np.ndarray)):
        return np.sum([rounded(np.asarray(reply)) for reply in replies], axis=0)
    return first


def rounded(values: NDArray[Any]) -> Numbers:
    return np.asarray(np.round(values.astype(float) * MASKED) / MASKED)


@cache
def texts(data: Path | None) -> tuple[list[list[str]], Any]:
    """Return tokenised documents in an order that is drawn, and their embeddings."""
    rng = np.random.default_rng(SEED)
    if data is None:
        words = synthetic(400, seed=SEED)
        middles = rng.normal(size=(8, DIMENSION))[rng.integers(8, size=len(words))]
        return words, (middles + rng.normal(size=middles.shape)).astype(np.float32)
    table = pq.read_table(parquet(data, "20ng"), columns=["text", "tokens"])
    table = table.take(pa.array(rng.permutation(len(table))))
    embeddings = document_embeddings(Corpus.of(table["text"]), EmbeddingSettings())
    return table["tokens"].to_pylist(), embeddings


def play(
    method: Mapping[str, Any],
    clients: int,
    n_clients: int,
    size: int,
    data: Path | None,
    policy: Policy | None = None,
) -> Summed:
    """Play a study of clients with so many documents; return what some of them add up to."""
    words, vectors = texts(data)
    outside = min(OUTSIDE, len(words) // 8)
    size = min(size, (len(words) - 2 * outside) // n_clients)

    def part(first: int, n: int) -> Corpus:
        return Corpus.of(words[first : first + n]).with_embeddings(vectors[first : first + n])

    corpora = {f"client{i:02}": part(2 * outside + i * size, size) for i in range(n_clients)}
    study = Study.make(method={"coherence": "nothing", **method}, seed=SEED)
    _, taps = federate(study, corpora, key=lambda name: name.encode().ljust(32), policy=policy)
    taps = dict(itertools.islice(taps.items(), clients))
    return Summed(taps, part(0, outside), part(outside, outside))
