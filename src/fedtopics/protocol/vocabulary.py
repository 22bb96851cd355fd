"""The agreement on words under secure aggregation, as pure functions.

Members add up a table of counts by bucket, a hash of the word. Each member then lists its own words
whose buckets may hold an agreed word, but only those of which it has a fair share: so no member can
make the others list all their words by filling all buckets. The listed words are counted exactly.
The relay sees no total, so it cannot try the words of a dictionary.

A word has a bucket in each of a few rows, and its smallest count is used: two words that share a
bucket in one row rarely share one in every row.

References
----------
Cormode and Muthukrishnan, An Improved Data Stream Summary: The Count-Min Sketch and its
Applications, Journal of Algorithms, 2005.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.contract.payload import CountsByWord
from fedtopics.contract.replies import MOST_COUNT, Announced, Bounds, Template
from fedtopics.errors import FederationError
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import is_word

COLUMNS = "frequency", "occurrences", "clients", "first"  # of `CountsByWord`
ROWS = 4
FEWEST_BUCKETS = 1 << 12  # of all rows
MOST_BUCKETS = 1 << 18  # of all rows
BUCKETS_EACH = 64  # buckets for a document
SPARE = 16  # buckets that pass in addition to one per agreed word
TABLE = "vocabulary: table"
LISTED = "vocabulary: words"
COUNTS = "vocabulary: counts"
DATA_SENT = {
    TABLE: "The counts of the client's words by bucket, a hash of the word; members see only the "
    "total.",
    LISTED: "The client's words that may be among the agreed ones; all members see them.",
    COUNTS: "The client's counts of the words that members listed; members see only the total.",
}
Counts = NDArray[np.int64]
Table = Mapping[str, Counts]


def template_of(size: int) -> Template:
    """Return the template of a table of counts, by bucket or by word."""
    column = Bounds((size,), MOST_COUNT, 0, dtype="int64")
    return {"documents": Announced({}), **dict.fromkeys(COLUMNS, column)}


def buckets_for(documents: int) -> int:
    """Return the number of buckets for the words of so many documents."""
    return min(max(1 << (BUCKETS_EACH * documents).bit_length(), FEWEST_BUCKETS), MOST_BUCKETS)


def buckets_of(words: Sequence[str], study: bytes, size: int) -> NDArray[np.int64]:
    """Return the bucket of each word in each row, shape (ROWS, n_words)."""
    digests = b"".join(hashlib.sha256(study + word.encode()).digest() for word in words)
    numbers = np.frombuffer(digests, "<u8").reshape(-1, ROWS).T % np.uint64(size // ROWS)
    return numbers.astype(np.int64) + size // ROWS * np.arange(ROWS)[:, None]


def table_of(own: CountsByWord, study: bytes, size: int) -> dict[str, NDArray[np.int64]]:
    """Return a member's counts by bucket, the sum of the words in it."""
    table = np.zeros((size, len(COLUMNS)), np.int64)
    for places in buckets_of(own.names, study, size):
        np.add.at(table, places, own.values)
    return dict(zip(COLUMNS, table.T, strict=True))


def passing(table: Table, documents: int, limits: VocabularyLimits) -> NDArray[np.bool_]:
    """Return which buckets may belong to agreed words: up to three times as many as needed."""
    columns = np.stack([table[name] for name in COLUMNS])
    width = columns.shape[1] // ROWS
    rows = (columns[:, start : start + width] for start in range(0, ROWS * width, width))
    return np.concatenate([_passing(row, documents, limits) for row in rows])


def _passing(row: Counts, documents: int, limits: VocabularyLimits) -> NDArray[np.bool_]:
    frequency, occurrences, clients, first = row
    key = occurrences + np.where(first > 0, MOST_COUNT, 0)
    enough = np.flatnonzero(clients >= max(limits.min_clients_per_word, 1))
    order = enough[np.argsort(-key[enough], kind="stable")]
    fit = frequency[order] <= limits.max_document_share * documents
    frequent = order[fit]
    often = order[~fit]
    # Two words, each of one client, can look like one word of two clients.
    further = limits.max_words if limits.min_clients_per_word > 1 else limits.max_words // 4
    room = limits.max_words + further + SPARE
    least = key[frequent[room - 1]] if len(frequent) >= room else 0
    passes = np.zeros(len(key), np.bool_)
    for part in (frequent, often):
        passes[part[key[part] >= least][: 2 * room]] = True
    return passes


def words_to_list(
    own: CountsByWord, study: bytes, table: Table, allowed: NDArray[np.bool_], members: int
) -> list[str]:
    """Return a member's words whose buckets pass and of which it has at least the mean count."""
    places = buckets_of(own.names, study, len(allowed))
    # Some member has m / n or more of a word's total m: a member with less leaves the word to it.
    share = own.values[:, 1] * members >= table["occurrences"][places].min(0)
    chosen = allowed[places].all(0) & (share | (own.values[:, 3] > 0))
    return [own.names[row] for row in np.flatnonzero(chosen).tolist()]


def joined(lists: Sequence[Sequence[str]], study: bytes, allowed: NDArray[np.bool_]) -> list[str]:
    """Return all listed words in the order of their bytes; FederationError for an invalid list."""
    for words in lists:
        if len(words) > 4 * allowed.sum() + SPARE or not all(map(is_word, words)):
            raise FederationError("a list of words is not valid")
        if not allowed[buckets_of(words, study, len(allowed))].all():
            raise FederationError("a list of words is not valid")
    return sorted({word for words in lists for word in words})


def counts_over(own: CountsByWord, words: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    place = {word: row for row, word in enumerate(own.names)}
    counts = np.zeros((len(words), len(COLUMNS)), np.int64)
    for row, word in enumerate(words):
        if word in place:
            counts[row] = own.values[place[word]]
    return dict(zip(COLUMNS, counts.T, strict=True))


def named(total: Mapping[str, Any], words: Sequence[str]) -> CountsByWord:
    """Return the total counts of the listed words, without those that nobody has."""
    counts = np.column_stack([total[name] for name in COLUMNS])
    rows = np.flatnonzero(counts[:, 0])
    return CountsByWord([words[row] for row in rows.tolist()], counts[rows])
