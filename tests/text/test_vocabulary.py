"""From local word counts to one agreed vocabulary."""

import hashlib
import re
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from fedtopics import Corpus, Study
from fedtopics.contract.payload import CountsByWord, RunningSum
from fedtopics.errors import DataError, StudyError
from fedtopics.text.languages import stop_words
from fedtopics.text.rules import TextRules
from fedtopics.text.vocabulary import (
    GrowingArray,
    Vocabulary,
    VocabularyLimits,
    WordCounts,
    agree,
    count_words,
    fingerprint,
    set_aside,
)
from fedtopics.text.words import PATTERNS
from tests.helpers.federation import ANY_WORDS
from tests.helpers.studies import read

TEXTS = [
    "The ketch, the sloop and the yawl: a ketch sails.",
    "",
    "Oak and beech; OAK and elm. Mother-in-law's yawl",
    "42 4x4 a b x_1 naïve Übergröße",
    "and the of",
]
EVERYTHING = TextRules(stop_words="none")
OPEN = VocabularyLimits(**ANY_WORDS, max_document_share=1.0)


def counted(documents: Any, rules: TextRules = EVERYTHING) -> WordCounts:
    return count_words(Corpus.of(documents), rules)


def reply(words: Mapping[str, tuple[int, int]], documents: int = 10) -> dict[str, Any]:
    """What a client names: word -> (document frequency, occurrences)."""
    names = sorted(words)
    counts = np.array([(*words[name], 1, 0) for name in names])
    return {"words": CountsByWord(names, counts), "documents": documents}


def agreed_on(replies: Mapping[str, Any], limits: VocabularyLimits) -> Vocabulary:
    """The vocabulary of the sum of these replies."""
    total = RunningSum()
    for client_reply in replies.values():
        total.add(client_reply)
    named = total.total()["words"]
    return agree(named.names, named.values, total.total()["documents"], limits, len(replies))


def named_by(documents: Any) -> dict[str, Any]:
    words, counts = counted(documents).named(1)
    columns = np.column_stack([counts[:, :2], *np.tile([[1], [0]], len(words))])
    return {"words": CountsByWord(words, columns), "documents": len(documents)}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"stop_words": "none"},
        {"lowercase": False},
        {"ngrams": (1, 3)},
        {"ngrams": (2, 2), "stop_words": "none"},
        {"token_pattern": r"(?u)\b\w\w+\b"},
        {"token_pattern": "words-and-digits"},
        {"token_pattern": "whitespace"},
        {"own_stop_words": ("oak", "yawl")},
    ],
)
def test_counts_are_those_of_scikit_learn(given: dict[str, Any]) -> None:
    rules = TextRules(**given)
    theirs = CountVectorizer(
        lowercase=rules.lowercase,
        token_pattern=PATTERNS.get(rules.token_pattern, rules.token_pattern),
        stop_words=sorted({*stop_words(rules.stop_words), *rules.own_stop_words}) or None,
        ngram_range=rules.ngrams,
    )
    table = theirs.fit_transform(TEXTS).toarray()
    ours = counted(TEXTS, rules)
    assert sorted(ours.words) == sorted(theirs.vocabulary_)
    np.testing.assert_array_equal(
        ours.counts.toarray(), table[:, [theirs.vocabulary_[word] for word in ours.words]]
    )


def test_the_usual_pattern() -> None:
    """Words begin with a letter, may have hyphens and apostrophes, and two characters at least."""
    words = counted(["Mother-in-law's 42 4x4 x2 a naïve don't _x Übergröße"]).words
    assert words == ["mother-in-law's", "x2", "naïve", "don't", "übergröße"]


def test_stop_words_of_languages() -> None:
    assert TextRules(stop_words="de") == TextRules(stop_words="german")
    text = ["the oak und der Baum"]
    assert sorted(counted(text, TextRules()).words) == ["baum", "der", "oak", "und"]
    assert sorted(counted(text, TextRules(stop_words="german")).words) == ["baum", "oak", "the"]
    assert sorted(counted(text).words) == ["baum", "der", "oak", "the", "und"]


