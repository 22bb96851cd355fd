"""What is a word of a text: named rules that read in one pass, or a pattern with a time limit."""

from __future__ import annotations

from collections.abc import Callable

from fedtopics.errors import StudyError

LONGEST_WORD = 100  # characters
TIME_LIMIT = 1.0  # seconds, for a pattern without a name in one document
# After a word's first character nothing is tried twice: time grows with a text's length.
PATTERNS = {
    "words": r"(?u)\b[^\W\d_][\w'-]*\w\b",
    "words-and-digits": r"(?u)\b\w[\w'-]*\w\b",
    "whitespace": r"\S+",
}


def is_word(text: str) -> bool:
    """Return whether a text can be a word: printable, and no longer than words are."""
    return len(text) <= LONGEST_WORD and text.isprintable()


def named_pattern(pattern: str) -> str:
    """Return the name of a pattern, if it has one.

    Examples
    --------
    >>> named_pattern(PATTERNS["words"]), named_pattern("[a-z]+")
    ('words', '[a-z]+')
    """
    return next((name for name, usual in PATTERNS.items() if usual == pattern), pattern)


def splitter(pattern: str) -> Callable[[str], list[str]]:
    """Return the function that finds a pattern in a text, by the package regex.

    TimeoutError if that takes longer than the time limit; StudyError for no valid pattern.
    """
    import regex  # here, as few studies have a pattern of their own

    try:
        compiled = regex.compile(pattern)
    except regex.error:
        raise StudyError(f"token_pattern {pattern!r} is no valid pattern.") from None
    if compiled.groups > 1:
        raise StudyError(f"token_pattern {pattern!r} has more than one group; make them (?:...).")
    return lambda text: list(compiled.findall(text, timeout=TIME_LIMIT))
