"""Attacks on what leaves in one training: which documents are in it, and what is in them.

- Agreement: the likelihood of what a document would add, as a sample of what is seen. By itself it
  says more of a document than of who was there: so it is held against other trainings. Of what is
  seen, nothing is known but the program.
- Differences: all other documents are known, and what they add is taken off; a third of the clients
  tell their parts of the noise. What is left is noise of a known size, with the document or
  without, and the ratio of the two likelihoods is the strongest test there is. Words of the
  document are read from the same rest: how much likelier each is to be in it, beside how many
  documents have it.

References
----------
Homer and others, Resolving Individuals Contributing Trace Amounts of DNA to Highly Complex Mixtures
Using High-Density SNP Genotyping Microarrays, PLoS Genetics 2008: agreement.
Neyman and Pearson, On the Problem of the Most Efficient Tests of Statistical Hypotheses, 1933.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedtopics.federation.transcript import Numbers, Seen

EXACT = 1e-6  # standard deviation of what has no noise, for rounding
LITTLE = 0.5  # documents more that have a word


@dataclass(frozen=True)
class Read:
    """What is read of documents, of which it is known how many of the agreed words each has.

    Attributes
    ----------
    recall : float
        Share of a document's words among as many that are the likeliest, on average.
    guessing : float
        The same, where nothing is known but how many documents have each word.
    wholly : int
        Documents all of whose agreed words are read.
    documents : int
        That it was tried on.
    """

    recall: float
    guessing: float
    wholly: int
    documents: int

    @classmethod
    def of(cls, parts: Sequence[Read]) -> Read:
        """Return what was read in several trainings."""
        documents = sum(each.documents for each in parts)
        weights = [each.documents / max(documents, 1) for each in parts]
        recall, guessing = (
            sum(weight * getattr(each, name) for weight, each in zip(weights, parts, strict=True))
            for name in ("recall", "guessing")
        )
        return cls(recall, guessing, sum(each.wholly for each in parts), documents)


class TranscriptAttack:
    """Attacks on one training, exchange by exchange.

    Parameters
    ----------
    owners : array of shape (n_documents,)
        The client that has each document, or would have it.
    members : array of shape (n_documents,)
        Which are there, to judge by.
    total : int
        Documents that are there, of all clients.
    """

    def __init__(self, owners: NDArray[np.str_], members: NDArray[np.bool_], total: int) -> None:
        self._members = members
        self._of = {name: np.flatnonzero(owners == name) for name in np.unique(owners)}
        self._total = total
        self.agreeing, self.known = np.zeros(len(owners)), np.zeros(len(owners))
        self._read = np.zeros((len(owners), 1))

    def look(self, seen: Seen) -> None:
        """Attack one exchange more."""
        by_word = _by_word(seen)
        added = sparse.csr_array(seen.each @ by_word)
        tells = added.nnz and added.data.min() > 0  # of mixtures, a word alone says nothing
        if tells:
            self._agree(seen, by_word, added)
        if seen.rest:
            self._subtract(seen)
            if tells:
                self._spell(seen, by_word, added)

    def _agree(self, seen: Seen, by_word: sparse.csr_array, added: sparse.csr_array) -> None:
        least = np.maximum(np.sqrt(by_word.T @ seen.sigma**2), LITTLE)
        for name, rows in self._of.items():
            there = np.maximum(by_word.T @ seen.seen[name], least)
            self.agreeing[rows] += added[rows] @ np.log(there)

    def _subtract(self, seen: Seen) -> None:
        weight = 1 / np.maximum(seen.sigma, EXACT) ** 2
        squares = seen.each.multiply(seen.each) @ weight
        for name, rows in self._of.items():
            self.known[rows] += seen.each[rows] @ (seen.rest[name] * weight)
        self.known += squares * (self._members - 0.5)

    def _spell(self, seen: Seen, by_word: sparse.csr_array, added: sparse.csr_array) -> None:
        """Add how much likelier each word is in a document, which would add the usual number."""
        usual, asked = added.data.mean(), by_word.sum(0) > 0
        variance = np.maximum(by_word.T @ seen.sigma**2, EXACT**2)
        found = added.toarray()
        for name, rows in self._of.items():
            found[rows] += by_word.T @ seen.rest[name]
        self._read = self._read + np.where(asked, (found - usual / 2) * usual / variance, 0)

    def read(self, counts: sparse.csr_array, frequency: NDArray[np.int64]) -> Read:
        """Judge what was read of the documents that are there.

        Parameters
        ----------
        counts : CSR array of shape (n_documents, n_words)
            Of the agreed words.
        frequency : array of shape (n_words,)
            How many of all documents that are there have each word.
        """
        recalls, guesses = [], []
        for row in np.flatnonzero(self._members & (np.diff(counts.indptr) > 0)):
            words, others = counts[[row]].indices, frequency.astype(np.float64)
            others[words] -= 1
            prior = np.log((others + LITTLE) / (self._total - others + LITTLE))
            recalls.append(_recall(prior + self._read[row], words))
            guesses.append(_recall(prior, words))
        return Read(_mean(recalls), _mean(guesses), recalls.count(1.0), len(recalls))


def _by_word(seen: Seen) -> sparse.csr_array:
    """Return what sums the numbers of each agreed word, (n, n_words)."""
    of = np.flatnonzero(seen.words >= 0)
    shape = len(seen.words), seen.n_words
    return sparse.csr_array((np.ones(len(of)), (of, seen.words[of])), shape)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _recall(scores: Numbers, words: NDArray[np.int64]) -> float:
    """Return the share of words among as many with the highest scores."""
    best = np.argpartition(-scores, len(words) - 1)[: len(words)]
    return float(np.isin(words, best).mean())