def test_lists_of_words_and_no_texts() -> None:
    rules = TextRules(token_pattern="lists")  # noqa: S106
    assert counted([["oak", "elm"]], rules).words == ["oak", "elm"]
    with pytest.raises(DataError, match="on lists of words, but these documents are texts"):
        counted(["oak elm"], rules)
    with pytest.raises(StudyError, match="cannot split texts; give lists of words"):
        rules.analyser()
    assert rules.analyser(str.split)("The OAK") == ["oak"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({"ngrams": (2, 1)}, "1 <= shortest <= longest"),
        ({"ngrams": (0, 1)}, "1 <= shortest <= longest"),
        ({"pattern": "x"}, "no key 'text.pattern'"),
    ],
)
def test_rules_that_cannot_be(text: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        Study.make(text=text)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "is not a valid regular expression"),
        ("(?V1)" + "[" * 240 + "a" + "]" * 240, "is not a valid regular expression"),
        ("(?R)", "is not a valid regular expression|takes too long for a short text"),
        (r"#(\w+)", r"has a capturing group; write \(\?:\.\.\.\)"),
        (r"(?P<word>\w+)", "has a capturing group"),
        (r"(a)(b)", "has a capturing group"),
        (r"(?:[aeiou]|[aeiou]{2})+t", "takes too long for a short text; simplify it"),
        (r"(?:\w|\w\w)+!", "takes too long for a short text"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_when_texts_are_split(
    pattern: str, says: str, tmp_path: Path
) -> None:
    rules = read(tmp_path, f"[text]\ntoken_pattern = '{pattern}'\n").text
    with pytest.raises(StudyError, match=says) as error:
        rules.analyser()
    assert re.fullmatch(".{,599}", str(error.value)), "one line"


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(?:" * 5000 + "a" + ")" * 5000, "at most 500 characters"),
        ("(?x)a{1 000 000}", "no flag x"),
        ("a{99999999999}", "repeats too much"),
        (r"\X{60000}", "repeats too much"),
        ("(?:(?:(?:(?:x{1000}){1000}){1000}){100})", "repeats too much"),
        ("(?:" * 30 + "x" + ")+" * 30, "repeats too much"),
        ("(?:" * 30 + "x" + ")(?#c)+" * 30, "repeats too much"),
        ("(?:" * 40 + "x" + "){1,}" * 40, "repeats too much"),
        ("(?<=(?:x{1000}){1000})a", "repeats too much"),
    ],
)
def test_a_pattern_that_takes_memory_is_refused_before_it_is_compiled(
    pattern: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regex.compile", None)
    with pytest.raises(StudyError, match=says):
        read(tmp_path, f"[text]\ntoken_pattern = '{pattern}'\n")


def test_repeats_of_people_are_no_flood() -> None:
    identifier = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}|\p{L}{2,50}(?:['-]\p{L}+)*|#\w+(?:\.\w+)+"
    analyse = TextRules(token_pattern=identifier, stop_words="none").analyser()
    assert analyse("of oak-elm, #fir.ash 0a1b2c3d-0000-123456789abc") == [
        *("of", "oak-elm", "#fir.ash", "0a1b2c3d-0000-123456789abc")
    ]


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_with_a_name_try_no_character_again_and_again(name: str) -> None:
    """One that does so takes hours for such texts, instead of a second."""
    analyse = TextRules(token_pattern=name, stop_words="none").analyser()
    for part in ("a'", "'a", "-", "a", "_a", "1a-", "a ", "\u0301", "a\u0301'", "'-_"):
        for before, after in (("", ""), ("a", ""), ("", " a"), ("a", "\u00b7"), ("'", "!")):
            analyse(before + part * 100_000 + after)


def test_a_pattern_of_ones_own_finds_what_re_finds_and_has_a_time_limit() -> None:
    text = "a" * 5_000 + " c!b"
    with pytest.raises(DataError, match="in document 3 takes more than 1 s") as caught:
        counted(["oak", "elm", text], TextRules(token_pattern=r"(?:a+)+b"))  # noqa: S106
    assert "aaa" not in str(caught.value)
    rules = TextRules(token_pattern=r"(?<=#)\w+", stop_words="none")  # noqa: S106
    assert counted(["oak #Elm and #fir"], rules).words == ["elm", "fir"]


def test_what_is_too_long_or_does_not_print_is_no_word() -> None:
    """A text cannot leave as one word, nor a character that a terminal obeys."""
    longest = "x" * 100
    ours = counted([["oak", "x" * 101, "tab\there", longest], ["\x1b[2J", "elm", "oak", "\x9boak"]])
    assert ours.words == ["oak", longest, "[2J", "elm", "\u203aoak"]
    assert ours.counts.toarray().tolist() == [[1, 1, 0, 0, 0], [1, 0, 1, 1, 1]]
    assert counted(["oak " + "y" * 101 + " elm"]).words == ["oak", "elm"]


def test_tokens_are_taken_as_they_are() -> None:
    ours = counted([["The", "oak tree", "the", "42"], [], ["The"]], TextRules(ngrams=(1, 2)))
    assert ours.words == ["The", "oak tree", "the", "42"]
    assert ours.counts.toarray().tolist() == [[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]


def test_documents_without_any_word() -> None:
    ours = counted(["", "  ", "42"])
    assert (ours.words, ours.counts.shape) == ([], (3, 0))


def test_given_words_keep_their_columns() -> None:
    columns = {"yew": 0, "oak": 1, "elm": 2}
    ours = count_words(Corpus.of(["oak fir oak", "", "fir", "elm"]), EVERYTHING, columns)
    assert ours.words == ["yew", "oak", "elm"]
    assert ours.counts.toarray().tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_named_drops_rare_words_by_documents_not_occurrences() -> None:
    words, counts = counted(["oak oak elm fir", "oak elm", "yew oak", ""]).named(2)
    assert words == ["elm", "oak"]
    assert counts.tolist() == [[2, 2, 2], [3, 4, 3]]
    with pytest.raises(DataError, match="No word is in the documents of 2 or more persons"):
        counted(["oak oak oak", "elm"]).named(2)


def test_agree_adds_up_and_orders() -> None:
    north = reply({"oak": (2, 3), "elm": (1, 1), "yew": (4, 4)})
    agreed = agreed_on({"a": north, "b": reply({"oak": (1, 1), "fir": (3, 4)})}, OPEN)
    assert agreed.words == ("fir", "oak", "yew", "elm")  # 4, 4, 4, 1 occurrences
    assert agreed.document_frequency.tolist() == [3, 3, 4, 1]
    assert agreed.occurrences.tolist() == [4, 4, 4, 1]
    assert agreed.frequency.tolist() == [4 / 13, 4 / 13, 4 / 13, 1 / 13]
    assert agreed.index == {"fir": 0, "oak": 1, "yew": 2, "elm": 3}


def test_agree_does_not_depend_on_the_order_of_the_replies() -> None:
    replies = {
        "east": reply({"oak": (1, 2), "elm": (1, 2), "box": (1, 1)}),
        "north": reply({"yew": (1, 2), "oak": (1, 2)}),
        "west": reply({"fir": (1, 3), "ash": (1, 1)}),
    }
    for names in permutations(replies):
        agreed = agreed_on({name: replies[name] for name in names}, OPEN)
        assert agreed.words == ("oak", "fir", "elm", "yew", "ash", "box")


def test_a_clients_first_words_are_kept_whatever_others_name() -> None:
    honest = reply({"oak": (4, 9), "elm": (3, 5), "box": (2, 2)})
    honest["words"].values[[1, 2], 3] = 1  # elm and oak: it has two places
    junk = reply({f"w{number}": (9, 10**9) for number in range(9)})
    agreed = agreed_on({"a": honest, "b": junk}, OPEN.model_copy(update={"max_words": 4}))
    assert agreed.words == ("w0", "w1", "oak", "elm")
    without = agreed_on({"a": honest}, OPEN.model_copy(update={"max_words": 3}))
    assert without.words == ("oak", "elm", "box")


@pytest.mark.parametrize(
    ("replies", "limit", "words"),
    [
        (
            {
                "a": reply({"oak": (1, 1), "elm": (1, 1), "box": (1, 9)}),
                "b": reply({"oak": (1, 1), "elm": (1, 5)}),
            },
            {"min_clients_per_word": 2},
            ("elm", "oak"),
        ),
        (
            {
                "a": reply({"oak": (4, 4), "elm": (2, 2), "yew": (1, 1)}, documents=4),
                "b": reply({"oak": (1, 1), "elm": (2, 2)}, documents=4),
            },
            {"max_document_share": 0.5},
            ("elm", "yew"),  # elm in exactly half, oak in five of eight
        ),
    ],
)
def test_limits_are_of_all_clients_and_documents(
    replies: Any, limit: dict[str, Any], words: tuple[str, ...]
) -> None:
    assert agreed_on(replies, OPEN.model_copy(update=limit)).words == words


def test_fewer_than_two_words_are_no_vocabulary() -> None:
    replies = {
        name: reply({"oak": (1, 1), word: (1, 1)}) for name, word in [("a", "elm"), ("b", "fir")]
    }
    with pytest.raises(StudyError, match="named 3 words, of which the study's limits keep 1"):
        agreed_on(replies, OPEN.model_copy(update={"min_clients_per_word": 2}))


def test_fingerprint_is_of_words_and_their_order() -> None:
    vocabulary = Vocabulary(("oak", "elm"), np.ones(2, np.int64), np.ones(2, np.int64))
    assert vocabulary.fingerprint == hashlib.sha256(b"oak\nelm").hexdigest()
    lists = [["a\nb"], ["a", "b"], ["b", "a"], ["a b"], ["a\\nb"], ["a\\", "b"], ["a\\\nb"]]
    assert len({fingerprint(words) for words in lists}) == len(lists)


def test_columns_are_what_counting_the_agreed_words_gives() -> None:
    index = {"yawl": 0, "oak": 1, "zebra": 2, "and": 3}
    columns = counted(TEXTS).columns(index)
    assert columns.has_sorted_indices
    np.testing.assert_array_equal(
        columns.toarray(), count_words(Corpus.of(TEXTS), EVERYTHING, index).counts.toarray()
    )


def test_the_clients_together_count_what_one_would() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(30)]
    documents = [rng.choice(words, rng.integers(0, 9)).tolist() for _ in range(60)]
    clients = {"a": documents[:5], "b": [*documents[5:6], ["w0"]], "c": documents[6:]}
    all_texts = [text for texts in clients.values() for text in texts]
    agreed = agreed_on({name: named_by(texts) for name, texts in clients.items()}, OPEN)
    alone = agreed_on({"all": named_by(all_texts)}, OPEN)
    assert agreed.words == alone.words
    np.testing.assert_array_equal(agreed.document_frequency, alone.document_frequency)
    np.testing.assert_array_equal(agreed.occurrences, alone.occurrences)
    rows = [counted(texts).columns(agreed.index).toarray() for texts in clients.values()]
    np.testing.assert_array_equal(
        np.concatenate(rows), counted(all_texts).columns(agreed.index).toarray()
    )


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few bytes be large."""
    monkeypatch.setattr("fedtopics.text.vocabulary.LARGE_ARRAY", 16)


@pytest.mark.usefixtures("small")
def test_an_array_grows_across_the_limit() -> None:
    growing = GrowingArray(np.int32)
    parts = [np.arange(2), np.arange(9), np.zeros(0), np.arange(1)]
    for number, part in enumerate(parts, 1):
        growing.append(part)
        array = growing.array()
        assert (array.dtype, [*array]) == (np.int32, [*np.concatenate(parts[:number])])


@pytest.mark.usefixtures("small")
def test_what_is_large_lies_in_a_file_without_a_name() -> None:
    matrix = sparse.random_array((30, 40), density=0.3, rng=np.random.default_rng(0), format="csr")
    aside = set_aside(matrix)
    if (maps := Path("/proc/self/maps")).exists():  # on Linux
        assert maps.read_text(encoding="utf-8").count("(deleted)") >= 2
    assert (aside[[3, 4, 9]] != matrix[[3, 4, 9]]).nnz == 0
    aside.data[0] = 7  # as an array in memory
    assert aside[np.repeat(True, 30)].data[0] == 7


@pytest.mark.parametrize("limit", [16, 1 << 20])
def test_counts_are_the_same_in_a_file(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtopics.text.vocabulary.LARGE_ARRAY", limit)
    counted = count_words(
        Corpus.of([["tea", "milk", "tea"], [], ["sun"] * 9, ["milk", "sun"]] * 3000), TextRules()
    )
    assert counted.words == ["tea", "milk", "sun"]
    assert counted.counts[:4].toarray().tolist() == [[2, 1, 0], [0, 0, 0], [0, 0, 9], [0, 1, 1]]
    assert (counted.counts.shape, counted.counts.sum()) == ((12_000, 3), 14 * 3000)
    assert counted.counts.indices.dtype == np.int32
