"""A client's contribution to a run: its door, and the work of its earlier processes."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from fedtopics.contract.events import Defect, Event
from fedtopics.contract.interfaces import Call, CallableClient, Position
from fedtopics.errors import FederationError, FedTopicsError, PolicyError, RunError
from fedtopics.protocol.link import LinkError

REFUSED = "its policy refuses"
CHANGED = "its documents or its run folder are not those with which it began"
NO_MEMORY = "its memory is full"
DEFECT = "its software has a defect"
CAUSES = {
    PolicyError: REFUSED,
    RunError: CHANGED,
    FedTopicsError: "its documents cannot be used",
    OSError: "its disk is full, or cannot be written",
    MemoryError: NO_MEMORY,
    Exception: DEFECT,
}
"""What the other members learn of an error that ends a member's process: its kind, no more."""
R = TypeVar("R")


def cause_of(error: BaseException) -> str:
    return next(cause for kind, cause in CAUSES.items() if isinstance(error, kind))


class MemberDoor(CallableClient, Protocol):
    """The only exit for a client's data between machines."""

    def leave(self, call: Call, reply: Mapping[str, Any]) -> None:
        """Record data that is derived from a reply before it is sent, or raise PolicyError."""

    def check_members(self, members: Sequence[str]) -> None:
        """Raise PolicyError if so few clients may not share a sum."""

    def check_sum(self, documents: int) -> None:
        """Raise PolicyError if a sum may not cover so few documents."""

    def write_total(self, function: str, position: Position, digest: bytes, size: int) -> None:
        """Record a total received."""


@dataclass(repr=False)  # its own repr would print what others sent
class ClientSide:
    """A client's door (None for server and observers); if it refuses or fails, the program ends."""

    door: MemberDoor | None
    stop: Callable[[str], None]
    notify: Callable[[Event], None]
    round: int = 0
    skipped: list[Call] = field(default_factory=list)  # which an earlier process answered

    def begin(self, round_: int) -> None:
        """Begin a round, or an attempt at it; forget calls that were skipped before."""
        self.round = round_
        self.skipped.clear()

    def repeat_skipped(self) -> dict[str, Any] | None:
        """Execute the skipped calls, now that a later one needs their side effects."""
        replies = [self.repeat(call) for call in self.skipped]
        self.skipped.clear()
        return replies[-1] if replies else None

    def repeat(self, call: Call) -> dict[str, Any] | None:
        """Execute a function without sending anything."""
        return self.guarded(lambda door: door.repeat(call))

    def guarded(self, work: Callable[[MemberDoor], R]) -> R | None:
        """Use the door; if it refuses or fails, tell the others and end."""
        if self.door is None:
            return None
        try:
            return work(self.door)
        except (OSError, MemoryError, RunError):
            raise  # the others wait until this member is back
        except FedTopicsError as error:
            with suppress(FederationError):
                self.stop(cause_of(error))
            raise
        except Exception as error:
            # Only its type: its text could quote a document.
            kind = type(error).__name__
            self.notify(Defect("a function", self.round, kind))
            with suppress(LinkError):
                self.stop(DEFECT)
            raise FederationError(
                f"The software of this client has a defect ({kind} in round {self.round}); report "
                "it, and when it is fixed, start the same command again."
            ) from None
