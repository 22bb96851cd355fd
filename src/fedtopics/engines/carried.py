"""Messages over an engine that carries a request and its answer, as Flower and FLARE do.

What is to be said to a participant goes to it as one bundle; the answer is what it says until its
program waits for others. At most one bundle is on its way to an address, and nobody is asked
whether there is news, but for a program that computes longer than `answering.HOLD`. Nothing has to
be kept between two bundles: a participant whose process was killed says that it knows nothing of
the link, is offered the study again, and gets the decisions that it missed from the server's log.
Here is the server's end, in `answering` the other one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from fedtopics.engines.log_messages import Beat
from fedtopics.engines.messages import Message, Replicated, read_bytes
from fedtopics.engines.transport import Arrived, Closed, Opened
from fedtopics.engines.values import LENGTH, dumps
from fedtopics.errors import FederationError

LOOK = 1.0  # seconds between two looks at who is there
STEP = 0.02  # seconds between two looks at what there is to send
GOODBYE = 5.0  # seconds for participants to get the last message
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two offers to who does not stay
NEVER = float("inf")

# What a bundle says of the link it belongs to, in the byte after the link's identifier.
ASKS = b"?"  # a server's
WAITS = b"w"  # the program waits for others
COMPUTES = b"c"  # it will say more: ask again
UNKNOWN = b"u"  # no such link: the process is new
CLOSES = b"x"  # there is no more to say over this link; another one may be opened
ENDED = b"e"  # the participant takes no part, or no more
IDENTIFIER = 8  # bytes


class Carrier(Protocol):
    """Brings messages to clients and their answers back; used by one thread.

    One that `vouches` for its addresses has the clients' names as addresses.
    """

    vouches: bool

    def addresses(self) -> Collection[str]:
        """Return the addresses that can be reached now."""

    def send(self, address: str, message: bytes) -> None:
        """Send a message, which is answered once at most."""

    def receive(self, seconds: float) -> list[tuple[str, bytes | None]]:
        """Return what has come, after so many seconds at most; None: that client failed.

        A `FederationError` if nothing will come any more.
        """


def bundled(link: bytes, state: bytes, messages: Sequence[bytes]) -> bytes:
    """Write a bundle of messages, each as `dumps` writes it."""
    parts = [link, state]
    for message in messages:
        parts += len(message).to_bytes(LENGTH, "little"), message
    return b"".join(parts)


def unbundled(raw: bytes, largest: int = 1 << 31) -> tuple[bytes, bytes, list[Message]]:
    """Read a bundle: its link, its state, its messages; a `FederationError` if it is damaged."""
    rest = memoryview(raw)[IDENTIFIER + 1 :]
    messages = []
    if len(raw) <= IDENTIFIER:
        raise FederationError("A bundle is too short.")
    while rest:
        end = LENGTH + int.from_bytes(rest[:LENGTH], "little")
        if end > len(rest) or end > largest:
            raise FederationError("A bundle has another length than it announced, or is too large.")
        messages.append(read_bytes(rest[LENGTH:end], largest))
        rest = rest[end:]
    return raw[:IDENTIFIER], raw[IDENTIFIER : IDENTIFIER + 1], messages


@dataclass
class _Link:
    name: str
    address: str
    identifier: bytes = field(default_factory=lambda: os.urandom(IDENTIFIER))
    began: float = field(default_factory=time.monotonic)
    outbox: list[bytes] = field(default_factory=list)
    due: float = NEVER  # when the outbox goes out
    asked: bool = False  # a bundle is on its way
    closing: bool = False


class CarriedTransport:
    """The server's end: a link to each address of a carrier; a `Transport`.

    Messages have at most `largest` bytes. What is said within `linger` seconds goes together.
    """

    def __init__(self, carrier: Carrier, largest: int = 1 << 30, linger: float = STEP) -> None:
        self._carrier = carrier
        self._largest = largest
        self._linger = linger
        self._links: dict[str, _Link] = {}  # by address
        self._offers: dict[str, tuple[float, float]] = {}  # address to when, and the next pause
        self._numbers = count(1)
        self._looked = -NEVER
        self._traffic = [0, 0]
        self._last: tuple[Message | None, bytes] = (None, b"")
        self._lock = threading.Lock()  # of links: others send while one receives

    def start(self) -> None:
        """Do nothing: the carrier is there."""

    def send(self, link: str, message: Message) -> None:
        """Put a message into the next bundle; a sign of life alone is none, an answer is one."""
        if isinstance(message, Replicated) and isinstance(message.message, Beat):
            return
        with self._lock:
            found = self._at(link)
            if found is None or found.closing:
                return
            if self._last[0] is not message:
                self._last = message, dumps(message)
            found.outbox.append(self._last[1])
            found.due = min(found.due, time.monotonic() + self._linger)

    def close(self, link: str) -> None:
        """Close a link after what was sent."""
        with self._lock:
            if (found := self._at(link)) is not None:
                found.closing = True

    def allow(self, size: int, link: str = "") -> None:
        """Do nothing: it has come."""

    def quiet(self) -> None:
        """Do nothing: what is said goes out at once."""

    def receive(self, seconds: float) -> Sequence[Arrived]:
        """Send what is to be sent; return what came."""
        ends = time.monotonic() + seconds
        arrived: list[Arrived] = []
        while not arrived and (left := ends - time.monotonic()) > 0:
            try:
                arrived += self._look()
                self._dispatch()
                for address, raw in self._carrier.receive(min(STEP, left)):
                    arrived += self._take(address, raw)
            except FederationError as error:
                arrived.append(("", Closed(str(error))))
        return arrived

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        return self._traffic[0], self._traffic[1]

    def stop(self) -> None:
        """Send what is left, and wait for a moment until it has come."""
        ends = time.monotonic() + GOODBYE
        last: set[str] = set()
        while time.monotonic() < ends:
            last |= {address for address, link in self._links.items() if link.outbox}
            if not last:
                return
            self._dispatch(at_once=True)
            try:
                answers = self._carrier.receive(STEP)
            except FederationError:
                continue
            for address, _ in answers:
                if address in self._links:
                    self._links[address].asked = False
            last -= {a for a, _ in answers if a in self._links and not self._links[a].outbox}

    def _at(self, name: str) -> _Link | None:
        return next((link for link in self._links.values() if link.name == name), None)

    def _look(self) -> list[Arrived]:
        """Open links to who is new, or may be offered the study again; notice who is gone."""
        now = time.monotonic()
        if now < min([self._looked + LOOK, *(at for at, _ in self._offers.values())]):
            return []
        self._looked = now
        reachable = sorted(self._carrier.addresses())
        gone = [link for a, link in self._links.items() if a not in reachable]
        arrived: list[Arrived] = [self._drop(link, again=False) for link in gone]
        offers = {address: self._offers.get(address, (now, FIRST_PAUSE)) for address in reachable}
        for address, (due, pause) in offers.items():
            if due > now:
                continue
            offers[address] = NEVER, pause
            link = _Link(f"{next(self._numbers)}", address)
            with self._lock:
                self._links[address] = link
            name = address if self._carrier.vouches else ""
            arrived.append((link.name, Opened(offers=True, name=name)))
        self._offers = offers
        return arrived

    def _dispatch(self, at_once: bool = False) -> None:
        now = time.monotonic()
        with self._lock:
            due = [
                link
                for link in self._links.values()
                if not link.asked and (link.due <= now or (at_once and link.outbox))
            ]
            bundles = [bundled(link.identifier, ASKS, link.outbox) for link in due]
            for link in due:
                link.outbox, link.due, link.asked = [], NEVER, True
        for link, bundle in zip(due, bundles, strict=True):
            self._traffic[0] += len(bundle)
            self._carrier.send(link.address, bundle)

    def _take(self, address: str, raw: bytes | None) -> list[Arrived]:
        """Read an answer; whoever sends what cannot be read is as good as gone."""
        link = self._links.get(address)
        if link is None:
            return []
        try:
            identifier, state, messages = unbundled(raw or b"", self._largest)
        except FederationError:
            identifier, state, messages = link.identifier, CLOSES, []
        if raw and identifier != link.identifier:
            return []  # the answer to a bundle of an earlier link
        link.asked = False
        self._traffic[1] += len(raw or b"")
        arrived: list[Arrived] = [(link.name, message) for message in messages]
        if state == COMPUTES:
            link.due = time.monotonic()
        elif state != WAITS or (link.closing and not link.outbox):
            arrived.append(self._drop(link, again=state != ENDED))
        return arrived

    def _drop(self, link: _Link, again: bool) -> Arrived:
        """Close a link; offer the study to its address `again` after a pause, which grows."""
        with self._lock:
            del self._links[link.address]
        now = time.monotonic()
        _, pause = self._offers[link.address]
        if now - link.began > LONGEST_PAUSE:
            pause = FIRST_PAUSE
        due = now + pause if again else NEVER
        self._offers[link.address] = due, min(2 * pause, LONGEST_PAUSE)
        return link.name, Closed()
