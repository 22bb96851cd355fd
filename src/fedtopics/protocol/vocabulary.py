"""The agreement on words under secure aggregation, as pure functions.

Members add up a table of counts by bucket, a hash of the word. Each lists its own words of the
buckets that can hold an agreed word, and only those of which it has a fair share, so that a member
that fills all buckets does not make the others list all their words. The listed words are counted
exactly. The relay sees no total, so it cannot try words of a dictionary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtopics.errors import FederationError
from fedtopics.methods.core.aggregation import Named
from fedtopics.methods.core.replies import MOST_COUNT, Announced, Field, Template
from fedtopics.text.vocabulary import VocabularyLimits
from fedtopics.text.words import is_word

COLUMNS = "frequency", "occurrences", "clients", "first"  # of `Named`
FEWEST, MOST = 1 << 12, 1 << 18  # buckets
EACH = 64  # buckets for a document
SPARE = 16  # buckets that pass beside those of as many words as are agreed on
TABLE, LISTED, COUNTS = "vocabulary: table", "vocabulary: words", "vocabulary: counts"
LEAVES = {
    TABLE: "The counts of the client's words by bucket, a hash of the word; only the total is "
    "seen, by members.",
    LISTED: "The client's words that may be among the agreed ones, which all members see.",
    COUNTS: "The client's counts of the words that members listed; only the total is seen.",
}
Table = Mapping[str, NDArray[np.int64]]


def template_of(size: int) -> Template:
    """Return the template of a table of counts, by bucket or by word."""
    column = Field((size,), MOST_COUNT, 0, dtype="int64")
    return {"documents": Announced({}), **dict.fromkeys(COLUMNS, column)}


def buckets_for(documents: int) -> int:
    """Return how many buckets the words of so many documents need."""
    return min(max(1 << (EACH * documents).bit_length(), FEWEST), MOST)


def buckets_of(words: Sequence[str], study: bytes, size: int) -> NDArray[np.int64]:
    """Return the bucket of each word."""
    digests = [hashlib.sha256(study + word.encode()).digest()[:8] for word in words]
    return (np.frombuffer(b"".join(digests), "<u8") % np.uint64(size)).astype(np.int64)


def table_of(own: Named, study: bytes, size: int) -> dict[str, NDArray[np.int64]]:
    """Return a member's counts by bucket; its words that share one are added up."""
    places = buckets_of(own.names, study, size)
    table = np.zeros((size, len(COLUMNS)), np.int64)
    np.add.at(table, places, own.values)
    return dict(zip(COLUMNS, table.T, strict=True))


def passing(table: Table, documents: int, limits: VocabularyLimits) -> NDArray[np.int64]:
    """Return the buckets whose words may be among the agreed ones, sorted.

    Words that share a bucket look more frequent, and as if more clients had them: more pass than
    can be chosen, two or three times as many at most.
    """
    frequency, occurrences, clients, first = (table[name] for name in COLUMNS)
    key = occurrences + np.where(first > 0, MOST_COUNT, 0)
    enough = np.flatnonzero(clients >= max(limits.min_clients_per_word, 1))
    order = enough[np.argsort(-key[enough], kind="stable")]
    fit = frequency[order] <= limits.max_document_share * documents
    usual, often = order[fit], order[~fit]
    # Two words of one client each can look like one of two clients.
    further = limits.max_words if limits.min_clients_per_word > 1 else limits.max_words // 4
    room = limits.max_words + further + SPARE
    least = key[usual[room - 1]] if len(usual) >= room else 0
    kept = [part[key[part] >= least] for part in (usual, often)]
    return np.sort(np.concatenate([part[: 2 * room] for part in kept]))


def listed(
    own: Named, study: bytes, table: Table, allowed: NDArray[np.int64], members: int
) -> list[str]:
    """Return a member's words in the buckets that pass.

    Of a word with a total of m some member has m / n: who has less leaves it to that member.
    """
    size = len(table["occurrences"])
    places = buckets_of(own.names, study, size)
    share = own.values[:, 1] * members >= table["occurrences"][places]
    chosen = np.isin(places, allowed) & (share | (own.values[:, 3] > 0))
    return [own.names[row] for row in np.flatnonzero(chosen).tolist()]


def joined(
    lists: Sequence[Sequence[str]], study: bytes, size: int, allowed: NDArray[np.int64]
) -> list[str]:
    """Return all listed words, in the order of their bytes.

    FederationError if a member lists what is not a word, or one of another bucket, or far too many.
    """
    for words in lists:
        if len(words) > 4 * len(allowed) + SPARE or not all(map(is_word, words)):
            raise FederationError("a list of words cannot be right")
        if not np.isin(buckets_of(words, study, size), allowed).all():
            raise FederationError("a list of words cannot be right")
    return sorted({word for words in lists for word in words})


def counts_over(own: Named, words: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return a member's counts of the listed words."""
    place = {word: row for row, word in enumerate(own.names)}
    counts = np.zeros((len(words), len(COLUMNS)), np.int64)
    for row, word in enumerate(words):
        if word in place:
            counts[row] = own.values[place[word]]
    return dict(zip(COLUMNS, counts.T, strict=True))


def named(total: Mapping[str, Any], words: Sequence[str]) -> Named:
    """Return the total counts of the listed words; what nobody has is left out."""
    counts = np.column_stack([total[name] for name in COLUMNS])
    rows = np.flatnonzero(counts[:, 0])
    return Named([words[row] for row in rows.tolist()], counts[rows])
