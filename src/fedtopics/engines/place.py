"""Where in a run a participant's program is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fedtopics.engines.node import Node
from fedtopics.errors import FederationError
from fedtopics.methods.core.replies import Look


@dataclass
class Attempt:
    """One attempt at a turn, as all participants know it."""

    turn: int
    number: int
    round: int  # as methods count them
    members: list[str]
    missing: dict[str, str]  # name to why
    allowance: int = 0  # bytes of a reply that need not be announced
    exchanges: int = 0
    ends: float = math.inf  # for the adder alone, like the next one
    waiting: float = 0.0  # seconds
    look: Look = field(default_factory=Look)


class Place:
    """Behind `index` decisions and `turn` turns, and maybe in an attempt at the next one."""

    def __init__(self, node: Node, index: int, turn: int) -> None:
        self.index = index
        self.turn = turn
        self._node = node
        self._attempt: Attempt | None = None

    def digest(self) -> bytes:
        """Return the digest of all decisions so far."""
        return self._node.digest_before(self.index + 1)

    @property
    def names(self) -> list[str]:
        """Names of the study's clients, sorted."""
        return sorted(self._node.members)

    @property
    def members(self) -> list[str]:
        """Who is in the round that is worked on."""
        return [] if self._attempt is None else self._attempt.members

    @property
    def moment(self) -> bytes:
        """The digest of all decisions so far: who was told others is at another moment."""
        return self.digest()

    def key_of(self, name: str) -> bytes:
        """Return the public key of a client's masks."""
        return self._node.introduction.key_of(name)

    def fits(self, name: str, content: bytes, signature: bytes) -> bool:
        """Whether a client has signed something."""
        return self._node.introduction.fits(name, content, signature)

    def disagreement(self, what: str) -> FederationError:
        """Say that this participant stops; return the error."""
        return self._node.disagreement(self._attempt.round if self._attempt else 0, what)
