"""What a word is, whoever writes it, and that one word is not written in two ways."""

# ruff: noqa: RUF001 - texts as people write them
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtopics.text.corpus import Corpus
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import Vocabulary, count_words
from fedtopics.text.words import PATTERNS, is_word, lower, normal_form, splitter
from tests.helpers.hostile import HOSTILE_WORDS, NO_WORDS

COMPOSED = "caf\u00e9"
APART = "cafe\u0301"
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
    assert len(normal_form(f"e{250_000 * pile} oak")) < 50
    assert counted([f"e{250_000 * pile} oak"])["oak"] == 1
    assert counted([[f"e{250_000 * pile}", "oak"]]) == {"oak": 1}
    assert normal_form("e" + 30 * "\u0316" + " oak" * 30) == "e" + 30 * "\u0316" + " oak" * 30


def test_agreed_words_are_found_however_they_are_written() -> None:
    for documents in ([f"{APART} oak"], [[APART, "oak"]]):
        counts = count_words(Corpus.of(documents), RULES, {COMPOSED: 0, "oak": 1}).counts
        assert counts.toarray().tolist() == [[1, 1]]


def test_what_only_looks_alike_stays_different() -> None:
    words = ["bank", "b\u0430nk", "b\u03b1nk", "b\u00e1nk"]
    assert counted([words]) == dict.fromkeys(words, 1)
    assert [*map(normal_form, words)] == words


SPELLINGS = {
    "don't": ["don\u2019t", "don\u2018t", "don\u02bct", "don\uff07t", "don`t", "don\u00b4t",
              "don\u2032t", "don\x92t", "don\x91t", "do\u00adn\u2019t"],
    "mother-in-law": ["mother\u2010in\u2011law", "mo\u200bther-in-law", "mother-\ufeffin-law",
                      "mother\x1ein-law"],
    "final": ["\ufb01nal", "fi\u200dnal", "fi\u200cnal", "fi\u2060nal", "\uff46inal",
              "f\ufe0final"],
    "beech": ["bee\u00adch", "bee\u200bch", "bee\u200e\u202ech", "\ufeffbeech", "bee\u034fch",
              "bee\0ch", "bee\x02ch", "bee\bch", "bee\x0ech", "bee\x1bch", "bee\x1fch", "bee\x7fch",
              "bee\ufffech", "bee\U0001fffech", "bee\ufdd0ch"],
    "naïve": ["nai\0\u0308ve", "na\x02ïve"],
    "œuvre": ["\x9cuvre"],
    "šibenik": ["\x9aibenik"],
    "كتاب": ["كتـــاب", "\ufedb\ufe98\ufe8e\ufe8f"],
    "میخواهم": ["می\u200cخواهم"],
    "അവൻ": ["അവന\u0d4d\u200d"],
    "ինչ": ["ի՞նչ"],
    "צה״ל": ['צה"ל', "צה\u201dל"],
    "בית-ספר": ["בית\u05beספר"],
    "col·legi": ["co\u0140legi"],
    "rijk": ["r\u0133k"],
    "ガラス": ["\uff76\uff9e\uff97\uff7d"],
}  # fmt: skip


@pytest.mark.parametrize("word", SPELLINGS)
def test_a_word_is_one_whatever_editor_wrote_it(word: str) -> None:
    for written in [word, *SPELLINGS[word]]:
        assert counted([f"{written}, oak"]) == {word: 1, "oak": 1}, ascii(written)
        assert counted([[written]]) == {word: 1}, ascii(written)
        without = TextRules(own_stop_words=(written.upper(),))
        assert counted([f"the {written} oak"], without) == {"oak": 1}, ascii(written)


def test_signs_of_windows_read_as_latin_1_end_words() -> None:
    """Quotes, dashes, dots, the euro and the trade mark; and so do tabs and line ends."""
    words = counted(
        ["\x93oak\x94 \x84elm\x85fir\x96ash\x97yew\x80\x99\tbox\x0bbay\x0ctea\x1cfig\r\nivy"]
    )
    assert [*words] == ["oak", "elm", "fir", "ash", "yew", "box", "bay", "tea", "fig", "ivy"]


def test_a_space_that_is_not_seen_ends_a_word_where_there_are_no_others() -> None:
    assert normal_form("ខ្មែរ\u200bក្រុង\u200b") == "ខ្មែរ ក្រុង"
    assert normal_form("oak\u200btree") == "oaktree"


