"""What counts as a word: named rules that read in one pass, or a pattern with a time limit."""

import math
import re
import string
import unicodedata
from collections.abc import Callable, Collection
from functools import cache, lru_cache
from typing import Any

from fedtopics import waiting
from fedtopics.errors import StudyError
from fedtopics.escaping import is_flooded, is_seen

# The version of the rules for words; models and results name it.
# 1: typographic apostrophes, soft hyphens, invisible characters and marks split words.
# 2: one spelling (`normal_form`), words with marks, case and elision by language.
# 3: control characters and noncharacters, which split words before.
# 4: English contractions such as it's are stop words.
RULES = 4
LONGEST_WORD = 100  # characters
NOT_IN_WORDS = {"Cf", "Co"}  # further Unicode categories: formats, private use
BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # characters that print nothing
ASCII = re.compile(r"[ -~]+")  # printable ASCII
PROBE = 60 * "a" + " " + string.printable  # a text to try patterns on
LONGEST_PATTERN = 500  # characters
MOST_WRITTEN = 50_000  # characters of a pattern with its repeats written out, of up to 1 kB each
# After a word's first character no position is retried: time is linear in a text's length.
WITHIN = "'\u00b7\u05f4-"  # in addition to letters; the dot is for Catalan, the stroke for Hebrew
BEGINNINGS = {"words": r"\b[^\W\d_]", "words-and-digits": r"\b\w"}
PATTERNS = {name: rf"{first}[\w{WITHIN}]*\w" for name, first in BEGINNINGS.items()}
PATTERNS["whitespace"] = r"\S+"
LISTS = "lists"  # instead of a pattern's name: documents are lists of words

VARIANTS = {
    **dict.fromkeys("\u2018\u2019\u201b\u02bb\u02bc\u2032\u055a\u05f3\uff07", "'"),
    **dict.fromkeys("\x1e\u2010\u2011\u058a\u05be\uff0d", "-"),  # \x1e is Word's
    "\u0149": "'n",
}
# Characters of Windows that were read as Latin-1, such as an apostrophe.
for code in range(0x80, 0xA0):
    character = bytes([code]).decode("cp1252", errors="ignore")
    VARIANTS[chr(code)] = VARIANTS.get(character, character)
