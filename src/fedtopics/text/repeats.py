"""Passages that many of a client's documents have: signatures, what a site puts on every page.

An n-gram of agreed words counts in the first of a client's documents that have it, and all words of
its later copies are left out; n-grams that overlap make longer passages. What follows from it for
topics is measured in docs/quality.md. All of this stays at the client.

References
----------
Carter and Wegman, Universal Classes of Hash Functions: the digest of an n-gram is the XOR of one
random number for each place and word, so two different n-grams have the same one with a probability
of 2**-64.
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
from fedtopics.text.vocabulary import TextRules, count_in_rows, tokens

LENGTH = 8  # words of an n-gram
MOST = 2  # documents in which an n-gram counts; none at all makes topics worse
PART_BITS = 4  # digests are sorted by so many of their bits apart, to take less memory

Words = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """Words that stand together in several documents."""

    words: tuple[str, ...]
    documents: int  # with exactly these words
    left_out: int  # words of its later copies
    row: int  # the first document with it


@dataclass(frozen=True, repr=False)  # its own repr would print words
class Repeats:
    """The agreed words of documents in their order, and which of them are copies."""

    words: Words  # by column, document after document
    ends: Numbers  # where each document ends, behind a 0: (n_documents + 1,)
    spread: NDArray[np.int32]  # documents with a word's most frequent n-gram; 0: no more than MOST
    copied: NDArray[np.bool_]  # whether a word is part of a copy beyond them

    def bag(self, n_words: int) -> sparse.csr_array:
        """Count the words that are not copied, shape (n_documents, n_words)."""
        kept = ~self.copied
        return count_in_rows(self.words[kept], _sums(kept)[self.ends], n_words)

    @property
    def emptied(self) -> int:
        """Number of documents that have nothing but copies."""
        length, copied = np.diff(self.ends), np.diff(_sums(self.copied)[self.ends])
        return int(((length > 0) & (copied == length)).sum())

    def passages(self, vocabulary: Sequence[str]) -> list[Passage]:
        """Return the passages in more than MOST documents, from the most documents to the fewest.

        A passage is a run of words that are each in equally many documents with their n-grams, no
        shorter than an n-gram: of a signature below different greetings, the signature.
        """
        edge = np.ones(len(self.words) + 1, bool)
        edge[1:-1] = self.spread[1:] != self.spread[:-1]
        edge[self.ends] = True
        edges = np.flatnonzero(edge)
        long = (np.diff(edges) >= LENGTH) & (self.spread[edges[:-1]] > 0)
        starts, stops = edges[:-1][long], edges[1:][long]
        copied = _sums(self.copied)
        rows: dict[bytes, list[int]] = defaultdict(list)
        left_out: dict[bytes, int] = defaultdict(int)
        for start, stop, row in zip(starts, stops, _row_of(starts, self.ends), strict=True):
            words = self.words[start:stop].tobytes()
            rows[words].append(int(row))
            left_out[words] += int(copied[stop] - copied[start])
        passages = [
            Passage(
                tuple(vocabulary[column] for column in np.frombuffer(words, np.int32)),
                len({*found}), left_out[words], found[0],
            )
            for words, found in rows.items()
        ]  # fmt: skip
        several = [passage for passage in passages if passage.documents > MOST]
        return sorted(several, key=lambda p: (-p.documents, -p.left_out, p.row, p.words))


def find_repeats(
    corpus: Corpus,
    rules: TextRules,
    vocabulary: Mapping[str, int],
    least: int,
    rng: np.random.Generator,
) -> Repeats:
    """Find the copies among the words of a vocabulary that at least so many documents have.

    Rarer words are not seen: which n-grams are the same must not tell who has them. The generator
    draws the key of the digests; whatever it draws, copies are the same.
    """
    words, ends = _in_order(corpus, rules, vocabulary)
    counts = count_in_rows(words, ends, len(vocabulary))
    usual = (np.bincount(counts.indices, minlength=len(vocabulary)) >= least)[words]
    words, ends = words[usual], _sums(usual)[ends]
    spread, copied = np.zeros(len(words), np.int32), np.zeros(len(words), bool)
    for starts, earlier, documents in _repeated(_digests(words, len(vocabulary), rng), ends):
        for place in range(LENGTH):
            here = starts + place
            spread[here] = np.maximum(spread[here], documents)
            copied[here[earlier >= MOST]] = True
    return Repeats(words, ends, spread, copied)


def _in_order(
    corpus: Corpus, rules: TextRules, vocabulary: Mapping[str, int]
) -> tuple[Words, Numbers]:
    """Return the columns of all words that have one, and where documents end."""
    flat, ends = array("i"), array("q", [0])
    for batch in tokens(corpus, rules):
        for document in batch:
            flat.extend([vocabulary[word] for word in document if word in vocabulary])
            ends.append(len(flat))
    return np.array(flat, np.int32), np.array(ends, np.int64)


def _digests(words: Words, n_words: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Return the digest of the n-gram that begins at each word, across documents as well."""
    digests = np.zeros(max(len(words) - LENGTH + 1, 0), np.uint64)
    for place in range(LENGTH):
        numbers = rng.integers(0, 2**64, n_words, np.uint64)
        digests ^= numbers[words[place : place + len(digests)]]
    return digests


def _repeated(
    digests: NDArray[np.uint64], ends: Numbers
) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
    """Yield where n-grams of more than MOST documents begin, all those of an n-gram together.

    With each, how many earlier documents have the same, and how many documents there are with it.
    """
    for part in range(2**PART_BITS):
        starts = np.flatnonzero(digests >> np.uint64(64 - PART_BITS) == part)
        starts = starts[starts + LENGTH <= ends[_row_of(starts, ends) + 1]]
        starts = starts[np.argsort(digests[starts], kind="stable")]  # documents stay in order
        first = _changes(digests[starts])
        number = np.cumsum(first | _changes(_row_of(starts, ends)))  # of a document
        before, ngram = number[first], np.cumsum(first) - 1
        documents = np.diff(before, append=number[-1:] + 1)[ngram]
        many = documents > MOST
        yield starts[many], (number - before[ngram])[many], documents[many]


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where a value is not that before it."""
    changes = np.ones(len(values), bool)
    changes[1:] = values[1:] != values[:-1]
    return changes


def _row_of(places: Numbers, ends: Numbers) -> Numbers:
    """Return the documents that words are of, by the words' places."""
    return np.searchsorted(ends, places, "right") - 1


def _sums(chosen: NDArray[np.bool_]) -> Numbers:
    """Return how many are chosen before each place, and at the end how many in all."""
    return np.concatenate([[0], np.cumsum(chosen)])
