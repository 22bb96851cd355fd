"""From local word counts to one agreed vocabulary (gFedNTM, stage 1).

Each client counts its words and drops the rare ones before anything leaves; the server merges,
applies the study's limits and fixes an order that does not depend on who came first.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator
from scipy import sparse
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

from fedtopics.errors import DataError, StudyError
from fedtopics.files import digest
from fedtopics.text.corpus import Corpus, Document


class TextRules(BaseModel):
    """How a text becomes words; a corpus that is tokenised already is taken as it is.

    English stop words are scikit-learn's, those of other languages of the package stop-words (its
    English list would drop words such as "groups" and "order").
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    lowercase: bool = Field(True, description="make texts lower case")
    token_pattern: str = Field(
        r"(?u)\b[^\W\d_][\w'-]*\w\b", description="regular expression of one word"
    )
    stop_words: str = Field(
        "english", description='language whose stop words are left out, or "none"'
    )
    own_stop_words: tuple[str, ...] = Field((), description="further words to leave out")
    ngrams: tuple[int, int] = Field((1, 1), description="shortest and longest n-gram")

    @field_validator("stop_words")
    @classmethod
    def _known_language(cls, value: str) -> str:
        if value not in ("none", *AVAILABLE_LANGUAGES):
            languages = ", ".join(sorted(AVAILABLE_LANGUAGES))
            raise ValueError(
                f'there are no stop words for {value!r}; known: {languages}, or "none"'
            )
        return value

    @field_validator("ngrams")
    @classmethod
    def _growing(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1]:
            raise ValueError("ngrams must be two numbers, 1 <= shortest <= longest")
        return value

    @cached_property
    def left_out(self) -> frozenset[str]:
        """All stop words."""
        further = frozenset(self.own_stop_words)
        if self.stop_words == "none":
            return further
        if self.stop_words == "english":
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return further.union(ENGLISH_STOP_WORDS)
        return further.union(get_stop_words(self.stop_words))

    def analyser(self) -> Callable[[str], list[str]]:
        """Return the function that turns a text into its words (scikit-learn's analyser)."""
        try:
            # Here, since a server splits no text and scikit-learn takes it 100 MB and a second.
            from sklearn.feature_extraction.text import CountVectorizer

            analyser: Callable[[str], list[str]] = CountVectorizer(
                lowercase=self.lowercase,
                token_pattern=self.token_pattern,
                stop_words=sorted(self.left_out) or None,
                ngram_range=self.ngrams,
            ).build_analyzer()
        except Exception:
            raise StudyError(f"token_pattern {self.token_pattern!r} is no valid pattern.") from None
        return analyser


