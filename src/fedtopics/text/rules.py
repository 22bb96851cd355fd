"""How a text becomes words: the table [text] of a study."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from stop_words import AVAILABLE_LANGUAGES, LANGUAGE_MAPPING

from fedtopics.text.cleaning import Addresses, Html, cleaner
from fedtopics.text.languages import DETECT, WordsOfLanguages, language_name, stop_words
from fedtopics.text.words import PATTERNS, named_pattern, normal, splitter, splitter_of_marks

BEFORE: dict[str, Any] = {"html": False, "addresses": "keep"}
"""What models mean that were saved before there was a choice."""
OF_LANGUAGES = "languages"


class TextRules(BaseModel):
    """How a text becomes words; a corpus that is tokenised already is taken as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lowercase: bool = Field(True, description="make texts lower case")
    html: Html = Field(
        "auto",
        description='whether tags, scripts and comments are left out: "auto" of texts that look '
        "like HTML, true, or false; unless false, entities such as &amp; are the characters they "
        "stand for",
    )
    addresses: Addresses = Field(
        "drop", description='addresses of the web and of e-mail: "drop", or "keep" as words'
    )
    token_pattern: str = Field(
        "words",
        description='what is a word: "words" begin with a letter, "words-and-digits" need not, so '
        'that numbers count, "whitespace" splits there alone, "lists" takes lists of words and no '
        "texts; or a regular expression, which between machines a client's policy has to name",
    )
    languages: tuple[str, ...] = Field(
        (),
        description='languages of the documents, such as "de" or ["de", "en"], of which each '
        'document has its likeliest, or "detect": whose stop words and base forms they are, and '
        "where words are found without spaces (needs fedtopics[languages] at each client)",
    )
    stop_words: str = Field(
        "english",
        description='language whose stop words are left out, such as "de", or "none"; '
        '"languages", those of the documents, is the default where languages are named',
    )
    own_stop_words: tuple[str, ...] = Field((), description="further words to leave out")
    lemmas: bool = Field(
        False,
        description="count words by their base forms in the languages named, so that funds and "
        "funded are fund",
    )
    ngrams: tuple[int, int] = Field((1, 1), description="shortest and longest n-gram")
    repeats: Literal["keep", "cap"] = Field(
        "keep",
        description='"cap" counts eight agreed words in a row in two of a client\'s documents, and '
        "leaves their later copies out of training: signatures, what a site puts on every page",
    )

    @model_validator(mode="before")
    @classmethod
    def _stop_words_of_languages(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("languages") and "stop_words" not in given:
            return given | {"stop_words": OF_LANGUAGES}
        return given

    @field_validator("token_pattern")
    @classmethod
    def _by_name(cls, value: str) -> str:
        return named_pattern(value)

    @field_validator("languages", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("languages")
    @classmethod
    def _known_languages(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if DETECT in value:
            if len(value) > 1:
                raise ValueError('"detect" stands alone: it chooses among all languages')
            return value
        return tuple(dict.fromkeys(map(language_name, value)))

    @field_validator("stop_words")
    @classmethod
    def _known_stop_words(cls, value: str) -> str:
        name: str = LANGUAGE_MAPPING.get(value, value)
        if name not in ("none", OF_LANGUAGES, *AVAILABLE_LANGUAGES):
            languages = ", ".join(sorted(AVAILABLE_LANGUAGES))
            raise ValueError(
                f"there are no stop words for {value!r}; known: {languages}, by name or by code as "
                'in "de", "none", or "languages"'
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

    @cached_property
    def left_out(self) -> frozenset[str]:
        """The stop words of all documents; with languages, each may have others besides."""
        further = frozenset(map(normal, self.own_stop_words))
        if self.stop_words in ("none", OF_LANGUAGES):
            return further
        return further | stop_words(self.stop_words)

    def analyser(
        self, tokeniser: Callable[[str], list[str]] | None = None
    ) -> Callable[[str], list[str]]:
        """Return the function that turns a text into its words (scikit-learn's analyser).

        A tokeniser splits texts instead of the pattern; what it finds may be a stop word or part of
        an n-gram as well. With a pattern that has no name the function raises TimeoutError where
        matching takes too long; StudyError if it is "lists", and FedTopicsError where a package
        that the languages need is missing.
        """
        # Here, since a server splits no text and scikit-learn takes it 100 MB and a second.
        from sklearn.feature_extraction.text import CountVectorizer

        clean = cleaner(self.html, self.addresses)
        named = PATTERNS.get(self.token_pattern)
        pattern = None if tokeniser or self.languages else named
        split = tokeniser
        if split is None and pattern is None:
            split = (splitter if named is None else splitter_of_marks)(self.token_pattern)
        left_out = self.left_out
        lower = self.lowercase
        if self.languages and split is not None:
            lower = lower and (tokeniser is not None or not self.lemmas)
            stops, late = self.stop_words == OF_LANGUAGES, self.lowercase and not lower
            found = self.languages, stops, left_out, self.lemmas, late
            split, left_out = WordsOfLanguages(split, *found), frozenset()
        # Lower case comes first, as it can leave a letter and its mark apart.
        analyser: Callable[[str], list[str]] = CountVectorizer(
            preprocessor=lambda text: normal(clean(text).lower() if lower else clean(text)),
            token_pattern=pattern,
            tokenizer=split,
            stop_words=sorted(left_out) or None,
            ngram_range=self.ngrams,
        ).build_analyzer()
        return analyser