# Letters that exist for typesetting: ligatures, digraphs, forms of Arabic, widths.
FORMS = (
    "\u0132\u0133\u013f\u0140\u017f\u01c4-\u01cc\ufb00-\ufdcf\ufdf0-\ufdfb\ufe80-\ufefc"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f\uffa1-\uffdc"
)
# Characters that Unicode ignores by default (soft hyphens, joiners, directions, variation
# selectors), the Arabic tatweel and Armenian signs within words. Joiners are dropped in every
# script, because editors of Persian and Sinhala use them inconsistently. The controls and
# noncharacters are hyphens at the ends of lines in texts from PDF and older programs.
CONTROLS = "".join(map(chr, (*range(9), *range(0xE, 0x1C), 0x1F, 0x7F)))
NO_CONTROLS = str.maketrans("\x1e", "-", CONTROLS)
DROPPED = (
    CONTROLS
    + "".join(f"{chr(n)}{chr(n + 1)}" for n in range(0xFFFE, 0x110000, 0x10000))
    + (
        "\ufdd0-\ufdef"
        "\u00ad\u034f\u055b\u055c\u055e\u061c\u0640\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
        "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
        "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    )
)
ODD = re.compile(f"[{''.join(VARIANTS)}{FORMS}{DROPPED}]")
IS_FORM = re.compile(f"[{FORMS}]").match
TICKS = re.compile(r"[`\u00b4](?<=\w.)(?=\w)")
GERSHAYIM = re.compile('["\u201d](?<=[א-ת].)(?=[א-ת])')
# Letters of Malayalam, and one of Bengali, that older texts write with a joiner.
JOINED = dict(zip("ണനരലളകত", "ൺൻർൽൾൿৎ", strict=True))
WITH_JOINER = re.compile("([ണനരലളക](?=\u0d4d)|ত(?=\u09cd)).\u200d")
UNSPACED = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"  # Khmer, for one, has U+200B for spaces
BREAK = re.compile(f"(?<={UNSPACED})\u200b+(?={UNSPACED})")
FINAL_SIGMA = re.compile(r"\u03c3(?<=\w.)(?!\w)")


def is_word(text: str) -> bool:
    """Whether a text can be a word: printable, `normal_form`, and not too long."""
    if not 0 < len(text) <= LONGEST_WORD or text != " ".join(text.split()):
        return False
    if text.isascii():
        return text.isprintable()
    if not unicodedata.is_normalized("NFC", text) or not BLANK.isdisjoint(text):
        return False
    # The first check is fast, and covers most words.
    return ASCII.sub("", text).isalnum() or (
        not is_flooded(text)
        and all(is_seen(c) and unicodedata.category(c) not in NOT_IN_WORDS for c in text)
    )


def normal_form(text: str) -> str:
    """Return a text in the spelling in which words are counted; case is kept.

    Apostrophes, hyphens and ligatures become plain, invisible characters are dropped, and letters
    with marks are `composed`. Similar letters of other scripts stay different.
    """
    if text.isascii():
        text = text.translate(NO_CONTROLS)
        return TICKS.sub("'", text) if "`" in text else text
    if "\u200d" in text:
        text = WITH_JOINER.sub(lambda match: JOINED[match[1]], text)
    if "\u200b" in text:
        text = BREAK.sub(" ", text)
    text = ODD.sub(_plain, text)
    if "`" in text or "\u00b4" in text:
        text = TICKS.sub("'", text)
    return composed(GERSHAYIM.sub("\u05f4", text))


def _plain(match: re.Match[str]) -> str:
    character = match[0]
    return (
        unicodedata.normalize("NFKC", character).replace("\u0640", "")
        if IS_FORM(character)
        else VARIANTS.get(character, "")
    )


def composed(text: str) -> str:
    """Return a text with accented letters as one character each, if possible (NFC)."""
    if text.isascii():
        return text
    # More than 30 marks on a letter (Unicode's stream-safe limit) would take quadratic time.
    if len(text) > LONGEST_WORD:
        text = _piles().sub(r"\1", text)
    return unicodedata.normalize("NFC", text)


def lower(text: str, language: str = "") -> str:
    """Return a `normal_form` text in lower case, which is also `normal_form`.

    I is \u0131 in Turkish, and \u0130 is i in all languages. A Greek word ends in \u03c2 and has
    \u03c3 elsewhere. German \u00df stays different from ss.
    """
    if language == "turkish":
        text = text.replace("I", "\u0131")
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFC", text.replace("\u0130", "i").lower())
    if "\u03c3" in text or "\u03c2" in text:
        text = FINAL_SIGMA.sub("\u03c2", text.replace("\u03c2", "\u03c3"))
    return text


@cache
def _piles() -> Any:
    import regex  # late, as in `compile_pattern`

    return regex.compile(r"(\p{M}{30})\p{M}+")


def has_name(word: str, names: Collection[str]) -> bool:
    """Whether a word, a part of it at hyphens or apostrophes, or a word of an n-gram is a name."""
    parts = re.findall(r"\w+|\W", folded(word))
    return any(
        "".join(parts[first:end]) in names
        for first in range(len(parts))
        for end in range(first + 1, len(parts) + 1)
    )


def folded(word: str) -> str:
    """Return a word without case, in which all scripts' ways of writing i are one."""
    return word.casefold().replace("\u0131", "i")


def check_pattern(pattern: str) -> None:
    """Refuse a user's pattern that would take much memory to compile, without compiling it.

    The package regex writes out repeats: ``x{3,}`` becomes xxxx*, and ``(?:x)+`` becomes xx*. The
    product of all repeats of groups bounds how often anything is written, however they are nested.
    """
    # The flag x would hide repeats among spaces.
    if len(pattern) > LONGEST_PATTERN or re.search(r"\(\?[\w-]*x", pattern):
        raise StudyError(
            f"token_pattern may have at most {LONGEST_PATTERN} characters, and no flag x; shorten "
            "it."
        )
    plain = re.sub(r"\\[pP]\{\^?[A-Za-z_ =:]+\}", "x", pattern)  # \p{L} is one character
    of_groups = re.findall(r"(?<=[)}>+*?])(?:\+|\{([0-9]*))", plain)
    of_characters = re.findall(r"(?<![)}>+*?])\{([0-9]+)", plain)
    copies = math.prod(int(least or 1) + 1 for least in of_groups)
    if copies * (len(plain) + sum(map(int, of_characters))) > MOST_WRITTEN:
        raise StudyError("token_pattern repeats too much too often; simplify it.")


@lru_cache
def compile_pattern(pattern: str) -> Any:
    """Compile a user's pattern; refuse invalid, slow, large or capturing ones."""
    import regex  # late, because few studies need it

    check_pattern(pattern)

    try:
        compiled = regex.compile(pattern)
        compiled.findall(PROBE, timeout=waiting.PATTERN)
    except TimeoutError:
        raise StudyError("token_pattern takes too long for a short text; simplify it.") from None
    except (regex.error, RecursionError, OverflowError, MemoryError):
        raise StudyError("token_pattern is not a valid regular expression.") from None
    if compiled.groups:
        raise StudyError("token_pattern has a capturing group; write (?:...) instead of (...).")
    return compiled


def splitter(pattern: str) -> Callable[[str], list[str]]:
    """Return what finds the words of a pattern, or of its name, in a text of `normal_form`."""
    if pattern == LISTS:
        raise StudyError('token_pattern = "lists" cannot split texts; give lists of words.')
    if pattern not in PATTERNS:
        compiled = compile_pattern(pattern)
        return lambda text: list(compiled.findall(text, timeout=waiting.PATTERN))
    plain = re.compile(PATTERNS[pattern]).findall
    if pattern not in BEGINNINGS:
        return plain
    return lambda text: plain(text) if text.isascii() else _with_marks(pattern)(text)


@cache
def _with_marks(pattern: str) -> Callable[[str], list[str]]:
    """Return a splitter for all scripts, in which marks are parts of words."""
    marks = [c for c in map(chr, range(0x300, 0x1F000)) if unicodedata.category(c)[0] == "M"]
    every = "".join(marks)
    blocks = (("\u0300", "\u0750"), ("\u1ab0", "\u1b00"), ("\u1dc0", "\u2100"))
    accents = "".join(c for c in marks if any(a <= c < b for a, b in blocks))
    # Searching for single marks outside the basic plane is slow, so any character there counts.
    may_have = re.compile(f"[{''.join(c for c in marks if c < chr(0x10000))}\U00010000-\U0001efff]")
    plain = re.compile(PATTERNS[pattern]).findall
    marked = re.compile(
        rf"{BEGINNINGS[pattern]}[\w{WITHIN}]*+(?:(?![ -~])[{every}][\w{every}{WITHIN}]*+)?+"
    ).findall

    def words(text: str) -> list[str]:
        if not may_have.search(text):
            return plain(text)
        candidates = (word.rstrip(WITHIN) for word in marked(text))
        return [word for word in candidates if len(word.rstrip(accents)) > 1]

    return words