class VocabularyLimits(BaseModel):
    """Which words the agreed vocabulary keeps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_document_frequency: int = Field(
        5, ge=1, description="a client names a word only if this many of its documents have it"
    )
    max_words: int = Field(5000, ge=2, description="keep the most frequent words only")
    min_clients: int = Field(1, ge=1, description="keep words named by this many clients")
    max_document_share: float = Field(
        0.5, gt=0, le=1, description="leave out words in more than this share of all documents"
    )


@dataclass(frozen=True)
class Vocabulary:
    """The words all clients agreed on, most frequent first, and how often they occur."""

    words: tuple[str, ...]
    document_frequency: NDArray[np.int64]  # (n_words,), the sum over clients that named the word
    occurrences: NDArray[np.int64]  # (n_words,), likewise

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def index(self) -> dict[str, int]:
        """Column of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def fingerprint(self) -> str:
        """Short digest of the words and their order; models and calls carry it."""
        return fingerprint(self.words)

    @property
    def frequency(self) -> NDArray[np.float64]:
        """Share of each word in all occurrences, shape (n_words,)."""
        return np.asarray(self.occurrences / self.occurrences.sum())

    def plain(self) -> dict[str, Any]:
        """Return it as lists."""
        return {
            "words": list(self.words),
            "document_frequency": self.document_frequency.tolist(),
            "occurrences": self.occurrences.tolist(),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Vocabulary:
        """Make it of what `plain` returned."""
        frequency, occurrences = (
            np.array(plain[field], np.int64) for field in ("document_frequency", "occurrences")
        )
        words = tuple(plain["words"])
        if not len(words) == len(frequency) == len(occurrences):
            raise ValueError("each word has a document frequency and occurrences")
        return cls(words, frequency, occurrences)


def fingerprint(words: Sequence[str]) -> str:
    """Digest words and their order; two vocabularies with the same digest are the same."""
    # A token of a table may have any character: newlines inside words are not those between them.
    lines = (word.replace("\\", r"\\").replace("\n", r"\n") for word in words)
    return digest("\n".join(lines))


@dataclass(frozen=True)
class WordCounts:
    """All words of one client's documents. Stays at the client."""

    words: list[str]
    counts: sparse.csr_array  # int32, of shape (n_documents, n_words)

    def named(self, min_document_frequency: int) -> dict[str, Any]:
        """Return the words that enough documents have, alphabetically; refuse if there is none.

        Leaves the client
            The words, in how many documents each occurs, how often, and the number of documents.
        """
        n_words = len(self.words)
        frequency = np.bincount(self.counts.indices, minlength=n_words)
        occurrences = np.bincount(self.counts.indices, self.counts.data, minlength=n_words)
        order = sorted(
            np.flatnonzero(frequency >= min_document_frequency), key=self.words.__getitem__
        )
        if not order:
            raise DataError(
                f"No word occurs in {min_document_frequency} or more of the "
                f"{self.counts.shape[0]} documents; give more documents, or lower "
                "min_document_frequency if such words may leave."
            )
        return {
            "words": [self.words[i] for i in order],
            "document_frequency": frequency[order].astype(np.int64),
            "occurrences": occurrences[order].astype(np.int64),
            "documents": self.counts.shape[0],
        }

    def columns(self, vocabulary: Mapping[str, int]) -> sparse.csr_array:
        """Return the counts of the agreed words, shape (n_documents, n_words agreed)."""
        target = np.array([vocabulary.get(word, -1) for word in self.words], np.int32)
        columns = target[self.counts.indices]
        keep = columns >= 0
        ends = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[self.counts.indptr]
        result = sparse.csr_array(
            (self.counts.data[keep], columns[keep], ends),
            shape=(self.counts.shape[0], len(vocabulary)),
        )
        result.sort_indices()
        return result


def count_words(
    corpus: Corpus, rules: TextRules, vocabulary: Mapping[str, int] | None = None
) -> WordCounts:
    """Count every word of every document in one pass, or those that have a column alone."""
    numbers: Mapping[str, int]
    batches = tokens(corpus, rules)
    if vocabulary is None:
        numbers = defaultdict()
        numbers.default_factory = numbers.__len__
    else:
        numbers = vocabulary
        batches = ([[w for w in doc if w in vocabulary] for doc in batch] for batch in batches)
    parts = [_count_batch(rows, numbers.__getitem__) for rows in batches] or [_count_batch([], int)]
    words = list(numbers)
    for part in parts:
        part.resize((part.shape[0], len(words)))
    return WordCounts(words, sparse.vstack(parts, format="csr"))


def tokens(corpus: Corpus, rules: TextRules) -> Iterator[Sequence[list[str]]]:
    """Yield the words of the documents, in order, a few thousand documents at a time."""
    if corpus.is_tokenised:
        return cast("Iterator[list[list[str]]]", corpus.batches())
    analyse = rules.analyser()
    return ([analyse(doc) for doc in batch] for batch in corpus.batches())  # type: ignore[arg-type]


def _count_batch(batch: Sequence[Document], number: Callable[[str], int]) -> sparse.csr_array:
    flat = array("i")
    ends = np.zeros(len(batch) + 1, np.int64)
    for row, document in enumerate(batch):
        flat.extend(map(number, document))
        ends[row + 1] = len(flat)
    indices = np.frombuffer(flat, np.int32) if flat else np.zeros(0, np.int32)
    width = int(indices.max()) + 1 if flat else 1
    counts = sparse.csr_array((np.ones(len(indices), np.int32), indices, ends), (len(batch), width))
    counts.sum_duplicates()
    return counts


def agree(replies: Mapping[str, Mapping[str, Any]], limits: VocabularyLimits) -> Vocabulary:
    """Merge what the clients named into one vocabulary.

    Union of the words of each client's `WordCounts.named`, summed frequencies, then the limits,
    which must leave two words. The order is by occurrences, then alphabetical, so that the order of
    arrival cannot matter. As section 3.2, stage 1, of Calvo-Bartolomé and Arenas-García, Federated
    Neural Topic Models.
    """
    documents, occurrences, clients = Counter[str](), Counter[str](), Counter[str]()
    for reply in replies.values():
        counts = (reply[key].tolist() for key in ("document_frequency", "occurrences"))
        for word, df, n in zip(reply["words"], *counts, strict=True):
            documents[word] += df
            occurrences[word] += n
            clients[word] += 1
    most = limits.max_document_share * sum(reply["documents"] for reply in replies.values())
    kept = [w for w in documents if clients[w] >= limits.min_clients and documents[w] <= most]
    kept.sort(key=lambda word: (-occurrences[word], word))
    del kept[limits.max_words :]
    if len(kept) < 2:
        raise StudyError(
            f"The clients named {len(documents)} words and the limits of the study leave "
            f"{len(kept)}; lower min_clients or raise max_document_share."
        )
    return Vocabulary(
        tuple(kept),
        np.array([documents[w] for w in kept], np.int64),
        np.array([occurrences[w] for w in kept], np.int64),
    )
