"""What a participant says to who adds, and what who adds hears."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from fedtopics.engines.decisions import LOOK, TICK, Decisions, OvertakenError
from fedtopics.engines.handshake import Introduction
from fedtopics.engines.messages import (
    FAILURES,
    Announced,
    Done,
    Failure,
    Granted,
    Message,
    Reply,
    Waiting,
)
from fedtopics.engines.transport import Transport
from fedtopics.errors import FederationError
from fedtopics.methods.core.events import Event, StatusChange

LAST = 1 << 62  # a decision that is never made
UNHEARD = 32  # messages of one participant that wait until who adds has time


class Voice(Decisions):
    """Says the same to whoever adds, until it is decided; `notify` gets what people should know."""

    def __init__(
        self, own: str, names: Iterable[str], transport: Transport, introduction: Introduction,
        notify: Callable[[Event], None], keeps: bool,
    ) -> None:  # fmt: skip
        super().__init__(own, names, transport, introduction, keeps)
        self.notify = notify
        self._said: tuple[Message, int, Message | None] | None = None
        self._replied = "", ""  # to whom the last reply went, and over which link
        self._has_model = False
        self._unheard: Counter[str] = Counter()  # messages by participant

    def say(
        self, message: Message, index: int, when_granted: Message | None = None, quiet: bool = False
    ) -> None:
        """Say something to the adder, whoever it is, until a decision is made.

        What the adder knows without it, `quiet`, is said to another one alone, or to this one when
        it may have forgotten: when the last reply did not go to it, over the link that it has now.
        """
        with self._changed:
            self._said = message, index, when_granted
            if not (quiet and self._replied == self._way()):
                self._repeat(first=True)

    def done(self) -> None:
        """Say to everybody that the program has ended, with the model."""
        with self._changed:
            self._has_model = True
            self._links.send_all(Done())

    def wait_until_done(self, patience: float, absent: float = 0.0) -> list[str]:
        """Wait until all members that are there have the model; return who has.

        For so many seconds who is `absent` is waited for as well: it may be on its way back.
        """
        ends, leaves = time.monotonic() + patience, time.monotonic() + absent

        def lacking() -> bool:
            stays = time.monotonic() < leaves
            others = [each for name, each in self.members.items() if name != self.own]
            return any((each.link or stays) and not each.done for each in others)

        with self._changed:
            while time.monotonic() < ends and lacking():
                self._changed.wait(TICK)
            return [each.name for each in self.members.values() if each.done]

    def send(self, name: str, message: Message) -> None:
        """Send a member something, if it is there."""
        with self._changed:
            self._links.send(name, message)

    def grant(self, name: str, index: int, size: int) -> None:
        """Let a member, if it is there, send a reply of so many bytes."""
        with self._changed:
            if link := self._links.link_of(name):
                self._transport.allow(size, link)
                self._links.send(name, Granted(index))

    def allow(self, size: int) -> int:
        """Take replies of so many bytes that nobody announced; return that."""
        self._transport.allow(size)
        return size

    def exclude(self, name: str, reason: str) -> None:
        """Send a member away for good."""
        with self._changed:
            self.members[name].excluded = reason
            link = self.members[name].link
            self._links.refuse(link, f"The server has excluded this client: {reason}.")

    def sign(self, index: int) -> tuple[bytes, bytes]:
        """Return the digest of all decisions before one, and its signature."""
        digest = self.digest_before(index)
        return digest, self.introduction.sign_digest(index, digest)

    def is_signed(self, name: str, index: int, signature: bytes) -> bool:
        """Whether a participant has signed the digest that this one has."""
        return self.introduction.is_signed(name, index, self.digest_before(index), signature)

    def heard(self, seconds: float) -> tuple[str, Any]:
        """Take what came next for who adds; nothing if nothing comes."""
        self.check()
        if self._open_replica.view != self._view:
            raise OvertakenError
        return self._next_heard(min(max(0.0, seconds), LOOK))

    def _next_heard(self, seconds: float = 0.0) -> tuple[str, Any]:
        try:
            name, what = self.inbox.get(timeout=seconds)
        except Empty:
            return "", None
        if isinstance(what, Message):
            with self._changed:
                self._unheard[name] -= 1
        return name, what

    def _is_heard(self, name: str, what: Message) -> None:
        """Let who adds hear a message, when it has time."""
        if self._unheard[name] >= UNHEARD:
            raise FederationError("This client says more than it is asked for.")
        self._unheard[name] += 1
        self.inbox.put((name, what))

    def disagreement(self, round_: int, what: str) -> FederationError:
        """Say, here and to the adder, that this participant stops; return the error."""
        self.say(Failure(LAST, "disagreement", True), LAST)
        return FederationError(
            f"This participant stops in round {round_}: {what}. Nothing has left since. Who adds "
            "told participants different things, or has a defect; compare the ledgers."
        )

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        return self._transport.traffic()

    def _heard(self, name: str, what: Message) -> None:
        member = self.members.get(name)
        if isinstance(what, Granted) and self._said is not None:
            said, index, granted = self._said
            if what.index == index and granted is not None:
                # Over another link a reply is announced anew, before it comes.
                self._said = granted, index, None
                self._repeat(first=True)
                if isinstance(said, Announced):
                    self._said = said, index, granted
        elif member is None:
            return
        elif isinstance(what, Waiting):
            if member.turn == 0:
                self._links.news(StatusChange("ready", name))
            member.turn = what.turn
            self._is_heard(name, what)
        elif isinstance(what, Done):
            member.done = True
        elif isinstance(what, (Reply, Announced, Failure)):
            if isinstance(what, Failure) and what.leaves:
                reason = FAILURES.get(what.reason, "it ends")
                self._links.news(StatusChange("declined", name, reason))
            self._is_heard(name, what)

    def _repeat(self, first: bool = False) -> None:
        """Say to the adder what it has to hear; nobody has to tell oneself.

        A reply that is not said for the first time may come to one who began anew and has the
        decision already, in its log: then it does not know that this participant comes along.
        """
        if self._said is None or self._replica is None:
            return
        message, index, _ = self._said
        adder = self._replica.adder
        if index <= self._replica.committed:
            self._said = None
        elif adder is not None and adder != self.own:
            self.send(adder, message)
            if isinstance(message, Reply):
                self._replied = self._way() if first else ("", "")

    def _way(self) -> tuple[str, str]:
        """Return who adds, and the link to it."""
        adder = str(self._open_replica.adder)
        return adder, self._links.link_of(adder)
