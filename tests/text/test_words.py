"""What a word is, whoever writes it, and that one word is not written in two ways."""

from __future__ import annotations

import unicodedata

import pytest

from fedtopics.errors import StudyError
from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary, count_words
from fedtopics.text.words import is_word, normal
from tests.helpers.hostile import HOSTILE_WORDS, NO_WORDS

COMPOSED, APART = "caf\u00e9", "cafe\u0301"
LATER = "a\u0378"  # no character yet
RULES = TextRules(stop_words="none")


def counted(documents: list[str] | list[list[str]], rules: TextRules = RULES) -> dict[str, int]:
    """How often each word occurs in all documents."""
    counts = count_words(Corpus.of(documents), rules)
    return dict(zip(counts.words, counts.counts.sum(0).tolist(), strict=True))


def test_what_prints_is_a_word() -> None:
    words = ["oak", "new york", "R&D", "na\u00efve", "\u2764\ufe0f", "x" * 100, *HOSTILE_WORDS]
    assert [word for word in words if not is_word(word)] == []
    # Letters with marks of their own: Hebrew, Thai, Tibetan, Vietnamese, Hindi.
    for word in ("שָׁלוֹם", "น้ำ", "རྒྱུད", "tiếng", "हिन्दी"):
        assert is_word(unicodedata.normalize("NFC", word)), word


def test_what_turns_hides_or_is_piled_up_is_none() -> None:
    assert [word for word in NO_WORDS if is_word(word)] == []


def test_no_pythons_unicode_makes_a_word_of_anothers_none() -> None:
    """A later Unicode has characters where this one has none: who adds must not mind them."""
    assert unicodedata.category(LATER[1]) == "Cn"
    assert is_word(LATER)
    # But who does not know a character does not know how it is normal, and sends none.
    assert counted([["oak", LATER]]) == {"oak": 1}


def test_letters_and_their_marks_are_one_word() -> None:
    both = {COMPOSED: 2}
    assert counted([f"{COMPOSED} {APART}"]) == both
    assert counted([[COMPOSED], [APART]]) == both
    assert counted([APART.upper(), COMPOSED.upper()]) == both
    assert counted(["J\u030c-tea"]) == {"\u01f0-tea": 1}, "lower case alone leaves them apart"
    assert counted([f"the {COMPOSED}"], TextRules(own_stop_words=(APART,))) == {}
    cased = TextRules(stop_words="none", lowercase=False)
    assert counted([APART.title()], cased) == {COMPOSED.title(): 1}


def test_piles_of_marks_take_no_longer_than_other_text() -> None:
    """Python sorts the marks on a letter in the square of their number: minutes for these."""
    pile = "\u0327\u0301\u0316\u05b0"
    assert len(normal(f"e{250_000 * pile} oak")) < 50
    assert counted([f"e{250_000 * pile} oak"])["oak"] == 1
    assert counted([[f"e{250_000 * pile}", "oak"]]) == {"oak": 1}
    assert normal("e" + 30 * "\u0316" + " oak" * 30) == "e" + 30 * "\u0316" + " oak" * 30


def test_agreed_words_are_found_however_they_are_written() -> None:
    for documents in ([f"{APART} oak"], [[APART, "oak"]]):
        counts = count_words(Corpus.of(documents), RULES, {COMPOSED: 0, "oak": 1}).counts
        assert counts.toarray().tolist() == [[1, 1]]


def test_what_only_looks_alike_stays_different() -> None:
    words = ["bank", "b\u0430nk", "\uff42\uff41\uff4e\uff4b", "\ufb01nal", "final"]
    assert counted([words]) == dict.fromkeys(words, 1)
    assert [*map(normal, words)] == words


@pytest.mark.parametrize("word", ["\x1b[2J", APART, "x" * 101])
def test_a_vocabulary_of_a_file_has_words(word: str) -> None:
    plain = {"words": ["oak", word], "document_frequency": [1, 1], "occurrences": [1, 1]}
    with pytest.raises(StudyError, match="1 of 2 words are none: such have at most 100 char") as e:
        Vocabulary.of(plain)
    assert word not in str(e.value)


def test_a_vocabulary_of_a_file_has_each_word_once() -> None:
    with pytest.raises(ValueError, match="each word has a document frequency"):
        Vocabulary.of({"words": ["a", "a"], "document_frequency": [1, 1], "occurrences": [1, 1]})
