"""The interface between transports and the protocol."""

import re
from collections.abc import Mapping
from typing import Protocol

from fedtopics.errors import FederationError, StudyError

OTHER_VERSION = "its version of the protocol is not the server's"
OTHER_STUDY = "its study is not the one that the server serves"


class LinkError(FederationError):
    """The server cannot be reached now; a retry may succeed."""


class NotYetError(FederationError):
    """There is nothing to do now: people carry the messages, and others have to act first."""

    def __init__(self, waiting: Mapping[str, str]) -> None:
        who = ", ".join(f"{name} ({state})" for name, state in waiting.items())
        super().__init__(f"The study waits for {who or 'messages of others'}.")
        self.waiting = waiting


def reason_of(error: Exception) -> str:
    """Name an unexpected error without its own text, which could quote a message."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def check_size(size: int, most: int) -> None:
    if size > most:
        raise FederationError(
            f"A message of {size:,} bytes was refused: at most {most:,} are expected; raise "
            "largest_message in the study's [federation]."
        )


def split_address(address: str, least_port: int = 1) -> tuple[str, int]:
    """Split HOST:PORT or [IPv6]:PORT; StudyError for anything else."""
    match = re.fullmatch(
        r"(?:([\w.-]+)|\[([0-9A-Fa-f]*:[0-9A-Fa-f:.]+(?:%\w+)?)\]):([0-9]{1,5})", address
    )
    if match is None or not least_port <= int(match[3]) <= 65_535:
        raise StudyError(
            f"{address!r:.80} is not an address; write HOST:PORT, as in localhost:7557."
        )
    return match[1] or match[2], int(match[3])


class Link(Protocol):
    """A member's connection to the server: three calls, each with a deadline.

    LinkError if a retry may succeed, FederationError if the server refused the call.
    """

    def ask(self, message: bytes) -> bytes:
        """Ask for news; the answer takes at most 20 seconds."""

    def say(self, message: bytes) -> None:
        """Send a message that needs no answer."""

    def fetch(self, what: bytes, most: int | None = None) -> bytes:
        """Return content; `most` is the largest number of bytes that it can have."""


class Service(Protocol):
    """A server's answers to the three calls of members, whose names the transport has checked.

    It answers `ask` within 20 seconds. A FedTopicsError refuses a call.
    """

    largest: int  # bytes of a message of `say`

    def ask(self, name: str, message: bytes) -> bytes:
        """Answer the question of a member."""

    def say(self, name: str, message: bytes) -> None:
        """Take a message of a member."""

    def fetch(self, name: str, what: bytes) -> bytes:
        """Return content for a member; b"" if there is none."""

    def fail(self, reason: str) -> None:
        """End the server for a reason, unless it has one already."""

    def differs(self, name: str, reason: str) -> None:
        """Record why the calls of a member cannot be answered."""

    def left(self, name: str) -> None:
        """Record that a member has ended, with or without the model."""
