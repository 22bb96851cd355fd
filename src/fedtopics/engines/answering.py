"""A participant that answers bundles of messages: the other end of `carried`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count

from fedtopics.engines.carried import (
    CLOSES,
    COMPUTES,
    ENDED,
    IDENTIFIER,
    UNKNOWN,
    WAITS,
    bundled,
    unbundled,
)
from fedtopics.engines.messages import Declined, Message, Offer
from fedtopics.engines.transport import Arrived, Closed, Opened, Transport
from fedtopics.engines.values import dumps
from fedtopics.errors import FederationError

HOLD = 60.0  # seconds after which a participant answers though its program still computes


class CarriedParticipant:
    """Answers bundles for a participant, whose program runs in a thread.

    `take_part` takes part in what is offered over a transport, until the model is there. If it
    raises, which it has to explain to people itself, the others hear that `name` declines.
    """

    def __init__(
        self, name: str, take_part: Callable[[Transport], None], hold: float = HOLD
    ) -> None:
        self._name = name
        self._take_part = take_part
        self._hold = hold
        self._side: _Side | None = None
        self._lock = threading.Lock()

    @property
    def ended(self) -> bool:
        """Whether its part is over, for now."""
        return self._side is None or self._side.ended

    def answer(self, bundle: bytes) -> bytes:
        """Take a bundle; return what the participant says until it waits for others."""
        with self._lock:
            side = self._side
            try:
                identifier, _, messages = unbundled(bundle)
            except FederationError:
                return bundled(bundle[:IDENTIFIER], UNKNOWN, [])
            if side is None or side.identifier != identifier:
                if not messages or not isinstance(messages[0], Offer):
                    return bundled(identifier, UNKNOWN, [])
                begins = side is None or side.ended
                if side is None or begins:
                    self._side = side = _Side()
                side.open(identifier)
                if begins:
                    threading.Thread(target=self._live, args=(side,), daemon=True).start()
            side.feed(messages, len(bundle))
            return side.said(self._hold)

    def _live(self, side: _Side) -> None:
        try:
            self._take_part(side)
        except Exception:
            side.decline(self._name)  # no more: an error's text could quote a document
        finally:
            side.end()

    def close(self, reason: str = "The process of this client is stopped.") -> None:
        """End the program, which may go on later from its last checkpoint."""
        if self._side is not None:
            self._side.give_up(reason)


class _Side:
    """The transport of a participant that answers."""

    def __init__(self) -> None:
        self.identifier = b""
        self.ended = False
        self._numbers = count(1)
        self._link = ""
        self._inbox: list[Arrived] = []
        self._outbox: list[bytes] = []
        self._taken = False  # what came is not yet worked at
        self._quiet = False  # the program waits for others
        self._traffic = [0, 0]
        self._changed = threading.Condition()

    # For whoever answers

    def open(self, identifier: bytes) -> None:
        """Begin another link, in place of the one before."""
        with self._changed:
            if self._link:
                self._inbox.append((self._link, Closed()))
            self.identifier, self._link = identifier, f"{next(self._numbers)}"
            self._outbox.clear()
            self._inbox.append((self._link, Opened(offers=False)))

    def feed(self, messages: Sequence[Message], size: int) -> None:
        """Give the participant what came, so many bytes."""
        with self._changed:
            self._traffic[1] += size
            self._inbox += [(self._link, message) for message in messages]
            self._changed.notify_all()

    def said(self, seconds: float) -> bytes:
        """Return what it says until its program waits, or after so many seconds."""
        with self._changed:
            idle = self._changed.wait_for(self._is_idle, seconds)
            state = WAITS if idle else COMPUTES
            if not self._link:
                state = CLOSES
            if self.ended:
                state = ENDED
            bundle = bundled(self.identifier, state, self._outbox)
            self._outbox.clear()
            self._traffic[0] += len(bundle)
            if not self._link:
                self.identifier = b""
            return bundle

    def _is_idle(self) -> bool:
        return self.ended or (self._quiet and not self._taken and not self._inbox)

    def give_up(self, reason: str) -> None:
        """Let nothing come any more."""
        with self._changed:
            self._inbox.append(("", Closed(reason)))
            self._changed.notify_all()

    def decline(self, name: str) -> None:
        """Say that the participant takes no part, or no more."""
        if self._link:  # else it has said so already
            self.send(self._link, Declined(name))

    def end(self) -> None:
        """Note that the participant's part is over."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    # For the participant: a `Transport`

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing: what was said goes with the answer."""

    def send(self, link: str, message: Message) -> None:
        """Say something with the next answer."""
        with self._changed:
            if link == self._link:
                self._outbox.append(dumps(message))

    def close(self, link: str) -> None:
        """Close the link with the next answer."""
        with self._changed:
            if link == self._link:
                self._link = ""

    def allow(self, size: int, link: str = "") -> None:
        """Do nothing: nobody asks it to add."""

    def quiet(self) -> None:
        """Note that the program waits: nothing is said before something comes."""
        with self._changed:
            self._quiet = True
            if self._is_idle():
                self._changed.notify_all()

    def receive(self, seconds: float) -> Sequence[Arrived]:
        """Return what came; the next call says that it is worked at."""
        with self._changed:
            if self._taken:  # a program that it did not concern says so again
                self._taken = self._quiet = False
            self._changed.wait_for(lambda: self._inbox, seconds)
            arrived, self._inbox = self._inbox, []
            self._taken = bool(arrived)
            return arrived

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        return self._traffic[0], self._traffic[1]
