"""From local word counts to one agreed vocabulary (gFedNTM, stage 1)."""

from __future__ import annotations

import tempfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import BaseModel, Field
from scipy import sparse

from fedtopics.errors import DataError, StudyError
from fedtopics.files import digest
from fedtopics.text.corpus import Corpus, Document, split
from fedtopics.text.rounding import rounded
from fedtopics.text.rules import TextRules
from fedtopics.text.words import LISTS, LONGEST_WORD, has_name, is_word, normal_form

LARGE_ARRAY = 64 << 20  # bytes from which an array is kept in a file
PART = 1 << 15  # words whose order is read at once
MOST_PROPOSED = 10_000  # words of a client, if the agreed ones may not be more
MOST_WORDS = 1 << 20  # words of a client
MOST_MARKED = 1 << 18  # words that all clients together propose; see `protocol.vocabulary`


class VocabularyLimits(BaseModel, extra="forbid", frozen=True):
    """Limits of the agreed vocabulary."""

    min_persons_per_word: int = Field(
        5, ge=1, description="a client proposes a word only if this many of its persons have it"
    )
    max_words: int = Field(5000, ge=2, description="keep only the most frequent words")
    min_clients_per_word: int = Field(
        2,
        ge=1,
        description="keep words that this many clients have, or all clients if there are fewer; "
        "with 1, all members read the counts of a word that one client has as they are",
    )
    max_document_share: float = Field(
        0.5, gt=0, le=1, description="leave out words in more than this share of all documents"
    )

    def most_proposed(self, n_clients: int) -> int:
        """Return how many of its words a client proposes at most, its most frequent ones."""
        return min(max(MOST_PROPOSED, self.max_words), MOST_MARKED // n_clients)

    def clients_per_word(self, n_clients: int) -> int:
        """Return how many of so many clients must have a word."""
        return min(self.min_clients_per_word, n_clients)


@dataclass(frozen=True)
class Vocabulary:
    """The words all clients agreed on, most frequent first, and their frequencies."""

    words: tuple[str, ...]
    # Of shape (n_words,), summed over clients that named the word; see `rounded`.
    document_frequency: NDArray[np.int64]
    occurrences: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def alphabetical(self) -> list[str]:
        return sorted(self.words)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the words and their order."""
        return fingerprint(self.words)

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Share of each word in all occurrences, (n_words,); zero occurrences count as one."""
        some = np.maximum(self.occurrences.astype(np.float64), 1)
        return np.asarray(some / some.sum())

    def rounded(self) -> Vocabulary:
        """Return the same words with counts rounded by lot; see `text.rounding`."""
        documents, occurrences = rounded(np.stack([self.document_frequency, self.occurrences]))
        # The order stays that of the exact counts.
        return Vocabulary(self.words, documents, np.maximum(documents, occurrences))

    def plain(self) -> dict[str, Any]:
        return {
            "words": list(self.words),
            "document_frequency": self.document_frequency.tolist(),
            "occurrences": self.occurrences.tolist(),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Vocabulary:
        """Return the vocabulary that `plain` described."""
        words = tuple(plain["words"])
        counts = {
            name: np.array(plain[name], np.int64) for name in ("document_frequency", "occurrences")
        }
        fit = all(n.shape == (len(words),) and (n >= 0).all() for n in counts.values())
        if not fit or len(set(words)) < len(words):
            raise ValueError("each word needs a document frequency and a number of occurrences")
        if odd := sum(not is_word(word) for word in words):
            raise StudyError(
                f"{odd} of {len(words)} words are invalid: words have at most {LONGEST_WORD} "
                "characters, all printable, with accented letters as one character (NFC)."
            )
        return cls(words, **counts)


def fingerprint(words: Sequence[str]) -> str:
    """Digest words and their order."""
    # Tokens of a table may contain newlines, which must differ from those between words.
    return digest("\n".join(word.replace("\\", r"\\").replace("\n", r"\n") for word in words))


@dataclass(frozen=True)
class WordCounts:
    """All words of one client's documents. Stays at the client."""

    words: list[str]
    counts: sparse.csr_array  # int32, of shape (n_documents, n_words)
    # The columns of all words in the order of the texts, -1 where it is no word; where documents
    # end. Empty if only a vocabulary was counted.
    order: NDArray[np.int32]
    ends: NDArray[np.int64]

    def named(
        self, min_persons_per_word: int, owners: NDArray[np.int64] | None = None
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Return words of so many persons, sorted: their documents, occurrences and persons."""
        n_words = len(self.words)
        frequency = persons_by_word(self.counts)
        occurrences = np.bincount(self.counts.indices, self.counts.data, minlength=n_words)
        persons = persons_by_word(self.counts, owners)
        order = sorted(np.flatnonzero(persons >= min_persons_per_word), key=self.words.__getitem__)
        if not order:
            raise DataError(
                f"No word is in the documents of {min_persons_per_word} or more persons; check "
                "that the right column is read, give more documents, or lower "
                "min_persons_per_word if such words may be shared."
            )
        counted = np.stack([frequency[order], occurrences[order], persons[order]], axis=1)
        return [self.words[i] for i in order], counted.astype(np.int64)

    def targets(self, vocabulary: Mapping[str, int]) -> NDArray[np.int32]:
        """Return each word's number in a vocabulary, or -1; for -1, the last entry is -1, too."""
        return np.array([*(vocabulary.get(word, -1) for word in self.words), -1], np.int32)

    def in_order(
        self, words: Sequence[str], rows: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Yield documents as numbers of these words, -1 for others, and their lengths, in parts."""
        target = self.targets({word: number for number, word in enumerate(words)})
        rows = np.arange(len(self.ends) - 1) if rows is None else rows
        starts = self.ends[rows]
        lengths = np.diff(self.ends)[rows]
        parts = np.flatnonzero(np.diff(np.cumsum(lengths) // PART)) + 1
        for start, n in zip(np.split(starts, parts), np.split(lengths, parts), strict=True):
            places = np.arange(n.sum()) + np.repeat(start - np.cumsum(n) + n, n)
            yield target[self.order[places]], n

    def columns(self, vocabulary: Mapping[str, int]) -> sparse.csr_array:
        """Return the counts of the agreed words, (n_documents, n_words agreed)."""
        columns = self.targets(vocabulary)[self.counts.indices]
        keep = columns >= 0
        ends = np.zeros(len(keep) + 1, self.counts.indptr.dtype)
        np.cumsum(keep, out=ends[1:])
        counts = sparse.csr_array(
            (self.counts.data[keep], columns[keep], ends[self.counts.indptr]),
            shape=(self.counts.shape[0], len(vocabulary)),
        )
        counts.sort_indices()
        return counts


def persons_by_word(
    counts: sparse.csr_array, owners: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """Return how many persons have documents with each word; without owners, how many documents."""
    if owners is None:
        return np.bincount(counts.indices, minlength=counts.shape[1])
    from fedtopics.text.persons import count_persons  # a server need not compile it

    persons = np.zeros(counts.shape[1], np.int64)
    count_persons(counts.indptr, counts.indices, np.argsort(owners, kind="stable"), owners, persons)
    return persons


def count_words(
    corpus: Corpus,
    rules: TextRules,
    vocabulary: Mapping[str, int] | None = None,
    names: Collection[str] = (),
) -> WordCounts:
    """Count all valid words of all documents in one pass, or only those of a vocabulary.

    Without a vocabulary, words that contain one of the `names` are left out; see `has_name`.
    """
    numbers: Mapping[str, int]
    batches = tokens(corpus, rules)
    if vocabulary is None:
        numbers = defaultdict()
        numbers.default_factory = numbers.__len__
    else:
        numbers = vocabulary
        batches = ([[w for w in doc if w in vocabulary] for doc in batch] for batch in batches)
    data, columns, order = (GrowingArray(np.int32) for _ in range(3))
    ends = [np.zeros(1, np.int64)]
    lasts = [np.zeros(1, np.int64)]
    for rows in batches:
        flat, last = _numbered(rows, numbers.__getitem__)
        part = _counted(flat, last)
        data.append(part.data)
        columns.append(part.indices)
        ends.append(ends[-1][-1] + part.indptr[1:])
        if vocabulary is None:
            order.append(flat)
            lasts.append(lasts[-1][-1] + last[1:])
    words = list(numbers)
    pointers = _short(np.concatenate(ends))
    word_counts = WordCounts(
        words=words,
        counts=sparse.csr_array(
            (data.array(), columns.array(), pointers), (len(pointers) - 1, len(words))
        ),
        order=order.array(),
        ends=np.concatenate(lasts),
    )
    if vocabulary is not None:
        return word_counts
    # Another Python version may spell characters differently that this one's Unicode lacks.
    valid_words = [
        word
        for word in words
        if is_word(word) and word.isprintable() and not (names and has_name(word, names))
    ]
    if len(valid_words) == len(words):
        return word_counts
    index = {word: number for number, word in enumerate(valid_words)}
    return WordCounts(
        words=valid_words,
        counts=word_counts.columns(index),
        order=word_counts.targets(index)[word_counts.order],
        ends=word_counts.ends,
    )


def tokens(corpus: Corpus, rules: TextRules) -> Iterator[Sequence[list[str]]]:
    """Yield the words of the documents, in order, a few thousand documents at a time."""
    if corpus.is_tokenised:
        return (
            list(map(_normal, batch))
            for batch in cast("Iterator[list[list[str]]]", corpus.batches())
        )
    if rules.token_pattern == LISTS:
        raise DataError(
            "The model was trained on lists of words, but these documents are texts; split them "
            "into words in the same way, and give the lists."
        )
    return split(cast("Iterator[Sequence[str]]", corpus.batches()), rules.analyser())


def _normal(document: list[str]) -> list[str]:
    # Most documents are ASCII; one check of the whole saves half of the time.
    whole = "".join(document)
    return document if normal_form(whole) is whole else list(map(normal_form, document))


def _short(ends: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return row pointers as int32 if possible: with int64, scipy would convert columns too."""
    return ends.astype(np.int32) if ends[-1] <= np.iinfo(np.int32).max else ends


def _numbered(
    batch: Sequence[Document], number: Callable[[str], int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the numbers of all words of some documents, and where each document ends."""
    flat = array("i")
    ends = np.zeros(len(batch) + 1, np.int32)  # with int64, scipy would convert the indices too
    for row, document in enumerate(batch):
        flat.extend(map(number, document))
        ends[row + 1] = len(flat)
    return np.frombuffer(flat, np.int32) if flat else np.zeros(0, np.int32), ends


def _counted(columns: NDArray[np.int32], ends: NDArray[np.int32]) -> sparse.csr_array:
    shape = len(ends) - 1, int(columns.max(initial=0)) + 1
    # Copied, because the next line sorts it.
    counts = sparse.csr_array((np.ones(len(columns), np.int32), columns, ends), shape, copy=True)
    counts.sum_duplicates()
    return counts


def agree(
    words: Sequence[str],
    counted: NDArray[np.int64],
    documents: int,
    limits: VocabularyLimits,
    n_clients: int,
) -> Vocabulary:
    """Choose the vocabulary from the words that clients named, given in alphabetical order.

    See section 3.2, stage 1, of Calvo-Bartolomé and Arenas-García, Federated Neural Topic Models.
    """
    # Sums over clients: both numbers of `WordCounts.named`; 1 if named; 1 if among the first.
    frequency, occurrences, clients, first = counted.T
    least = limits.clients_per_word(n_clients)
    fits = (clients >= least) & (frequency <= limits.max_document_share * documents)
    fit = sorted(np.flatnonzero(fits).tolist(), key=lambda row: -occurrences[row])
    chosen = set(sorted(fit, key=lambda row: bool(first[row] == 0))[: limits.max_words])
    rows = [row for row in fit if row in chosen]
    if len(rows) < 2:
        of_clients = f"of at least {least} clients and " if least > 1 else ""
        fewer = (
            ", or, if clients have different subjects or languages, let two clients join for each, "
            "or, if all owners agree, set min_clients_per_word = 1 (all members then read each "
            "client's counts of the words that it alone has)"
        )
        raise StudyError(
            f"The clients named {len(words)} words, of which the study's limits keep "
            f"{len(rows)}: those {of_clients}in at most {limits.max_document_share:.0%} of the "
            f"documents; raise max_document_share{fewer if least > 1 else ''}."
        )
    return Vocabulary(
        words=tuple(words[row] for row in rows),
        document_frequency=frequency[rows],
        occurrences=occurrences[rows],
    )


class GrowingArray:
    """Numbers appended part by part; large ones are in a private file that vanishes with them."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._parts: list[NDArray[Any]] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def append(self, values: NDArray[Any]) -> None:
        self._parts.append(np.asarray(values, self._dtype))
        self._bytes += self._parts[-1].nbytes
        if self._bytes > LARGE_ARRAY:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 as long as arrays
            for part in self._parts:
                part.tofile(self._file)
            self._parts.clear()

    def array(self) -> NDArray[Any]:
        if self._file is None:
            return np.concatenate([np.zeros(0, self._dtype), *self._parts])
        self._file.flush()
        return np.memmap(self._file, self._dtype)


def set_aside(matrix: sparse.csr_array) -> sparse.csr_array:
    """Return the same matrix; if it is large, its content is in files."""
    parts = []
    for values in (matrix.data, matrix.indices):
        growing = GrowingArray(values.dtype)
        growing.append(values)
        parts.append(growing.array())
    return sparse.csr_array((*parts, matrix.indptr), matrix.shape)
