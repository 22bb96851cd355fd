"""Rules that turn a text into words, in linear time: the table [text] of a study."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator
from stop_words import AVAILABLE_LANGUAGES, LANGUAGE_MAPPING

from fedtopics.text.languages import (
    DETECT,
    ELIDED,
    NAMES,
    OF_LANGUAGES,
    check_installed,
    cutting,
    find_likely,
    is_unspaced,
    language_name,
    lemma_of,
    lower_of,
    stop_words,
)
from fedtopics.text.words import (
    LISTS,
    LONGEST_WORD,
    PATTERNS,
    RULES,
    check_pattern,
    folded,
    lower,
    normal_form,
    splitter,
)

Html = bool | Literal["auto"]
Addresses = Literal["drop", "keep"]
T = TypeVar("T")
Several = Annotated[
    tuple[T, ...],
    Field(strict=False),  # TOML has lists
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
"""A list of a study or policy that may be a single text."""

# Mark-up that no text contains by chance: an end tag, a tag without one, or a page's beginning.
MARKED_UP = re.compile(r"</[a-z][\w-]*\s*>|<(?:br|hr|p|div|img|!--|!doctype)\b[^<>]*>|<!--", re.I)
ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|[a-z]\w{1,31});", re.I)
HIDDEN = re.compile(r"<(?:(!--)|(script|style)\b[^<>]*>)", re.I)
ENDS = {
    name: re.compile(rf"</{name}\s*>" if name != "!--" else "-->", re.I)
    for name in ("!--", "script", "style")
}
WITHIN_WORDS = re.compile(r"</?(?:b|i|u|em|strong|sub|sup|mark|small|wbr)(?:\s[^<>]*)?/?>", re.I)
TAG = re.compile(r"</?[a-z!?][^<>]*>", re.I)
WEB = re.compile(r"(?<![a-z0-9])(?:https?://|ftp://|www\.)[!#-;=?-~\u00c0-\u024f]+", re.I)
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")


class TextRules(BaseModel, extra="forbid", frozen=True):
    """Rules that turn a text into words; tokenised documents stay unchanged."""

    version: int = Field(
        RULES, ge=1, description="version of the rules for words; other versions are refused"
    )
    lowercase: bool = Field(True, description="make texts lower case")
    html: Html = Field(
        "auto",
        description='whether to remove tags, scripts and comments: "auto" (from texts that look '
        "like HTML), true or false; unless false, entities such as &amp; become characters",
    )
    addresses: Addresses = Field(
        "drop", description='web and e-mail addresses: "drop" them, or "keep" them as words'
    )
    token_pattern: str = Field(
        "words",
        description='what is a word: "words" begin with a letter, "words-and-digits" also with a '
        'digit, "whitespace" splits only at spaces, "lists" takes lists of words instead of texts; '
        "or a regular expression, which each client's policy must list",
    )
    languages: Several[str] = Field(
        (),
        description='languages of the documents, such as "de" or ["de", "en"] (the likeliest is '
        'chosen per document), or "detect"; used for stop words, base forms, and scripts without '
        "spaces between words (needs fedtopics[languages] at each client)",
    )
    stop_words: str = Field(
        "english",
        description='language whose stop words are removed, such as "de", or "none"; "languages" '
        "(the default if languages are set) uses the languages of the documents",
    )
    own_stop_words: tuple[str, ...] = Field((), description="further words to leave out")
    lemmas: bool = Field(
        False,
        description="count words by their base forms in the named languages, so that funds and "
        "funded become fund",
    )
    ngrams: tuple[int, int] = Field((1, 1), description="shortest and longest n-gram")

    @model_validator(mode="before")
    @classmethod
    def _stop_words_of_languages(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("languages") and "stop_words" not in data:
            return data | {"stop_words": OF_LANGUAGES}
        return data

    @field_validator("token_pattern")
    @classmethod
    def _usable_pattern(cls, value: str) -> str:
        if value not in (*PATTERNS, LISTS):
            check_pattern(value)  # compiled when texts are split, if a policy allows it
        return value

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if DETECT in value:
            if len(value) > 1:
                raise ValueError('"detect" includes all languages; name no others')
            return value
        return tuple(dict.fromkeys(map(language_name, value)))

    @field_validator("stop_words")
    @classmethod
    def _known_stop_words(cls, value: str) -> str:
        name: str = LANGUAGE_MAPPING.get(value, value)
        if name not in ("none", OF_LANGUAGES, *AVAILABLE_LANGUAGES):
            raise ValueError(
                f"there are no stop words for {value!r}; choose from: "
                f"{', '.join(sorted(AVAILABLE_LANGUAGES))}, by name or by code such as "
                '"de", "none", or "languages"'
            )
        return name

    @field_validator("ngrams")
    @classmethod
    def _growing(cls, value: tuple[int, int]) -> tuple[int, int]:
        if not 1 <= value[0] <= value[1]:
            raise ValueError("ngrams must be two numbers, 1 <= shortest <= longest")
        return value

    @model_validator(mode="after")
    def _names_languages(self) -> TextRules:
        if not self.languages and (self.lemmas or self.stop_words == OF_LANGUAGES):
            key = "lemmas = true" if self.lemmas else 'stop_words = "languages"'
            raise ValueError(f'{key} needs languages, such as languages = ["en"] or "detect"')
        return self

    def analyser(
        self, tokeniser: Callable[[str], list[str]] | None = None
    ) -> Callable[[str], list[str]]:
        """Return the function from a text to its words; a tokeniser replaces the pattern."""
        if self.version != RULES:
            warnings.warn(
                f"The model was trained with version {self.version} of the rules for words, but "
                f"this fedtopics has version {RULES}, which may not find words with apostrophes, "
                "hyphens, accents or invisible characters; train it again to be sure.",
                stacklevel=2,
            )
        clean = cleaner(self.html, self.addresses)
        words = WordsOfLanguages(self, tokeniser)
        return lambda text: words(clean(text))

    def forms_of_words(self) -> Callable[[Iterable[str]], tuple[list[str], frozenset[str]]]:
        """Return a function from people's words to their forms in texts, and any stop words."""
        if self.token_pattern == LISTS:
            return lambda words: (list(dict.fromkeys(map(normal_form, words))), frozenset())
        # A server lacks the packages for base forms and unspaced scripts.
        needs_packages = DETECT in self.languages or is_unspaced(self.languages)
        changes: dict[str, Any] = {
            "lemmas": False,
            "languages": () if needs_packages else self.languages[:1],
        }
        if needs_packages and self.stop_words == OF_LANGUAGES:
            changes["stop_words"] = "none"
        return WordsOfLanguages(self.model_copy(update=changes)).forms_of

    def forms_of_names(self, names: Iterable[str]) -> frozenset[str]:
        """Return the words of names as texts may have them, for `has_name`."""
        plain = {"stop_words": "none", "own_stop_words": (), "ngrams": (1, 1)}
        split = (
            str.split if self.token_pattern == LISTS else self.model_copy(update=plain).analyser()
        )
        return frozenset(
            folded(word) for name in names for word in (*normal_form(name).split(), *split(name))
        )


