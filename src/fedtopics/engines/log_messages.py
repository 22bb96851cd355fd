"""What replicas of a log say to each other: plain values, for any transport to carry.

Names in capitals are those of the paper: Liskov and Cowling, Viewstamped Replication Revisited,
MIT-CSAIL-TR-2012-021.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from fedtopics.engines.log import Entry


class Said(Struct, frozen=True, tag=True):
    """What all messages say."""

    view: int  # the one that the sender is in


class Position(Said, frozen=True):
    """How far the sender's log goes: to who adds, and back to who is in an earlier view.

    In a view that has no adder yet it is DOVIEWCHANGE with indices in place of the log
    (section 5.3), else it asks for what is missing, as GETSTATE (5.2) or, with a nonce,
    RECOVERY (4.3).
    """

    normal: int  # the last view whose log the sender had as a whole
    committed: int  # an index
    digests: tuple[bytes, ...]  # of the log at `committed` and at each index after it
    nonce: int = 0  # not 0: the sender may have lost what it said; negative: it may also be new

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.committed + len(self.digests) - 1


class Fetch(Said, frozen=True):
    """Who will add asks for the log of whoever has the best one (section 5.3)."""

    committed: int
    digests: tuple[bytes, ...]  # as in a position


class State(Struct, frozen=True):
    """What the owner of a replica made of all entries up to an index; opaque here."""

    index: int
    digest: bytes  # of the log there
    content: bytes


class Begin(Said, frozen=True):
    """STARTVIEW, NEWSTATE, RECOVERYRESPONSE: up to `index` the logs agree; later entries follow."""

    index: int
    digest: bytes
    asked: bytes  # digest of the asker's last entry: its log has to be as it was
    start: int  # who has the log up to here has what the view began with
    committed: int
    nonce: int = 0  # not 0: whoever lost its memory, and sent this number, may vote again
    state: State | None = None  # in place of entries that the sender has forgotten


class Append(Said, frozen=True):
    """PREPARE: the entries after `index`."""

    index: int
    digest: bytes
    entries: tuple[Entry, ...]
    committed: int


class Ack(Said, frozen=True):
    """PREPAREOK: the sender has kept all entries up to `index`."""

    index: int
    beat: int = 0  # the number of the beat that this answers, if it answers one


class Beat(Said, frozen=True):
    """COMMIT: the adder is there."""

    index: int  # the last entry sent to the receiver
    committed: int
    number: int = 0  # not 0: to be answered


class Suspect(Said, frozen=True):
    """The sender has lost the adder of this view; repeated while that is so, binds nobody."""


class StartViewChange(Said, frozen=True):
    """STARTVIEWCHANGE: the sender adds in this view if a majority sends it their positions."""


class Differs(Said, frozen=True):
    """The receiver's log cannot be right if the sender's is: other entries were committed."""

    index: int
    digest: bytes  # the sender's; empty if it has no such entry


Message: TypeAlias = (
    Position | Fetch | Begin | Append | Ack | Beat | Suspect | StartViewChange | Differs
)
