"""Words agreed on under secure aggregation are those of a plain sum."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtopics.contract.payload import CountsByWord, RunningSum
from fedtopics.errors import FederationError, StudyError
from fedtopics.protocol import vocabulary as v
from fedtopics.text.vocabulary import VocabularyLimits, agree

STUDY = bytes(range(32))


def reply(counts: dict[str, tuple[int, int]], places: int) -> CountsByWord:
    """A member's counts by word: documents with it, occurrences."""
    names = sorted(counts)
    first = sorted(names, key=lambda word: -counts[word][1])[:places]
    rows = [[*counts[word], 1, int(word in first)] for word in names]
    return CountsByWord(names, np.array(rows, np.int64).reshape(-1, 4))


def agreed(
    replies: list[CountsByWord], documents: int, limits: VocabularyLimits, size: int
) -> tuple[CountsByWord, list[list[str]]]:
    """What members agree on, and what each lists."""
    tables = [v.table_of(counted, STUDY, size) for counted in replies]
    table = {name: np.sum([member[name] for member in tables], axis=0) for name in v.COLUMNS}
    allowed = v.passing(table, documents, limits)
    lists = [v.words_to_list(counted, STUDY, table, allowed, len(replies)) for counted in replies]
    words = v.joined(lists, STUDY, allowed)
    counts = [v.counts_over(counted, words) for counted in replies]
    total = {name: np.sum([member[name] for member in counts], axis=0) for name in v.COLUMNS}
    return v.named(total, words), lists


def plain_sum(replies: list[CountsByWord]) -> CountsByWord:
    total = RunningSum()
    for counted in replies:
        total.add({"words": counted})
    words: CountsByWord = total.total()["words"]
    return words


words = st.dictionaries(
    st.integers(0, 400).map("w{}".format), st.tuples(st.integers(1, 30), st.integers(0, 300))
).map(lambda found: {word: (n, n + more) for word, (n, more) in found.items()})


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(words, min_size=2, max_size=5), st.integers(1, 3), st.integers(2, 60))
def test_words_of_a_plain_sum(
    counts: list[dict[str, tuple[int, int]]], fewest: int, most: int
) -> None:
    limits = VocabularyLimits(min_clients_per_word=fewest, max_words=most, max_document_share=0.5)
    documents = 60
    replies = [reply(client_counts, most // len(counts)) for client_counts in counts]
    whole = plain_sum(replies)
    listed, _ = agreed(replies, documents, limits, v.buckets_for(documents * len(counts)))

    def words_of(counted: Any) -> set[str]:
        with suppress(StudyError):  # fewer than two words
            return set(agree(counted.names, counted.values, documents, limits).words)
        return set()

    assert words_of(listed) == words_of(whole)
    place = {word: row for row, word in enumerate(whole.names)}
    for word, row in zip(listed.names, listed.values, strict=True):
        assert row.tolist() == whole.values[place[word]].tolist(), "counts are exact"


def test_a_liar_who_fills_all_buckets_learns_few_words() -> None:
    """The others list their most frequent words, and not all."""
    rng = np.random.default_rng(0)
    limits = VocabularyLimits(max_words=50)
    frequencies = {f"word{i}": (5, int(5 + rng.integers(0, 500))) for i in range(2000)}
    honest = [reply(frequencies, 16), reply(frequencies, 16)]
    size = v.buckets_for(3000)
    many = {f"x{i}": (900, 10**6) for i in range(20_000)}
    _, lists = agreed([*honest, reply(many, 16)], 3000, limits, size)
    assert max(len(listed) for listed in lists[:2]) <= 16 + 5, "its first words, and hardly others"


@pytest.mark.parametrize(
    "words", [["two words"], ["\x1b[31m"], ["x" * 5000], ["notallowed"], ["w1"] * 10_000]
)
def test_lists_that_cannot_be(words: list[str]) -> None:
    size = 1 << 12
    allowed = np.zeros(size, np.bool_)
    allowed[v.buckets_of(["w1"], STUDY, size)] = True
    assert v.joined([["w1"], []], STUDY, allowed) == ["w1"]
    with pytest.raises(FederationError, match="a list of words is not valid"):
        v.joined([words], STUDY, allowed)


def test_other_studies_have_other_buckets() -> None:
    names = [f"w{i}" for i in range(100)]
    first, second = (v.buckets_of(names, study, 1 << 16) for study in (STUDY, bytes(32)))
    assert first.shape == (v.ROWS, 100)
    assert (first != second).mean() > 0.99
    rows = first // ((1 << 16) // v.ROWS)
    assert (rows == np.arange(v.ROWS)[:, None]).all(), "each row has its own buckets"


def test_none_of_many_words_is_lost() -> None:
    """As many words as buckets of a row: most share one, and the counts are those of a sum."""
    rng = np.random.default_rng(1)
    counts = [
        {f"w{i}": (5, int(n)) for i, n in enumerate(5 + rng.pareto(1.0, 40_000) * 5)}
        for _ in range(3)
    ]
    limits = VocabularyLimits(max_words=3000)
    replies = [reply(client_counts, 1000) for client_counts in counts]
    listed = agreed(replies, 5000, limits, v.MOST_BUCKETS)[0]
    whole = plain_sum(replies)
    expected = agree(whole.names, whole.values, 5000, limits).words
    assert agree(listed.names, listed.values, 5000, limits).words == expected
