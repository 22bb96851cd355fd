"""A log of entries, each with a digest of itself and all before it; in memory."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import Struct


class Entry(Struct, frozen=True):
    """Something decided: what kind of thing, and its bytes."""

    kind: str
    content: bytes


def chained(before: bytes, kind: str, content_digest: bytes) -> bytes:
    """Return the digest of a log with one more entry."""
    return sha256(before + kind.encode() + content_digest).digest()


class Log:
    """Entries 1, 2, ... in memory; `DiskLog` keeps them in a folder.

    What a method has written is durable when it returns, as far as the log is at all.

    Parameters
    ----------
    origin : bytes
        What the log belongs to, such as a study and its run; its digest is that at index 0. Logs of
        different origin disagree from the beginning.

    Attributes
    ----------
    base : int
        Entries up to this index are forgotten; the digest there is known.
    last : int
        Index of the last entry; `base` if there is none.
    view, normal : int
        The view, and the last one whose log was had as a whole; changed by `keep`.
    committed : int
        How far the log is committed; who sets it says so. On disk it goes with the next record, so
        that one opened anew may know of less.
    doubtful : bool
        The end of the log, or the view, may have been lost, as after a power failure in a log that
        was not synced. A replica with such a log has to recover before it votes.
    """

    def __init__(self, origin: bytes) -> None:
        self.base = 0
        self.last = 0
        self.view = 0
        self.normal = 0
        self.committed = 0
        self.doubtful = False
        self._digests = [sha256(origin).digest()]
        self._entries: list[Entry] = []

    def digest(self, index: int) -> bytes:
        """Return the digest at an index from `base` to `last`."""
        if not self.base <= index <= self.last:
            raise IndexError(f"The log knows {self.base} to {self.last}, not {index}.")
        return self._digests[index - self.base]

    def entry(self, index: int) -> Entry:
        """Return an entry after `base` and up to `last`."""
        if not self.base < index <= self.last:
            raise IndexError(f"The log has {self.base + 1} to {self.last}, not {index}.")
        return self._entries[index - self.base - 1]

    def size(self, index: int) -> int:
        """Return how many bytes the content of an entry has."""
        return len(self.entry(index).content)

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end."""
        digest = self._digests[-1]
        for entry in entries:
            digest = chained(digest, entry.kind, sha256(entry.content).digest())
            self._digests.append(digest)
            self._entries.append(entry)
        self.last += len(entries)

    def truncate(self, after: int) -> None:
        """Drop the entries after an index, none of which is committed."""
        if after < max(self.committed, self.base):
            raise IndexError(f"Entry {self.committed} is committed; no cut after {after}.")
        del self._digests[after - self.base + 1 :]
        del self._entries[after - self.base :]
        self.last = min(after, self.last)

    def cut(self, before: int) -> None:
        """Forget entries before an index; they have to be committed."""
        if before > self.committed + 1:
            raise IndexError(f"Only {self.committed} entries are committed; no cut at {before}.")
        self._forget(before - 1)

    def _forget(self, upto: int) -> None:
        if upto > self.base:
            del self._digests[: upto - self.base]
            del self._entries[: upto - self.base]
            self.base = upto

    def reset(self, index: int, digest: bytes) -> None:
        """Forget everything and begin after an index: a state stands for what came before."""
        self.base = self.last = self.committed = index
        self._digests = [digest]
        self._entries = []

    def keep(self, view: int, normal: int, doubtful: bool) -> None:
        """Keep what has to outlive a restart besides the entries."""
        self.view, self.normal, self.doubtful = view, normal, doubtful

    def close(self) -> None:
        """Let go of files."""
