"""Make other people's text (words, names, labels, paths) harmless for each kind of output.

Characters that do not print become escapes: terminals execute some, and others reverse text.
"""

import codecs
import csv
import html
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedtopics.errors import StudyError

LONGEST_SENTENCE = 300  # characters of a message from another program
LONGEST_NAME = 60  # characters of a file name that is derived from a title
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode: controls, formats, surrogates, line ends
JOINERS = "\u00ad\u200c\u200d"  # formats that texts need: Persian, emoji, hyphens
MOST_MARKS = 6  # combining marks on one letter; more would cover the lines above and below
# Some locales' spreadsheets split cells at these, and evaluate cells that begin with the second.
FORMULA = re.compile(r"(^|[;,\t])(\s*)(?=[=+\-@＝＋－＠])")  # noqa: RUF001 - Japanese Excel's
MARKDOWN = re.compile(r"[\\`*_\[\]<>|&~${}#]|:(?=//)|^[-+](?![\w.])")


def is_seen(character: str) -> bool:
    """Whether a character prints, joins printing ones, or is not assigned by Unicode yet."""
    if unicodedata.category(character) in UNSEEN:
        return character in JOINERS
    number = ord(character)  # Unicode's permanent noncharacters do not print
    return number & 0xFFFE != 0xFFFE and not 0xFDD0 <= number <= 0xFDEF


def is_flooded(text: str) -> bool:
    """Whether too many combining marks are on one letter, or a mark has no letter.

    Examples
    --------
    >>> is_flooded("é"), is_flooded("e" + 7 * "\u0301"), is_flooded("\u0301e")
    (False, True, True)
    """
    marks = MOST_MARKS
    for character in "" if text.isascii() else text:
        is_mark = unicodedata.category(character) in ("Mn", "Me")
        marks = marks + 1 if is_mark else MOST_MARKS if character.isspace() else 0
        if marks > MOST_MARKS:
            return True
    return False


def visible(text: str) -> str:
    """Return text as one line in which each character prints."""
    return _replaced(text, lambda character: character.encode("unicode_escape").decode())


def as_sentence(text: str) -> str:
    """Return a message from another program as one short line."""
    line = visible(" ".join(text[: 2 * LONGEST_SENTENCE].split()))
    return line if len(line) <= LONGEST_SENTENCE else f"{line[:LONGEST_SENTENCE]} …"


def file_name(title: str) -> str:
    """Return a safe name for a file or folder from a title, without path separators."""
    return re.sub(r"[^\w.-]+", "-", title).strip(".-")[:LONGEST_NAME] or "study"


def for_terminal(text: str) -> str:
    """Return text without control characters except line ends."""
    return "\n".join(map(visible, text.split("\n")))


def for_html(text: str) -> str:
    """Return text escaped for HTML content and quoted attributes."""
    return html.escape(visible(text))


def for_scripts(text: str) -> str:
    """Return text for libraries that write it unescaped into a page's script."""
    return visible(text).replace("<", "\u2039")  # looks alike but does not begin a tag


def for_markdown(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return MARKDOWN.sub(r"\\\g<0>", visible(" ".join(text.split())))


def for_csv(text: str) -> str:
    """Return text for a table cell that a spreadsheet does not evaluate as a formula."""
    return FORMULA.sub(r"\1\2'", visible(text))


def csv_table(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, of which a spreadsheet evaluates no cell."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(
        [for_csv(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return file.getvalue()


def as_json(content: Any, indent: int | None = None, **how: Any) -> str:
    """Return JSON that a terminal can show, with equivalent escapes for what does not print."""
    text = json.dumps(content, indent=indent, ensure_ascii=False, **how)
    return "\n".join(_replaced(line, lambda c: json.dumps(c)[1:-1]) for line in text.split("\n"))


def for_encoding(text: str, encoding: str | None) -> str:
    r"""Return text in which characters that an encoding lacks are JSON escapes.

    Examples
    --------
    >>> print(for_encoding('"Größe 😀"', "ascii"))
    "Gr\u00f6\u00dfe \ud83d\ude00"
    """
    encoding = encoding or "utf-8"
    return text.encode(encoding, "json").decode(encoding)


def _as_escapes(error: UnicodeError) -> tuple[str, int]:
    end = error.end  # type: ignore[attr-defined]
    return json.dumps(error.object[error.start : end])[1:-1], end  # type: ignore[attr-defined]


codecs.register_error("json", _as_escapes)


def as_toml(value: Any) -> str:
    r"""Return a plain value as TOML, which does not allow the surrogate escapes of JSON.

    Examples
    --------
    >>> print(as_toml(["naïve", chr(155) + "2J"]))
    ["naïve", "\U0000009b2J"]
    """
    return _replaced(json.dumps(value, ensure_ascii=False), lambda c: f"\\U{ord(c):08x}")


def _replaced(text: str, write: Callable[[str], str]) -> str:
    return text if text.isprintable() else "".join(c if is_seen(c) else write(c) for c in text)


LONGEST_PLAIN = 56  # characters of a client's name that is made here, before a possible number
CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def check_client_name(name: object) -> None:
    """Refuse a name that cannot name a folder or is too long for a certificate."""
    if not isinstance(name, str) or not CLIENT_NAME.fullmatch(name):
        plain = plain_name(name)
        shown = f", such as {plain}, and name = {as_toml(str(name))} in its table"
        raise StudyError(
            f"{name!r} cannot name a client; use at most 64 letters of English, digits, '_', '-' "
            f"and '.', in a string that begins with a letter or digit{shown if plain else ''}."
        )


def check_different(names: Mapping[str, str]) -> None:
    """Refuse two clients that people would call the same."""
    of_name: dict[str, str] = {}
    for client, name in names.items():
        if (other := of_name.setdefault(name, client)) != client:
            raise StudyError(
                f"The clients {other!r} and {client!r} have the same name, {name!r}; give each its "
                "own."
            )


def plain_name(name: object) -> str:
    """Return the nearest text that can name a client; "" if nothing of a name is left."""
    plain = unicodedata.normalize("NFKD", str(name)).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:LONGEST_PLAIN].strip("-_.")
