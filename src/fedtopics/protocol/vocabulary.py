"""The agreement on words under secure aggregation, as pure functions.

Each member announces how many of its words it marks, and members add up a table: in how many
clients a word of each bucket is, a hash of the word. Each member then lists its own words that the
table has often enough, and the listed words are counted exactly. So the table has no count of a
word: a member that tries the words of a dictionary learns only that somebody has one. A member that
marks all buckets, so that the others list words that only they have, marks more than it announced:
the sum does not fit, and the run stops. The relay sees no total.

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
from fedtopics.contract.published import Published
from fedtopics.contract.replies import Announced, Bounds, Template, counts
from fedtopics.errors import FederationError
from fedtopics.text.vocabulary import MOST_MARKED, VocabularyLimits
from fedtopics.text.words import is_word

COLUMNS = "frequency", "occurrences", "clients", "first"  # of `CountsByWord`
ROWS = 4
FEWEST_BUCKETS = 1 << 12  # of all rows
BUCKETS_EACH = 16  # buckets for a marked word
MOST_BUCKETS = 2 * BUCKETS_EACH * MOST_MARKED  # of all rows
TABLE = "vocabulary: table"
LISTED = "vocabulary: words"
COUNTS = "vocabulary: counts"
Counts = NDArray[np.int64]


def template_of_table(size: int, n_clients: int) -> Template:
    return {"documents": Announced({}), "clients": Bounds((size,), n_clients, 0, dtype="int64")}


def template_of_counts(n_words: int) -> Template:
    return {"documents": Announced({}), **dict.fromkeys(COLUMNS, counts(n_words))}


STEPS = (
    Published(
        name=TABLE,
        data_sent="For each bucket, a hash of a word: 1 if one of the client's words is in it.",
        short="words by hash",
        reply=lambda n_listed, n_clients: template_of_table(
            buckets_for(n_listed * n_clients), n_clients
        ),
    ),
    Published(
        name=LISTED,
        data_sent="The client's words that enough clients seem to have; all members see them.",
        short="words that may be agreed on",
        reply=lambda n_own: {"words": [n_own]},
        seen_by_all=True,
    ),
    Published(
        name=COUNTS,
        data_sent="The client's counts of the words that members listed.",
        short="counts of listed words",
        reply=lambda n_listed, n_clients: template_of_counts(n_listed * n_clients),
    ),
)


def buckets_for(marks: int) -> int:
    """Return the number of buckets for the words that all members mark."""
    return min(max(1 << (BUCKETS_EACH * marks).bit_length(), FEWEST_BUCKETS), MOST_BUCKETS)


def buckets_of(words: Sequence[str], study: bytes, size: int) -> NDArray[np.int64]:
    """Return the bucket of each word in each row, shape (ROWS, n_words)."""
    digests = b"".join(hashlib.sha256(study + word.encode()).digest() for word in words)
    numbers = np.frombuffer(digests, "<u8").reshape(-1, ROWS).T % np.uint64(size // ROWS)
    return numbers.astype(np.int64) + size // ROWS * np.arange(ROWS)[:, None]


def table_of(own: CountsByWord, study: bytes, size: int) -> Counts:
    """Return a member's table: 1 for each bucket with one of its words."""
    table = np.zeros(size, np.int64)
    table[buckets_of(own.names, study, size)] = 1
    return table


def check_marks(marks: Sequence[Any], limits: VocabularyLimits) -> None:
    """Raise FederationError if a member announces an impossible number of words."""
    if not all(type(n) is int and 0 <= n <= limits.most_proposed(len(marks)) for n in marks):
        raise FederationError("a number of words is not valid")


def check_table(table: Counts, marks: int) -> None:
    """Raise FederationError if a total has more than members announced that they mark."""
    if (table.reshape(ROWS, -1).sum(1) > marks).any():
        raise FederationError("a member marks more words than it announced")


def clients_with(words: Sequence[str], study: bytes, table: Counts) -> Counts:
    """Return in how many clients each word is by the table, at most; rarely more than it is."""
    return np.asarray(table[buckets_of(words, study, len(table))].min(0))


def words_to_list(own: CountsByWord, study: bytes, table: Counts, least: int) -> list[str]:
    """Return a member's words that, by the table, at least so many clients have."""
    return [
        own.names[row]
        for row in np.flatnonzero(clients_with(own.names, study, table) >= least).tolist()
    ]


def joined(
    lists: Sequence[Sequence[str]], marks: Sequence[int], study: bytes, table: Counts, least: int
) -> list[str]:
    """Return all listed words in the order of their bytes; FederationError for an invalid list."""
    for words, most in zip(lists, marks, strict=True):
        is_list = len(words) <= most and all(map(is_word, words))
        if not is_list or (clients_with(words, study, table) < least).any():
            raise FederationError("a list of words is not valid")
    return sorted({word for words in lists for word in words})


def counts_over(own: CountsByWord, words: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    place = {word: row for row, word in enumerate(own.names)}
    # The last row, of zeros, is for words that this member does not have.
    values = np.vstack([own.values, np.zeros((1, len(COLUMNS)), np.int64)])
    return dict(zip(COLUMNS, values[[place.get(word, -1) for word in words]].T, strict=True))


def named(total: Mapping[str, Any], words: Sequence[str]) -> CountsByWord:
    """Return the total counts of the listed words, without those that nobody has."""
    values = np.column_stack([total[name] for name in COLUMNS])
    rows = np.flatnonzero(values[:, 0])
    return CountsByWord([words[row] for row in rows.tolist()], values[rows])