@dataclass
class WordsOfLanguages:
    """Finds the words of clean texts, without stop words, as base forms if requested."""

    rules: TextRules
    tokeniser: Callable[[str], list[str]] | None = None  # a user's function

    def __post_init__(self) -> None:
        rules = self.rules
        self.is_own = self.tokeniser is not None
        split = self.tokeniser or splitter(rules.token_pattern)
        check_installed(rules.languages, rules.lemmas)
        self.split = cutting(split) if is_unspaced(rules.languages) else split
        self.languages = rules.languages or (rules.stop_words,)
        self._is_one_language = len(self.languages) == 1 and DETECT not in self.languages
        # Base forms depend on a word's case, so they come before lower case.
        self._lower_first = rules.lowercase and (self.is_own or not rules.lemmas)
        self._left_out = cache(self._find_left_out)

    def __call__(self, text: str) -> list[str]:
        likely = (
            self.languages
            if self._is_one_language
            else tuple(find_likely(lower(text) if self._lower_first else text, self.languages))
        )
        words = self._find_words(text, likely[0])
        left_out = self._left_out(likely)
        if self.rules.lemmas:
            words = self._base_forms(words, likely[0], left_out)
        words = [word for word in words if word not in left_out]
        least, most = self.rules.ngrams
        if most == 1:
            return words
        grams = (
            " ".join(words[start : start + n])
            for n in range(least, most + 1)
            for start in range(len(words) - n + 1)
        )
        return [gram for gram in grams if gram not in left_out]

    def _find_words(self, text: str, language: str) -> list[str]:
        words = self.split(lower(text, language) if self._lower_first else text)
        if language not in ELIDED or self.is_own or "'" not in text:
            return words
        return [
            part
            for word, prefix in ((word, ELIDED[language](word)) for word in words)
            for part in (self.split(word[prefix.end() :]) if prefix else [word])
        ]

    def _base_forms(self, words: list[str], language: str, left_out: frozenset[str]) -> list[str]:
        case = lower_of(language) if self.rules.lowercase and not self._lower_first else str
        # Longer words are in no study's vocabulary, and would fill the cache.
        usable = (word for word in words if len(word) <= LONGEST_WORD)
        return [
            case(lemma_of(word, NAMES[language])) for word in usable if case(word) not in left_out
        ]

    def _find_left_out(self, likely: tuple[str, ...]) -> frozenset[str]:
        """Return stop words as they appear in texts of these languages."""
        forms = {*self._in_texts(self.rules.own_stop_words, likely[0])}
        for language in (
            likely if self.rules.stop_words == OF_LANGUAGES else (self.rules.stop_words,)
        ):
            for word in stop_words(language):
                written, words = self._read(word, language)
                forms |= {written, " ".join(words)}
        return frozenset(forms)

    def _in_texts(self, terms: Iterable[str], language: str) -> Iterator[str]:
        """Yield people's words in the form they have in texts, split if longer than an n-gram."""
        for word in terms:
            written, words = self._read(word, language)
            yield from words if len(words) > self.rules.ngrams[1] else [" ".join(words) or written]

    def _read(self, word: str, language: str) -> tuple[str, list[str]]:
        written = lower(normal_form(word), language) if self.rules.lowercase else normal_form(word)
        return written, [written] if self.is_own else self._find_words(written, language)

    def forms_of(self, words: Iterable[str]) -> tuple[list[str], frozenset[str]]:
        """Return people's words in the form they have in texts, once each, and any stop words."""
        forms = [*dict.fromkeys(self._in_texts(words, self.languages[0]))]
        return forms, self._left_out(self.languages).intersection(forms)


