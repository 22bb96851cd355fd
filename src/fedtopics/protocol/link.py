"""The interface between transports and the protocol."""

from typing import Protocol

from fedtopics.errors import FederationError


class LinkError(FederationError):
    """The server cannot be reached now; a retry may succeed."""


def reason_of(error: Exception) -> str:
    """Name an unexpected error without its own text, which could quote a message."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def check_size(size: int, most: int) -> None:
    if size > most:
        raise FederationError(
            f"A message of {size:,} bytes was refused: at most {most:,} are expected; raise "
            "largest_message in the study's [federation]."
        )


class Link(Protocol):
    """A member's connection to the server: three calls, each with a deadline.

    LinkError if a retry may succeed, FederationError if the server refused the call.
    """

    def ask(self, message: bytes) -> bytes:
        """Ask for news; the answer takes at most 20 seconds."""

    def say(self, message: bytes) -> None: ...

    def fetch(self, what: bytes) -> bytes: ...


class Service(Protocol):
    """A server's answers to the three calls of members, whose names the transport has checked.

    It answers `ask` within 20 seconds. A FedTopicsError refuses a call.
    """

    largest: int  # bytes of a message of `say`

    def ask(self, name: str, message: bytes) -> bytes: ...

    def say(self, name: str, message: bytes) -> None: ...

    def fetch(self, name: str, what: bytes) -> bytes: ...

    def fail(self, reason: str) -> None: ...

    def left(self, name: str) -> None:
        """Record that a member has ended, with or without the model."""
