"""What replicas of a log say to each other: plain values, for any transport to carry.

A message says the view that its sender is in. Names in capitals are those of the paper: Liskov and
Cowling, Viewstamped Replication Revisited, MIT-CSAIL-TR-2012-021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fedtopics.engines.log import Entry


@dataclass(frozen=True, slots=True)
class Position:
    """How far the sender's log goes: to who adds, and back to who is in an earlier view.

    In a view that has no adder yet it is DOVIEWCHANGE with indices in place of the log
    (section 5.3), else it asks for what is missing, as GETSTATE (5.2) or, with a nonce,
    RECOVERY (4.3).
    """

    view: int
    normal: int  # the last view whose log the sender had as a whole
    committed: int  # an index
    digests: tuple[bytes, ...]  # of the log at `committed` and at each index after it
    nonce: int = 0  # not 0: the sender may have lost what it said; negative: it may also be new

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.committed + len(self.digests) - 1


@dataclass(frozen=True, slots=True)
class Fetch:
    """Who will add asks for the log of whoever has the best one (section 5.3)."""

    view: int
    committed: int
    digests: tuple[bytes, ...]  # as in a position


@dataclass(frozen=True, slots=True)
class State:
    """What the owner of a replica made of all entries up to an index; opaque here."""

    index: int
    digest: bytes  # of the log there
    content: bytes


@dataclass(frozen=True, slots=True)
class Begin:
    """STARTVIEW, NEWSTATE, RECOVERYRESPONSE: up to `index` the logs agree; later entries follow."""

    view: int
    index: int
    digest: bytes
    asked: bytes  # digest of the asker's last entry: its log has to be as it was
    start: int  # who has the log up to here has what the view began with
    committed: int
    nonce: int = 0  # not 0: whoever lost its memory, and sent this number, may vote again
    state: State | None = None  # in place of entries that the sender has forgotten


@dataclass(frozen=True, slots=True)
class Append:
    """PREPARE: the entries after `index`."""

    view: int
    index: int
    digest: bytes
    entries: tuple[Entry, ...]
    committed: int


@dataclass(frozen=True, slots=True)
class Ack:
    """PREPAREOK: the sender has kept all entries up to `index`."""

    view: int
    index: int
    beat: int = 0  # the number of the beat that this answers, if it answers one


@dataclass(frozen=True, slots=True)
class Beat:
    """COMMIT: the adder is there."""

    view: int
    index: int  # the last entry sent to the receiver
    committed: int
    number: int = 0  # not 0: to be answered


@dataclass(frozen=True, slots=True)
class Suspect:
    """The sender has lost the adder of this view; repeated while that is so, binds nobody."""

    view: int


@dataclass(frozen=True, slots=True)
class StartViewChange:
    """STARTVIEWCHANGE: the sender adds in this view if a majority sends it their positions."""

    view: int


@dataclass(frozen=True, slots=True)
class Differs:
    """The receiver's log cannot be right if the sender's is: other entries were committed."""

    view: int
    index: int
    digest: bytes  # the sender's; empty if it has no such entry


Message: TypeAlias = (
    Position | Fetch | Begin | Append | Ack | Beat | Suspect | StartViewChange | Differs
)
