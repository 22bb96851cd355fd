"""Texts without what is not language: HTML, entities, addresses of the web and of e-mail.

Nothing is tried twice at a place, so time grows with a text's length, whoever wrote it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Literal

Html = bool | Literal["auto"]
Addresses = Literal["drop", "keep"]

# What no text has by chance: an end tag, a tag that has none, or how pages begin.
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


def cleaner(markup: Html, addresses: Addresses) -> Callable[[str], str]:
    """Return the function that takes out of a text what a study does not count as language.

    Examples
    --------
    >>> clean = cleaner("auto", "drop")
    >>> clean("<p>Oak &amp; be<b>ech</b></p>").split()
    ['Oak', '&', 'beech']
    >>> clean("if a < b, see https://example.org/a?b=1 or ask ann@example.org").split()
    ['if', 'a', '<', 'b,', 'see', 'or', 'ask']
    """

    def clean(text: str) -> str:
        if markup and ("<" in text or "&" in text):
            text = plain(text, always=markup is True)
        if addresses == "drop":
            if "://" in text or "www." in text or "WWW." in text:
                text = WEB.sub(" ", text)
            if "@" in text:
                text = MAIL.sub(" ", text)
        return text

    return clean


def plain(text: str, always: bool = False) -> str:
    """Return a text with characters for entities and, if it looks like HTML, without tags.

    Scripts, styles and comments go with what they hold. Mark-up that was escaped once more, as
    feeds have it, is mark-up.
    """
    for _ in range(2):
        if "&" not in text:
            break
        text = ENTITY.sub(lambda found: html.unescape(found[0]), text)
    text = text.replace("\u00ad", "")  # where a word may be cut
    if not always and not MARKED_UP.search(text):
        return text
    text = "".join(_shown(text))
    return TAG.sub(" ", WITHIN_WORDS.sub("", text))


def _shown(text: str) -> Iterator[str]:
    """Yield what is beside scripts, styles and comments; one without an end takes all the rest."""
    at = 0
    while hidden := HIDDEN.search(text, at):
        yield text[at : hidden.start()] + " "
        end = ENDS[(hidden[1] or hidden[2]).lower()].search(text, hidden.end())
        if end is None:
            return
        at = end.end()
    yield text[at:]
