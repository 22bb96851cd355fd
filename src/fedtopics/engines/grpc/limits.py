"""How large a message over a link may be: asked when its size is known, before it is read."""

from __future__ import annotations

from collections.abc import Mapping

SMALL = 64 << 10  # bytes of any message; a reply has so much beside its numbers and words
KEPT = 8  # allowances: a reply may be late for a round in which there were fewer


class Limits:
    """Messages are small, or as large as was allowed; no message has more than `largest` bytes.

    `unannounced` has other bytes by kind, where participants ask each other for such messages;
    without it there is no limit but the largest: who only takes part hears what it asked for.
    """

    def __init__(self, largest: int, unannounced: Mapping[str, int] | None) -> None:
        self._largest = largest
        self._unannounced = unannounced
        self._allowed: tuple[int, ...] = (0,)
        self._granted: dict[str, int] = {}  # by link, for its next reply

    def allow(self, size: int, link: str) -> None:
        """Allow replies of so many bytes: the next one over a link, or all over no link."""
        if link:
            self._granted[link] = size
        else:
            self._allowed = (*self._allowed, size)[-KEPT:]

    def of(self, kind: str, link: str) -> int:
        """Return the most bytes of a message of a kind that comes over a link."""
        if self._unannounced is None:
            return self._largest
        granted = self._granted.get(link, 0)
        most = max(*self._allowed, granted, self._unannounced.get(kind, 0)) + SMALL
        return min(most, self._largest)

    def came(self, kind: str, link: str) -> None:
        """Note that a message has come: what was granted is used up by a reply."""
        if kind == "reply":
            self._granted.pop(link, None)

    def closed(self, link: str) -> None:
        """Forget a link."""
        self._granted.pop(link, None)
