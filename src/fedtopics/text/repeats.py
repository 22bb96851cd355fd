"""Passages that many of a client's documents have: signatures, what a site puts on every page.

An n-gram of agreed words counts in the first of a client's documents that have it, and all words of
its later copies are left out; n-grams that overlap make longer passages. It stays at the client.

References
----------
Carter and Wegman, Universal Classes of Hash Functions: the digest of an n-gram is the XOR of one
random number for each place and word, so that two have the same one with a probability of 2**-64.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_in_rows, tokens

LENGTH = 8  # words of an n-gram
MOST = 2  # documents in which an n-gram counts: what is said again may be a subject
PART_BITS = 4  # digests are sorted by so many of their bits apart, to take less memory

Columns = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, repr=False)  # its own repr would print documents
class Repeats:
    """The agreed words of documents in their order, and which of them are copies."""

    words: Columns  # by column, document after document
    ends: Numbers  # where each document ends, behind a 0: (n_documents + 1,)
    spread: Columns  # documents with a word's most frequent n-gram; 0: no more than MOST
    copied: NDArray[np.bool_]  # whether a word is part of a copy beyond them

    def bag(self, n_words: int) -> sparse.csr_array:
        """Count the words that are not copied, shape (n_documents, n_words)."""
        kept = ~self.copied
        return count_in_rows(self.words[kept], _sums(kept)[self.ends], n_words)

    def passages(self, vocabulary: Sequence[str]) -> list[dict[str, Any]]:
        """Return the passages in more than MOST documents, from the most documents to the fewest.

        A passage is a run of words whose n-grams are in equally many documents, as long as one or
        longer: of a signature below different greetings, the signature. Each has its ``words``, the
        number of ``documents`` with just these, and how many words of them are ``copied``.
        """
        edge = np.ones(len(self.words) + 1, bool)
        edge[1:-1] = np.diff(self.spread) != 0
        edge[self.ends] = True
        edges = np.flatnonzero(edge)
        long = (np.diff(edges) >= LENGTH) & (self.spread[edges[:-1]] > 0)
        copied, found = _sums(self.copied), defaultdict(list)
        for start, stop in zip(edges[:-1][long], edges[1:][long], strict=True):
            found[self.words[start:stop].tobytes()].append((start, copied[stop] - copied[start]))
        passages: list[dict[str, Any]] = []
        for words, places in found.items():
            starts, lost = np.transpose(places)
            documents = len(np.unique(self.ends.searchsorted(starts, "right")))
            if documents > MOST:
                names = [vocabulary[column] for column in np.frombuffer(words, np.int32)]
                passages.append({"words": names, "documents": documents, "copied": int(lost.sum())})
        return sorted(passages, key=lambda p: (-p["documents"], -p["copied"], p["words"]))


def find_repeats(
    corpus: Corpus, rules: TextRules, vocabulary: Mapping[str, int], least: int,
    rng: np.random.Generator,
) -> Repeats:  # fmt: skip
    """Find the copies among the words of a vocabulary that at least so many documents have.

    Rarer words are not seen: which n-grams are the same must not tell who has them. The digests'
    key is drawn; whatever it is, copies are the same.
    """
    flat, bounds = array("i"), array("q", [0])
    for document in (document for batch in tokens(corpus, rules) for document in batch):
        flat.extend([vocabulary[word] for word in document if word in vocabulary])
        bounds.append(len(flat))
    words, ends, n = np.asarray(flat), np.asarray(bounds), len(vocabulary)
    usual = (np.bincount(count_in_rows(words, ends, n).indices, minlength=n) >= least)[words]
    words, ends = words[usual], _sums(usual)[ends]
    spread, copied = np.zeros(len(words), np.int32), np.zeros(len(words), bool)
    digests = np.zeros(max(len(words) - LENGTH + 1, 0), np.uint64)  # across documents as well
    for place in range(LENGTH):
        numbers = rng.integers(0, 2**64, n, np.uint64)
        digests ^= numbers[words[place : place + len(digests)]]
    for starts, earlier, documents in _repeated(digests, ends):
        for place in range(LENGTH):
            here = starts + place
            spread[here] = np.maximum(spread[here], documents)
            copied[here[earlier >= MOST]] = True
    return Repeats(words, ends, spread, copied)


def _repeated(digests: NDArray[np.uint64], ends: Numbers) -> Iterator[tuple[Numbers, ...]]:
    """Yield where n-grams of more than MOST documents begin, all those of an n-gram together.

    With each, how many earlier documents have the same, and how many documents there are with it.
    """
    parts = (digests >> np.uint64(64 - PART_BITS)).astype(np.uint8)
    for part in range(2**PART_BITS):
        starts = np.flatnonzero(parts == part)
        starts = starts[starts + LENGTH <= ends[ends.searchsorted(starts, "right")]]
        starts = starts[np.argsort(digests[starts], kind="stable")]  # documents stay in order
        first = np.diff(digests[starts], prepend=~digests[starts[:1]]) != 0
        number = np.cumsum(first | (np.diff(ends.searchsorted(starts, "right"), prepend=0) != 0))
        before, ngram = number[first], np.cumsum(first) - 1
        documents = np.diff(before, append=number[-1:] + 1)[ngram]
        many = documents > MOST
        yield starts[many], (number - before[ngram])[many], documents[many]


def _sums(chosen: NDArray[np.bool_]) -> Numbers:
    """Return how many are chosen before each place, and at the end how many in all."""
    return np.concatenate([[0], np.cumsum(chosen)])
