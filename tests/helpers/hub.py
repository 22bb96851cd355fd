"""Links between participants in this process: no sockets, and a test says what breaks when.

Messages travel as the bytes that other transports carry, in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from queue import Empty, SimpleQueue

from fedtopics.engines.links import SERVER
from fedtopics.engines.messages import Message, read_bytes
from fedtopics.engines.transport import Arrived, Closed, Opened
from fedtopics.protocol.values import dumps
from fedtopics.errors import FederationError

PAUSE = 0.02  # seconds between two attempts to connect


class Hub:
    """Where one participant listens and the others connect, and come back when they are cut off.

    With `vouches` the listening side is told the true names, as by TLS.
    """

    def __init__(self, vouches: bool = False) -> None:
        self.vouches = vouches
        self.away: set[str] = set()  # who finds no way
        self.deaf: set[str] = set()  # whose words are lost until they are cut off
        self.holds: Callable[[str, Message], bool] = lambda name, message: False
        self.lock = threading.RLock()
        self.listening: Port | None = None
        self._held: list[Callable[[], None]] = []
        self._ports: dict[str, Port] = {}
        self._numbers = count(1)

    def listen(self) -> Port:
        """Return the transport of who listens."""
        return Port(self, SERVER, offers=True)

    def port_of(self, name: str) -> Port:
        """Return the transport of somebody who connects."""
        self._ports[name] = Port(self, name)
        return self._ports[name]

    def cut(self, name: str) -> None:
        """Break somebody's links; new ones are made at once, unless it is away."""
        self.deaf.discard(name)
        port = self._ports[name]
        for link in list(port.ends):
            port.end(link)

    def kill(self, name: str) -> None:
        """End somebody: its links break, it makes no new ones, and its program is told to end."""
        port = self._ports[name]
        port.stop()
        port.inbox.put(("", Closed("killed")))

    def connect(self, port: Port) -> None:
        far = self.listening
        if far is not None and port.name not in self.away:
            link = f"{next(self._numbers)}"
            port.ends[link], far.ends[link] = far, port
            port.inbox.put((link, Opened(offers=False)))
            far.inbox.put((link, Opened(offers=True, name=port.name if self.vouches else "")))

    def carry(self, port: Port, link: str, message: Message) -> None:
        raw = dumps(message)

        def arrive() -> None:
            if link in port.ends:
                port.ends[link].inbox.put((link, raw))

        port.sent += len(raw)
        if port.name in self.deaf:
            return
        if self.holds(port.name, message):
            self._held.append(arrive)
        else:
            arrive()

    @property
    def held(self) -> int:
        """How many messages are held back."""
        return len(self._held)

    def release(self) -> None:
        """Let what was held back arrive, and hold nothing any more."""
        with self.lock:
            self.holds = lambda name, message: False
            held, self._held = self._held, []
            for arrive in held:
                arrive()


class Port:
    """One participant's `Transport`."""

    def __init__(self, hub: Hub, name: str, offers: bool = False) -> None:
        self.name = name
        self.inbox: SimpleQueue[tuple[str, bytes | Opened | Closed]] = SimpleQueue()
        self.ends: dict[str, Port] = {}
        self.sent = self.received = 0
        self._hub = hub
        self._offers = offers
        self._open = False
        self._again = 0.0

    def start(self) -> None:
        with self._hub.lock:
            self._open = True
            if self._offers:
                self._hub.listening = self

    def send(self, link: str, message: Message) -> None:
        with self._hub.lock:
            if link in self.ends:
                self._hub.carry(self, link, message)

    def send_raw(self, link: str, raw: bytes) -> None:
        """Send bytes that may be none of a message."""
        with self._hub.lock:
            self.ends[link].inbox.put((link, raw))

    def receive(self, seconds: float) -> Sequence[Arrived]:
        if self._open and not self._offers and not self.ends and time.monotonic() > self._again:
            with self._hub.lock:
                self._hub.connect(self)
            self._again = time.monotonic() + PAUSE
        arrived: list[Arrived] = []
        try:
            link, what = self.inbox.get(timeout=seconds if self.ends else min(seconds, PAUSE))
        except Empty:
            return arrived
        if isinstance(what, bytes):
            self.received += len(what)
            try:
                arrived.append((link, read_bytes(what)))
            except FederationError:  # whoever sends what cannot be read is as good as gone
                self.end(link)
        else:
            arrived.append((link, what))
        return arrived

    def close(self, link: str) -> None:
        self.end(link)

    def end(self, link: str) -> None:
        with self._hub.lock:
            far = self.ends.pop(link, None)
            if far is None:
                return
            far.ends.pop(link, None)
            self.inbox.put((link, Closed()))
            far.inbox.put((link, Closed()))
            self._again = far._again = time.monotonic() + PAUSE

    def allow(self, size: int, link: str = "") -> None:
        """Do nothing: it has come."""

    def quiet(self) -> None:
        """Do nothing: what is said arrives anyway."""

    def traffic(self) -> tuple[int, int]:
        return self.sent, self.received

    def stop(self) -> None:
        with self._hub.lock:
            self._open = False
            if self._hub.listening is self:
                self._hub.listening = None
            for link in list(self.ends):
                self.end(link)
