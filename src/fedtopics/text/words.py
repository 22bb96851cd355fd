"""What is a word of a text: named rules that read in one pass, or a pattern with a time limit."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from fedtopics.errors import StudyError
from fedtopics.harmless import is_flooded, is_seen

LONGEST_WORD = 100  # characters
NOT_IN_WORDS = {"Cf", "Co"}  # Unicode categories, besides what does not print: formats, private use
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # characters that print nothing
ASCII = re.compile(r"[ -~]+")  # of it, what prints
TIME_LIMIT = 1.0  # seconds, for a pattern without a name in one document
PROBE = 60 * "a" + " " + string.printable  # a text that patterns are tried on
# After a word's first character nothing is tried twice: time grows with a text's length.
PATTERNS = {
    "words": r"(?u)\b[^\W\d_][\w'-]*\w\b",
    "words-and-digits": r"(?u)\b\w[\w'-]*\w\b",
    "whitespace": r"\S+",
}
LISTS = "lists"  # where a pattern's name would be: words were found before


def is_word(text: str) -> bool:
    """Return whether a text can be a word: printable, as `normal` writes it, not longer than words.

    Participants whose Pythons know different versions of Unicode agree on it: what is no character
    yet may be one.
    """
    if not 0 < len(text) <= LONGEST_WORD or text != " ".join(text.split()):
        return False
    if text.isascii():
        return text.isprintable()
    if not unicodedata.is_normalized("NFC", text) or not BLANK.isdisjoint(text):
        return False
    if ASCII.sub("", text).isalnum():  # most words of other languages, in a tenth of the time
        return True
    kinds = unicodedata.category
    return not is_flooded(text) and all(is_seen(c) and kinds(c) not in NOT_IN_WORDS for c in text)


def normal(text: str) -> str:
    """Return a text whose letters with marks are one character each where there is one (NFC).

    What looks alike and means the same is the same word then. Letters of other scripts and widths
    that look alike stay different. Of more than 30 marks on a letter, which no language has
    (Unicode's stream-safe format), the rest is left out: sorting them takes the square of the time.
    """
    if text.isascii():
        return text
    if len(text) > LONGEST_WORD:
        text = _piles().sub(r"\1", text)
    return unicodedata.normalize("NFC", text)


@cache
def _piles() -> Any:
    import regex  # here, as in `compile_pattern`

    return regex.compile(r"(\p{M}{30})\p{M}+")


@lru_cache
def compile_pattern(pattern: str) -> Any:
    """Return a pattern, compiled by the package regex.

    StudyError if it does not compile, has a group that captures, or takes too long for a short
    text, as a pattern does that tries exponentially many ways to match it.
    """
    import regex  # here, as few studies have a pattern of their own

    try:
        compiled = regex.compile(pattern)
        compiled.findall(PROBE, timeout=TIME_LIMIT)
    except TimeoutError:
        raise StudyError("token_pattern takes too long for a short text; simplify it.") from None
    except (regex.error, RecursionError, OverflowError, MemoryError):
        raise StudyError("token_pattern is not a valid regular expression.") from None
    if compiled.groups:
        raise StudyError("token_pattern has a group that captures; write (?:...) instead of (...).")
    return compiled


def splitter(pattern: str) -> Callable[[str], list[str]]:
    """Return the function that finds a pattern in a text.

    TimeoutError if that takes longer than the time limit; StudyError as of `compile_pattern`.
    """
    if pattern == LISTS:
        raise StudyError('With token_pattern = "lists", words are given and no text is split.')
    compiled = compile_pattern(pattern)
    return lambda text: list(compiled.findall(text, timeout=TIME_LIMIT))


def splitter_of_marks(pattern: str) -> Callable[[str], list[str]]:
    """Return the function that finds a named pattern in texts of any script.

    Marks are parts of words, as of Hindi or of Arabic with its vowels. Most texts have none once
    they are `normal`, and are read by the faster of two ways.
    """
    import regex

    marks, slow = regex.compile(r"\p{M}").search, splitter(PATTERNS[pattern])
    fast = re.compile(PATTERNS[pattern]).findall
    return lambda text: fast(text) if text.isascii() or not marks(text) else slow(text)