def cleaner(markup: Html, addresses: Addresses) -> Callable[[str], str]:
    """Return the function that makes a text `normal_form` and removes mark-up and addresses."""

    def clean(text: str) -> str:
        is_marked_up = markup and ("<" in text or "&" in text)
        text = strip_html(text, always=markup is True) if is_marked_up else normal_form(text)
        if addresses == "drop":
            if "://" in text or "www." in text or "WWW." in text:
                text = WEB.sub(" ", text)
            if "@" in text:
                text = MAIL.sub(" ", text)
        return text

    return clean


def strip_html(text: str, always: bool = False) -> str:
    """Return a text with entities decoded and, if it looks like HTML, without tags and scripts."""
    for _ in range(2):  # feeds escape mark-up twice
        text = ENTITY.sub(lambda match: html.unescape(match[0]), text)
    text = normal_form(text)  # entities may be soft hyphens
    is_html = always or MARKED_UP.search(text)
    return TAG.sub(" ", WITHIN_WORDS.sub("", "".join(_shown(text)))) if is_html else text


def _shown(text: str) -> Iterator[str]:
    """Yield text outside scripts, styles and comments; an unclosed one hides the rest."""
    at = 0
    while hidden := HIDDEN.search(text, at):
        yield text[at : hidden.start()] + " "
        end = ENDS[(hidden[1] or hidden[2]).lower()].search(text, hidden.end())
        if end is None:
            return
        at = end.end()
    yield text[at:]
