"""Copies of passages: which words are one, and what a bag without them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fedtopics.text.corpus import BATCH, Corpus
from fedtopics.text.repeats import Repeats, find_repeats
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import count_words

WORDS = [f"w{i}" for i in range(30)]
KNOWN = {word: column for column, word in enumerate(WORDS)}
PASSAGE = WORDS[:8]


def found(documents: Any, rules: TextRules | None = None, least: int = 1, seed: int = 0) -> Repeats:
    rng = np.random.default_rng(seed)
    return find_repeats(Corpus.of(documents), rules or TextRules(), KNOWN, least, rng)


def bag(documents: Any, **how: Any) -> list[list[int]]:
    return found(documents, **how).bag(len(WORDS)).toarray().tolist()


def counts(*documents: Sequence[str]) -> list[list[int]]:
    """The bags of documents that are as they are."""
    return [[list(document).count(word) for word in WORDS] for document in documents]


def kept_words(documents: Sequence[Sequence[str]]) -> list[list[str]]:
    """What is left of documents, one n-gram after the other."""
    seen: Counter[tuple[str, ...]] = Counter()
    left = []
    for document in documents:
        words = [word for word in document if word in KNOWN]
        ngrams = [tuple(words[i : i + 8]) for i in range(len(words) - 7)]
        copied = {i + j for i, ngram in enumerate(ngrams) if seen[ngram] >= 2 for j in range(8)}
        seen.update({*ngrams})
        left.append([word for i, word in enumerate(words) if i not in copied])
    return left


def test_a_passage_counts_in_two_documents() -> None:
    documents = [["w9", *PASSAGE], PASSAGE, [*PASSAGE, "w9", "w9"], ["w8"], PASSAGE]
    assert bag(documents) == counts(*documents[:2], ["w9", "w9"], ["w8"], [])


def test_seven_words_are_no_passage() -> None:
    documents = [PASSAGE[:7]] * 5
    assert bag(documents) == counts(*documents)


def test_ngrams_that_overlap_are_one_passage() -> None:
    documents = [["w20", *WORDS[:12], "w21"]] * 2 + [["w22", *WORDS[:12], "w23"]] * 2
    assert bag(documents) == counts(*documents[:2], *[["w22", "w23"]] * 2)


def test_a_passage_twice_in_a_document_is_in_one() -> None:
    documents = [PASSAGE * 2, PASSAGE, PASSAGE * 3]
    assert bag(documents)[:2] == counts(*documents[:2])
    assert sum(bag(documents)[2]) == 0


def test_documents_count_in_their_order() -> None:
    short, long = PASSAGE, [*PASSAGE, "w9"]
    assert bag([short, short, long]) == counts(short, short, ["w9"])
    assert bag([long, short, short]) == counts(long, short, [])


def test_words_across_two_documents_are_no_ngram() -> None:
    documents = [WORDS[:4], WORDS[4:8]] * 4
    assert bag(documents) == counts(*documents)


def test_words_that_were_not_agreed_on_do_not_part_a_passage() -> None:
    documents = [[*PASSAGE[:4], f"x{i}", *PASSAGE[4:]] for i in range(4)]
    assert bag(documents) == counts(PASSAGE, PASSAGE, [], [])


def test_words_that_too_few_documents_have_do_not_part_a_passage() -> None:
    """Else what is a copy would tell who has them."""
    documents = [[*PASSAGE[:4], "w20", *PASSAGE[4:]], PASSAGE, PASSAGE, ["w21"] * 9]
    assert bag(documents, least=2) == counts(PASSAGE, PASSAGE, [], [])
    assert bag(documents, least=1) == counts(*documents)


def test_rows_in_are_rows_out() -> None:
    documents = [[], PASSAGE, [], PASSAGE, PASSAGE, ["x"], []]
    assert bag(documents) == counts([], PASSAGE, [], PASSAGE, [], [], [])
    for few in ([[]], [["x"]], [["w0"]], [[], []]):
        assert found(few).bag(len(WORDS)).shape == (len(few), len(WORDS))


def test_texts_are_as_their_words() -> None:
    text = " ".join(word.upper() for word in PASSAGE)
    assert bag([f"{text}!", f"The {text}", f"w9. {text}"]) == counts(PASSAGE, PASSAGE, ["w9"])


def test_ngrams_as_words() -> None:
    """Pairs of words are left out with the words."""
    words = [*PASSAGE, "w8"]
    pairs = [f"{one} {other}" for one, other in pairwise(words)]
    known = {word: column for column, word in enumerate([*words, *pairs])}
    corpus = Corpus.of([" ".join(words)] * 3)
    rules = TextRules(ngrams=(1, 2))
    repeats = find_repeats(corpus, rules, known, 1, np.random.default_rng(0))
    assert repeats.bag(17).toarray().tolist() == [[1] * 17, [1] * 17, [0] * 17]


def test_copies_across_batches() -> None:
    documents = [PASSAGE, *[["w9"]] * BATCH, PASSAGE, [*PASSAGE, "w9"]]
    assert bag(documents)[-2:] == counts(PASSAGE, ["w9"])


def documents_of(rng: np.random.Generator) -> list[list[str]]:
    """Documents of passages, whole and cut off, and of other words."""
    passages = [rng.choice(WORDS[:12], rng.integers(4, 20)).tolist() for _ in range(3)]
    return [
        [
            word
            for _ in range(rng.integers(0, 5))
            for word in (
                passages[rng.integers(3)][: rng.integers(6, 20)]
                if rng.random() < 0.7
                else rng.choice([*WORDS, "x"], rng.integers(0, 9)).tolist()
            )
        ]
        for _ in range(rng.integers(1, 20))
    ]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_left_is_what_is_left_ngram_by_ngram(seed: int) -> None:
    documents = documents_of(np.random.default_rng(seed))
    left = kept_words(documents)
    assert bag(documents, seed=seed) == counts(*left)
    assert found(documents).copied.sum() == sum(map(len, documents)) - sum(map(len, left)) - sum(
        document.count("x") for document in documents
    )


def test_the_key_changes_nothing() -> None:
    documents = documents_of(np.random.default_rng(3))
    assert bag(documents, seed=1) == bag(documents, seed=2)


def test_without_copies_it_is_plain_counting() -> None:
    rng = np.random.default_rng(0)
    corpus = Corpus.of([rng.choice(WORDS, rng.integers(0, 30)).tolist() for _ in range(50)])
    plain = count_words(corpus, TextRules(), KNOWN).counts
    capped = find_repeats(corpus, TextRules(), KNOWN, 1, rng).bag(len(WORDS))
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(capped, part), getattr(plain, part))
    assert (capped.dtype, capped.shape) == (plain.dtype, plain.shape)


# Passages


def test_passages_and_how_often_they_are_there() -> None:
    signature, footer = WORDS[:9], WORDS[10:20]
    documents = [[f"w{20 + i}", *signature, f"w{25 + i}"] for i in range(5)]
    documents += [[*footer, "w20"], footer, [*footer, "w22", *footer], ["w21"], []]
    assert found(documents).passages(WORDS) == [
        {"words": signature, "documents": 5, "copied": 3 * 9},
        {"words": footer, "documents": 3, "copied": 2 * 10},
    ]


def test_a_passage_of_two_documents_is_none() -> None:
    assert found([PASSAGE, PASSAGE, ["w9"]]).passages(WORDS) == []
    assert found([[]]).passages(WORDS) == []


def test_passages_beside_each_other_are_parted_where_documents_differ() -> None:
    one, other = WORDS[:8], WORDS[10:18]
    documents = [[*one, *other]] * 3 + [one] * 3
    assert found(documents).passages(WORDS) == [
        {"words": one, "documents": 6, "copied": 4 * 8},
        {"words": other, "documents": 3, "copied": 8},
    ]


def test_it_shows_no_words() -> None:
    assert "w0" not in repr(found([PASSAGE]))
