"""What an engine is: something that carries messages between participants of a study.

Everything else, who may take part, rounds, lost participants, who adds, is above it, once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedtopics.engines.messages import Message, Offer, Refusal
from fedtopics.errors import FederationError
from fedtopics.harmless import sentence


@dataclass(frozen=True)
class Opened:
    """A link to somebody is there.

    One side `offers` the study: a server, or the participant that the other one connected to.
    `name` is who is at the other end, where the transport vouches for it, as TLS does.
    """

    offers: bool
    name: str = ""


@dataclass(frozen=True)
class Closed:
    """A link is no more; what was on its way is lost."""

    reason: str = ""


Arrived = tuple[str, Message | Opened | Closed]
"""What came over a link, by the link's name."""


class Transport(Protocol):
    """Carries messages over links, in order, until a link closes; of several threads."""

    def start(self) -> None:
        """Open links, and go on doing so where they close."""

    def send(self, link: str, message: Message) -> None:
        """Send a message, and do not wait for it; over a link that is closed it is lost."""

    def receive(self, seconds: float) -> Sequence[Arrived]:
        """Return what came, as soon as there is something, after so many seconds at most."""

    def allow(self, size: int, link: str = "") -> None:
        """Take replies of so many bytes: the next one over a link, or all over no link.

        A larger one is not read, and ends its link; where messages come as a whole, it is read.
        """

    def quiet(self) -> None:
        """Note that this participant's program waits: it says nothing before something comes."""

    def close(self, link: str) -> None:
        """Close a link when what was sent over it has arrived."""

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received so far, over all links."""

    def stop(self) -> None:
        """Close all links, and open no more."""


PATIENCE = 20.0  # seconds for an offer


def first_offer(transport: Transport, address: str, patience: float = PATIENCE) -> Offer:
    """Ask what is offered over a transport, without joining.

    A `FederationError` if this participant is refused or nobody answers within `patience` seconds.
    """
    transport.start()
    ends = time.monotonic() + patience
    try:
        while time.monotonic() < ends:
            for _, what in transport.receive(0.1):
                if isinstance(what, Offer):
                    return what
                if isinstance(what, Refusal):
                    raise FederationError(f"The server says: {sentence(what.reason)}")
                if isinstance(what, Closed):
                    ends = 0.0
    finally:
        transport.stop()
    raise FederationError(
        f"The server {address} does not answer; find out why with: fedtopics doctor"
    )
