"""How far those are who get a log's entries from here, and what goes to them next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fedtopics.engines.log import Log
from fedtopics.engines.log_messages import Append, Beat, Begin, Fetch, Message, Position, State

NEVER = sys.maxsize  # an index that no log reaches


@dataclass(frozen=True)
class Settings:
    """Times in seconds of the owner's clock, of which only differences matter; and a window.

    `patience` has to be well above `beat`. Tell a replica the time (`Replica.tick`) at least each
    half `beat`.
    """

    beat: float = 1.0  # between the signs of life of who adds
    patience: float = 5.0  # without a sign, after which who adds is given up
    grace: float = 1.0  # the same after its connection broke
    stagger: float = 1.0  # by which the next but one in the order waits longer than the next
    window: int = 16  # entries that one follower may be sent before it says that it has them
    window_bytes: int = 8 << 20  # the same in bytes; an entry that is larger goes alone


class Feed:
    """One who gets entries: sent, had (not counted), acknowledged (counted for a majority)."""

    __slots__ = ("acked", "done", "nonce", "sent", "start", "told")

    def __init__(self, sent: int, start: int, nonce: int, told: int) -> None:
        self.sent = self.done = sent
        self.start = start  # an acknowledgement below it says nothing about this view
        self.nonce = nonce  # of one that lost its memory
        self.acked = 0
        self.told = told  # how far the log is committed

    def ack(self, index: int) -> None:
        """Note that it has all entries up to an index."""
        if self.done < index <= self.sent:
            self.done = index
        if self.start <= index <= self.sent:
            self.acked = max(self.acked, index)


def common(log: Log, committed: int, digests: tuple[bytes, ...]) -> int | None:
    """Return the last index up to which a log agrees with a position; None if none is known."""
    last = min(committed + len(digests) - 1, log.last)
    for index in range(last, max(committed, log.base) - 1, -1):
        if log.digest(index) == digests[index - committed]:
            return index
    return None


class Feeds(dict[str, Feed]):
    """Those who get entries from here, by name."""

    def __init__(self, log: Log, settings: Settings, snapshot: Callable[[], State | None]) -> None:
        super().__init__()
        self._log = log
        self._settings = settings
        self._snapshot = snapshot

    def begin(self, name: str, asked: Position | Fetch, view: int, start: int) -> Begin | None:
        """Begin to feed a follower from where its log agrees; None if there is no such place.

        A follower whose log ends before this one begins gets a state, when the owner has one.
        """
        log = self._log
        nonce = abs(asked.nonce) if isinstance(asked, Position) else 0
        if isinstance(asked, Position) and asked.nonce < 0 and not start and not log.committed:
            nonce = 0  # one that is new, as everybody is
        index, state = common(log, asked.committed, asked.digests), None
        if index is None and asked.committed < log.base:
            state = self._snapshot()
            if state is not None and asked.digests and log.base <= state.index <= log.committed:
                index = state.index
        if index is None:
            return None
        self[name] = Feed(index, NEVER if nonce else start, nonce, log.committed)
        digest, last = log.digest(index), asked.digests[-1]
        return Begin(view, index, digest, last, start, log.committed, 0, state)

    def beat(self, name: str, view: int, number: int = 0) -> Beat:
        """Return a sign of life; one who gets no entries learns from it to ask for them."""
        return Beat(view, self[name].sent if name in self else NEVER, self._log.committed, number)

    def pump(self, view: int, tell: bool) -> Iterator[tuple[str, Message]]:
        """Return what may be sent now; with `tell`, also how far the log is committed."""
        log = self._log
        for name, feed in self.items():
            while feed.sent < log.last and (upto := self._upto(feed)) > feed.sent:
                entries = tuple(log.entry(index) for index in range(feed.sent + 1, upto + 1))
                before = log.digest(feed.sent)
                yield name, Append(view, feed.sent, before, entries, log.committed)
                feed.sent, feed.told = upto, log.committed
            if tell and feed.told < log.committed:
                yield name, Beat(view, feed.sent, log.committed)
                feed.told = log.committed

    def _upto(self, feed: Feed) -> int:
        """Return the last entry of the next message: as many as the window has room for."""
        log, upto = self._log, feed.sent
        room = self._settings.window_bytes
        room -= sum(log.size(index) for index in range(feed.done + 1, feed.sent + 1))
        while upto < min(log.last, feed.done + self._settings.window):
            room -= log.size(upto + 1)
            if room < 0 and upto > feed.done:
                break
            upto += 1
        return upto
