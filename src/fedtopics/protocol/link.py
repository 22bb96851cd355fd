"""What a transport gives to the protocol, and what the protocol gives to a transport."""

from __future__ import annotations

from typing import Protocol

from fedtopics.errors import FederationError


class LinkError(FederationError):
    """The server cannot be reached now; another attempt may succeed."""


def reason_of(error: Exception) -> str:
    """Say what an unexpected error is; its own text could quote what was sent."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def check_size(size: int, most: int) -> None:
    """Refuse a message with more bytes than a service takes."""
    if size > most:
        raise FederationError(
            f"A message of {size:,} bytes was refused; at most {most:,} are expected. "
            "Raise largest_message in the study's [federation]."
        )


class Link(Protocol):
    """A member's way to the server: three calls, each with a deadline.

    LinkError if another attempt may succeed, FederationError if the server refused.
    """

    def ask(self, message: bytes) -> bytes:
        """Ask what is next; the answer takes 20 seconds at most."""

    def say(self, message: bytes) -> None:
        """Send a message."""

    def fetch(self, what: bytes) -> bytes:
        """Get something large."""


class Service(Protocol):
    """What a server does with the three calls of members, whose names the transport has checked.

    A FedTopicsError refuses a call, with its sentence.
    """

    def ask(self, name: str, message: bytes) -> bytes:
        """Answer within 20 seconds."""

    def say(self, name: str, message: bytes) -> None:
        """Take a message."""

    def fetch(self, name: str, what: bytes) -> bytes:
        """Return something large."""

    def most(self, name: str) -> int:
        """Return the most bytes that a message of this member may have."""

    def fail(self, reason: str) -> None:
        """End the run for a reason."""
