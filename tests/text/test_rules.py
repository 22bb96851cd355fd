"""How texts of several languages become words."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from fedtopics.text.corpus import Corpus
from fedtopics.text.languages import stop_words
from fedtopics.text.rules import TextRules, cleaner, strip_html
from fedtopics.text.vocabulary import count_words
from tests.helpers.texts_of_the_world import ALL, CHINESE, GERMAN, JAPANESE, SPANISH

DETECT = TextRules(languages="detect", lemmas=True)
NO_WORDS = {
    "div",
    "class",
    "post",
    "script",
    "var",
    "html",
    "body",
    "nbsp",
    "amp",
    "www",
    "https",
    "org",
    "example",
    "quejas",
    "info",
    "href",
}


def words(text: str, **rules: Any) -> list[str]:
    return TextRules(**rules).analyser()(text)


def test_the_words_of_each_language() -> None:
    analyse = DETECT.analyser()
    assert analyse(GERMAN[0]) == ["baum", "wald", "gefällt", "förster", "neu", "baum", "pflanzen"]
    assert analyse(SPANISH[0])[:3] == ["árbol", "bosque", "crecer"]
    assert {"公园", "樱花"} <= {*analyse(CHINESE[0]), *analyse(CHINESE[1])}
    assert analyse(JAPANESE[2]) == ["電車", "遅れ", "時刻表"]
    assert analyse("ต้นไม้ในสวนสาธารณะของเมือง") == ["ต้นไม้", "สวน", "สาธารณะ", "เมือง"]


@pytest.mark.parametrize("language", ALL)
def test_no_stop_words_tags_addresses_and_endings(language: str) -> None:
    vocabulary = {word for text in ALL[language] for word in DETECT.analyser()(text)}
    assert len(vocabulary) >= 6
    assert not vocabulary & (stop_words(language) | NO_WORDS)
    assert not [word for word in vocabulary if re.search(r"[<>&;@/]", word)]
    forms = {"bäume", "züge", "alten", "árboles", "trenes", "robles", "trees", "oaks", "trains"}
    assert not vocabulary & forms


def test_a_document_is_of_one_of_the_languages_that_are_named() -> None:
    both = "die Hard and the war"  # "die" and "war" are stop words of German
    english = words("They die in the war, and people lost their homes.", languages=["de", "en"])
    assert english[:2] == ["die", "war"]
    german = words("Die Leute waren dort, und der Krieg war verloren.", languages=["de", "en"])
    assert german == ["leute", "krieg", "verloren"]
    assert words(both, languages="de", stop_words="none") == ["die", "hard", "and", "the", "war"]


def test_marks_are_parts_of_words_of_languages() -> None:
    assert words("हिन्दी में पाठ", languages="hi", stop_words="none") == ["हिन्दी", "में", "पाठ"]


def test_numbers_count_if_asked() -> None:
    text = "Order 66 of 2024 by R2D2 costs 3.5mm"
    assert words(text) == ["order", "r2d2", "costs"]
    rules = {"token_pattern": "words-and-digits"}
    assert words(text, **rules) == ["order", "66", "2024", "r2d2", "costs", "5mm"]


def test_a_document_has_the_same_words_whatever_is_beside_it() -> None:
    texts = [text for documents in ALL.values() for text in documents]
    alone = [DETECT.analyser()(text) for text in texts]
    together = count_words(Corpus.of([*texts, "", "<p></p>", "42"]), DETECT)
    assert together.counts.sum(axis=1).tolist() == [*map(len, alone), 0, 0, 0]


def test_other_rules_with_languages() -> None:
    rules: dict[str, Any] = {"languages": "de", "lemmas": True, "own_stop_words": ["wald"]}
    assert words("Die Bäume im Wald brennen", **rules, ngrams=(2, 2)) == ["baum brennen"]
    lists = TextRules(languages="de", token_pattern="lists").analyser(str.split)  # noqa: S106
    assert lists("<p>Der Wald und der See</p>") == ["wald", "see"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"languages": "klingon"}, "the language 'klingon' is unknown"),
        ({"languages": ["detect", "de"]}, '"detect" includes all languages'),
        ({"lemmas": True}, "lemmas = true needs languages"),
        ({"stop_words": "languages"}, 'stop_words = "languages" needs languages'),
        ({"html": "sometimes"}, "html"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(says)):
        TextRules(**settings)


def test_languages_have_stop_words_unless_others_are_named() -> None:
    assert TextRules(languages="de").stop_words == "languages"
    assert TextRules(languages=["german", "es"]).languages == ("german", "spanish")
    assert TextRules(languages="de", stop_words="en").stop_words == "english"
    assert TextRules(**TextRules(languages="de").model_dump()) == TextRules(languages="de")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("no mark-up: 3 < 4 and a<b, R&D; AT&T;", "no mark-up: 3 < 4 and a<b, R&D; AT&T;"),
        ("<p>Oak</p><p>elm</p>", "Oak elm"),
        ("un<b>believ</b>able<br/>oak", "unbelievable oak"),
        ("a<td>oak</td><td title='x'>elm</td>", "a oak elm"),
        ("B&auml;ume &amp;amp; B&#252;sche &#x41; &unknown;", "Bäume & Büsche A &unknown;"),
        ("be&shy;ech&nbsp;tree", "beech tree"),
        ("oak<!-- <b>no</b> -->elm</p>", "oak elm"),
        ("oak<SCRIPT type=x>var no = '<b>';</script >elm<style>p {}</style>", "oak elm"),
        ("oak<script>never closed <p>no</p>", "oak"),
        ("&lt;p&gt;oak&lt;/p&gt;", "oak"),
        ("<!doctype html><oak>", ""),
        ("<oak> is no tag by itself", "<oak> is no tag by itself"),
        ("", ""),
    ],
)
def test_html_of_texts_that_look_like_it(text: str, left: str) -> None:
    assert " ".join(strip_html(text).split()) == left


def test_html_always_or_never() -> None:
    assert cleaner(True, "keep")("<oak> elm").split() == ["elm"]
    assert cleaner(False, "keep")("<p>oak &amp; elm</p>") == "<p>oak &amp; elm</p>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see https://example.org/a-b?c=d#e, and", "see and"),
        ("WWW.EXAMPLE.ORG/x oak", "oak"),
        ("请看www.example.org/公园", "请看 公园"),
        ("(ftp://example.org/oak.txt)", "("),
        ("write to ann.b+c@mail.example.org.", "write to ."),
        ("oak @ home, @ann and 1@2", "oak @ home, @ann and 1@2"),
        ("http and www alone", "http and www alone"),
    ],
)
def test_addresses(text: str, left: str) -> None:
    assert " ".join(cleaner("auto", "drop")(text).split()) == left
    assert cleaner("auto", "keep")(text) == text


@pytest.mark.parametrize(
    "piece", ["<", "<p", "<script>", "<!--", "&", "a@", "www.", "http://", "@"]
)
def test_long_texts_that_repeat_a_beginning_are_read(piece: str) -> None:
    text = piece * 50_000
    assert len(cleaner(True, "drop")(text)) <= len(text) + 1