SENTENCES = [
    "हिन्दी में एक वाक्य लिखा है",  # Hindi
    "मेरो नाम राम हो",  # Nepali
    "मला मराठी भाषा येते",  # Marathi
    "నేను తెలుగు మాట్లాడతాను నా ఇల్లు",  # Telugu
    "എന്റെ വീട് കേരളത്തിൽ",  # Malayalam
    "தமிழ் மொழி பழமையான",  # Tamil
    "আমার সোনার বাংলা",  # Bengali
    "ગુજરાતી ભાષા",  # Gujarati
    "ਪੰਜਾਬੀ ਭਾਸ਼ਾ",  # Punjabi
    "ಕನ್ನಡ ಭಾಷೆ",  # Kannada
    "සිංහල භාෂාව",  # Sinhala
    "اَلسَّلَامُ عَلَيْكُمْ",  # Arabic with vowels
    "שָׁלוֹם עֲלֵיכֶם",  # Hebrew with vowels
    "ނަން ދިވެހި",  # Maldivian
    "ọ̀rẹ́ àwọn ènìyàn",  # Yoruba
    "አማርኛ ቋንቋ",  # Amharic
    "тӗлӗнмелле чӑвашла",  # Chuvash
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_of_each_script_with_spaces_are_whole(sentence: str) -> None:
    words = normal_form(sentence).split()
    assert TextRules(stop_words="none").analyser()(f"«{sentence}।», {sentence}!") == 2 * words
    assert all(map(is_word, words))


def test_the_shortest_word_has_two_letters_and_accents_are_none() -> None:
    """A vowel sign is a letter; an accent or a vowel point is written or not."""
    analyse = TextRules(stop_words="none").analyser()
    assert analyse("I a é ọ́ و وَ ש שָ क घी माँ నా") == ["घी", "माँ", "నా"]
    assert analyse("o' oak- 'elm' ọ́- '' ọ́'") == ["oak", "elm"]


def test_case_is_that_of_the_language() -> None:
    turkish = TextRules(stop_words="turkish").analyser()
    assert turkish("IŞIK ışık İZMİR izmir I\u0307zmir") == ["ışık"] * 2 + ["izmir"] * 3
    assert turkish("ISPARTA Isparta") == ["ısparta", "ısparta"]
    assert TextRules(languages="tr").analyser()("ISPARTA") == ["ısparta"]
    assert TextRules(languages="tr", lemmas=True).analyser()("ISPARTA") == ["ısparta"]
    assert counted(["İzmir IZMIR izmir"]) == {"izmir": 3}
    assert counted(["ΔΡΟΜΟΣ δρομος δρομοσ ΔΡΟΜΟΣ.ΟΔΟΣ ΣΑΣ"]) == {"δρομος": 4, "οδος": 1, "σας": 1}
    assert counted(["Straße STRASSE STRAẞE"]) == {"straße": 2, "strasse": 1}


TEXT = st.text(
    st.one_of(
        st.sampled_from(
            "aZ1_ '-`\u00b4\u2019\u00ad\u200b\u200c\u200dσςΣİIıßŀl·\ufb01\ufdfaन्र्त्കാ\u0301אב\"״"
        ),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=30,
)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(TEXT, st.sampled_from(["", "turkish", "greek"]))
def test_what_is_spelled_once_stays(text: str, language: str) -> None:
    once = normal_form(text)
    assert normal_form(once) == once
    small = lower(once, language)
    assert normal_form(small) == small
    assert lower(small, language) == small


@settings(derandomize=True, deadline=None, max_examples=50)
@given(TEXT, st.sampled_from([*PATTERNS]))
def test_words_do_not_depend_on_what_else_is_in_the_text(text: str, pattern: str) -> None:
    """There is a fast way for texts without marks, and it has to find the same words."""
    find = splitter(pattern)
    text = normal_form(text)
    assert find(f"{text} हिन्दी") == [*find(text), *find("हिन्दी")]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(
    st.text("abcé ", max_size=20),
    st.text("\u00ad\u200b\u200c\u200d\u2060\ufeff\ufe0f\u202e", min_size=1),
)
def test_invisible_characters_never_split_a_word(text: str, unseen: str) -> None:
    assert RULES.analyser()(unseen.join(["", *text, ""])) == RULES.model_copy().analyser()(text)


def test_long_texts_are_read_in_a_time_that_grows_with_them() -> None:
    for piece in ("a'", "a-\u0301", "\u0301", "क्", "'-", "`a", "\u200b", '"א'):
        splitter("words")(lower(normal_form("é" + piece * 100_000)))


def test_a_vocabulary_of_a_file_has_each_word_once() -> None:
    with pytest.raises(ValueError, match="each word needs a document frequency"):
        Vocabulary.of({"words": ["a", "a"], "document_frequency": [1, 1], "occurrences": [1, 1]})
