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


def table_of(replies: list[CountsByWord], size: int) -> Any:
    return np.sum([v.table_of(counted, STUDY, size) for counted in replies], axis=0)


def agreed(replies: list[CountsByWord], least: int) -> tuple[CountsByWord, list[list[str]]]:
    """What members agree on, and what each lists."""
    marks = [len(counted.names) for counted in replies]
    table = table_of(replies, v.buckets_for(sum(marks)))
    v.check_table(table, sum(marks))
    lists = [v.words_to_list(counted, STUDY, table, least) for counted in replies]
    words = v.joined(lists, marks, STUDY, table, least)
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
    listed, _ = agreed(replies, limits.clients_per_word(len(counts)))

    def words_of(counted: Any) -> set[str]:
        with suppress(StudyError):  # fewer than two words
            return set(agree(counted.names, counted.values, documents, limits, len(counts)).words)
        return set()

    assert words_of(listed) == words_of(whole)
    place = {word: row for row, word in enumerate(whole.names)}
    for word, row in zip(listed.names, listed.values, strict=True):
        assert row.tolist() == whole.values[place[word]].tolist(), "counts are exact"


def lone_words(n: int = 3000) -> list[CountsByWord]:
    """Three members with 3,000 words in common and as many that only one of them has."""
    of_all = {f"w{i}": (9, 9) for i in range(n)}
    return [reply(of_all | {f"{own}{i}": (9, 9) for i in range(n)}, 10) for own in "abc"]


def test_words_of_one_member_are_not_listed() -> None:
    """Hardly any of 9,000 collides with another member's in all rows."""
    _, lists = agreed(lone_words(), 2)
    for listed in lists:
        assert len([word for word in listed if not word.startswith("w")]) < 40


def test_a_dictionary_tells_no_number() -> None:
    """Who tries words reads that some member has one, and the number of members at most."""
    table = table_of(lone_words(), v.buckets_for(18_000))
    assert table.max() <= 3
    words = ["a7", "b9", "w5", "nobody has this"]
    assert v.clients_with(words, STUDY, table).tolist() == [1, 1, 3, 0]


@pytest.mark.parametrize("filled", [1.0, 0.5, 0.2])
def test_a_liar_who_fills_buckets_is_noticed(filled: float) -> None:
    """More marks than all announced: the run stops before anybody lists a word."""
    replies = lone_words()
    size = v.buckets_for(18_000)
    table = table_of(replies, size) + (np.random.default_rng(0).random(size) < filled)
    with pytest.raises(FederationError, match="marks more words than it announced"):
        v.check_table(table, 18_000)


@pytest.mark.parametrize("marks", [[10_001], [-1], [True], ["5"], [2.0], [None]])
def test_impossible_numbers_of_marks(marks: list[Any]) -> None:
    v.check_marks([0, 10_000], VocabularyLimits())
    with pytest.raises(FederationError, match="a number of words is not valid"):
        v.check_marks(marks, VocabularyLimits())


def test_a_liar_within_its_announcement_learns_few_words() -> None:
    """It marks 40,000 buckets at random, as for 10,000 words: 9,000 lone words, few are listed."""
    replies = lone_words()
    marks = 18_000 + 10_000
    size = v.buckets_for(marks)
    table = table_of(replies, size)
    rows = (
        np.random.default_rng(0).choice(size // v.ROWS, (v.ROWS, 10_000))
        + size // v.ROWS * np.arange(v.ROWS)[:, None]
    )
    table[np.unique(rows)] += 1
    v.check_table(table, marks)
    listed = [v.words_to_list(counted, STUDY, table, 2) for counted in replies]
    assert sum(not word.startswith("w") for words in listed for word in words) < 90


@pytest.mark.parametrize(
    "words", [["two words"], ["\x1b[31m"], ["x" * 5000], ["notallowed"], ["w1"] * 3]
)
def test_lists_that_cannot_be(words: list[str]) -> None:
    table = np.zeros(1 << 12, np.int64)
    table[v.buckets_of(["w1"], STUDY, len(table))] = 2
    assert v.joined([["w1"], []], [2, 0], STUDY, table, 2) == ["w1"]
    with pytest.raises(FederationError, match="a list of words is not valid"):
        v.joined([words], [2], STUDY, table, 2)
    with pytest.raises(FederationError, match="a list of words is not valid"):
        v.joined([["w1"]], [1], STUDY, table, 3)


def test_other_studies_have_other_buckets() -> None:
    names = [f"w{i}" for i in range(100)]
    first, second = (v.buckets_of(names, study, 1 << 16) for study in (STUDY, bytes(32)))
    assert first.shape == (v.ROWS, 100)
    assert (first != second).mean() > 0.99
    rows = first // ((1 << 16) // v.ROWS)
    assert (rows == np.arange(v.ROWS)[:, None]).all(), "each row has its own buckets"


def test_none_of_many_words_is_lost() -> None:
    """Of as many words as members may mark, all common ones are agreed on, with exact counts."""
    rng = np.random.default_rng(1)
    counts = [
        {f"w{i}": (5, int(n)) for i, n in enumerate(5 + rng.pareto(1.0, 10_000) * 5)}
        for _ in range(3)
    ]
    limits = VocabularyLimits(max_words=3000)
    replies = [reply(client_counts, 1000) for client_counts in counts]
    listed = agreed(replies, 2)[0]
    whole = plain_sum(replies)
    expected = agree(whole.names, whole.values, 5000, limits, 3).words
    assert agree(listed.names, listed.values, 5000, limits, 3).words == expected
