"""A participant's place in a study: its links to others, the log of decisions, what is said.

A thread takes what the transport brings and keeps the log; the program's thread waits here for the
next decision.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from fedtopics.engines.handshake import Introduction
from fedtopics.engines.links import SERVER, Links, Member
from fedtopics.engines.log import Entry
from fedtopics.engines.messages import (
    FAILURES,
    Accept,
    Announced,
    Declined,
    Done,
    Failure,
    Granted,
    Message,
    Offer,
    Refusal,
    Replicated,
    Reply,
    Waiting,
    Welcome,
)
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Closed, Opened, Transport
from fedtopics.errors import FederationError
from fedtopics.methods.events import Adds, Event, NoMajority, Refused, StatusChange

TICK = 0.25  # seconds between two looks at the time
LOOK = 1.0  # seconds after which who adds looks whether it still does
GOODBYE = 2.0  # seconds to send the last message
LAST = 1 << 62  # a decision that is never made


class CaughtUpError(FederationError):
    """A state has come in place of decisions that this participant lacks: go on from it."""


class OvertakenError(Exception):
    """Another participant is to add, or this one anew."""


class NewRunError(FederationError):
    """The server has begun another run of the study."""


class Node:
    """Linked to others by a transport, with a log of what was decided.

    `own` is this participant's name, SERVER for who takes no part. One that `keeps` the log does
    not forget what its program has taken, as others may lack it. `notify` gets events of links.
    """

    def __init__(
        self, own: str, names: Iterable[str], transport: Transport, introduction: Introduction,
        notify: Callable[[Event], None], keeps: bool = True,
    ) -> None:  # fmt: skip
        self.own = own
        self.inbox: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._links = Links(
            own, names, transport, introduction, self.inbox, self._linked, self._lost
        )
        self._transport = transport
        self.notify = notify
        self._keeps = keeps
        self._replica: Replica | None = None
        self._offers: deque[tuple[str, Offer]] = deque()
        self._said: tuple[Message, int, Message | None] | None = None
        self._replied = "", ""  # to whom the last reply went, and over which link
        self._failure: Exception | None = None
        self._changed = threading.Condition(threading.RLock())
        self._ended = self._has_model = False
        self._view = 0  # in which a decision is made
        self._adder: str | None = None
        self._known: str | None = None  # who adds, as was said to people
        self._few: list[str] = []  # who is linked, while they are no majority
        self._thread = threading.Thread(target=self._run, daemon=True)

    # For the program's thread

    def start(self, replica: Replica | None = None) -> None:
        """Open links; with a log, take part at once."""
        self._replica = replica
        self._transport.start()
        self._thread.start()

    def offered(self) -> tuple[str, Offer]:
        """Wait for an offer; return it and its link."""
        with self._changed:
            while not self._offers:
                self.check()
                self._transport.quiet()
                self._changed.wait(TICK)
            return self._offers.popleft()

    def join(
        self, link: str, offer: Offer, names: Iterable[str], introduction: Introduction,
        replica: Replica,
    ) -> None:  # fmt: skip
        """Accept an offer, and from now on the same one on other links."""
        with self._changed:
            self._links.join(names, introduction)
            self._replica = replica
            self._accept(link, offer)

    def forget(self) -> None:
        """Forget a run that is no more; the offer of the next one has come."""
        with self._changed:
            self._failure = self._said = self._replica = None
            self._links.forget()

    def decline(self, link: str) -> None:
        """Decline an offer."""
        with self._changed:
            self._transport.send(link, Declined(self.own))
            self._transport.close(link)

    def go_on_from(self, failure: FederationError | None) -> None:
        """End what the program does now with an error; with none, it may go on."""
        with self._changed:
            self._failure = failure

    def check(self) -> None:
        """Raise what ends the study for this participant, if something does."""
        if self._failure is not None:
            raise self._failure

    def decided(self, index: int) -> Entry | None:
        """Wait for a decision, or for a moment; None if there is none yet."""
        with self._changed:
            if not self.has(index) and not self.may_decide(index):
                self._transport.quiet()
                self._changed.wait(TICK)
            self.check()
            return self._log.entry(index) if self.has(index) else None

    def has(self, index: int) -> bool:
        """Whether a decision is made, for good."""
        with self._changed:
            return self._open_replica.committed >= index

    def is_decided(self, index: int) -> bool:
        """Whether a decision is made, though it may still be on its way to this participant."""
        with self._changed:
            return self.has(index) or self._open_replica.announced >= index

    def may_decide(self, index: int) -> bool:
        """Whether this participant adds, and has all decisions before this one."""
        with self._changed:
            replica = self._open_replica
            return replica.settled and replica.log.last + 1 == index == replica.committed + 1

    def decide(self, index: int, kind: str, content: Callable[[], bytes]) -> None:
        """Make a decision, if it is this participant's; not, if another one comes to add meanwhile.

        `content` asks what is heard of the others.
        """
        with self._changed:
            if not self.may_decide(index):
                return
            self._view = self._open_replica.view
        with suppress(OvertakenError):
            made = Entry(kind, content())
            with self._changed:
                while self._open_replica.view == self._view and not self.may_decide(index):
                    self.check()  # a majority is away for a moment
                    self._changed.wait(TICK)
                if self._open_replica.view == self._view:
                    self._open_replica.propose(made)
                    self._flush()

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
                self._repeat()

    def cut(self, before: int) -> None:
        """Forget decisions that nobody needs: a later checkpoint has what came of them."""
        with self._changed:
            self._open_replica.forget(min(before, self._open_replica.committed))

    def applied(self, index: int) -> None:
        """Forget a decision that was taken, if others have it for this participant."""
        with self._changed:
            if not self._keeps:
                self._open_replica.forget(index)

    def done(self) -> None:
        """Say to everybody that the program has ended, with the model."""
        with self._changed:
            self._has_model = True
            self._links.send_all(Done())

    def wait_until_done(self, patience: float) -> list[str]:
        """Wait until all members that are there have the model; return who has."""
        ends = time.monotonic() + patience
        with self._changed:
            while time.monotonic() < ends and any(
                each.link and not each.done for each in self.members.values()
            ):
                self._changed.wait(TICK)
            return [each.name for each in self.members.values() if each.done]

    def send(self, name: str, message: Message) -> None:
        """Send a member something, if it is there."""
        with self._changed:
            self._links.send(name, message)

    def exclude(self, name: str, reason: str) -> None:
        """Send a member away for good."""
        with self._changed:
            self.members[name].excluded = reason
            link = self.members[name].link
            self._links.refuse(link, f"The server has excluded this client: {reason}.")

    @staticmethod
    def now() -> float:
        """Return the time of a clock that only goes on."""
        return time.monotonic()

    def traffic(self) -> tuple[int, int]:
        """Return the bytes sent and received."""
        return self._transport.traffic()

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say goodbye to all others, with a reason if the study failed."""
        with self._changed:
            if reason:
                self._links.refuse_all(reason, again)
            self._ended = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(GOODBYE)
        self._transport.stop()

    # What was said before, and by whom

    @property
    def members(self) -> dict[str, Member]:
        """The clients of the study by name."""
        return self._links.members

    @property
    def introduction(self) -> Introduction:
        """How this participant introduces itself, signs, and knows the others."""
        return self._links.introduction

    @property
    def _is_peer(self) -> bool:
        """Whether there is no server: nobody can end the study for others."""
        return self._keeps and self.own != SERVER

    @property
    def _open_replica(self) -> Replica:
        if self._replica is None:
            raise FederationError("This participant has not joined a study.")
        return self._replica

    @property
    def _log(self) -> Any:
        return self._open_replica.log

    def digest_before(self, index: int) -> bytes:
        """Return the digest of all decisions before one."""
        with self._changed:
            return bytes(self._log.digest(index - 1))

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
        try:
            return self.inbox.get(timeout=min(max(0.0, seconds), LOOK))
        except Empty:
            return "", None

    def disagreement(self, round_: int, what: str) -> FederationError:
        """Say, here and to the adder, that this participant stops; return the error."""
        self.say(Failure(LAST, "disagreement", True), LAST)
        return FederationError(
            f"This participant stops in round {round_}: {what}. Nothing has left since. Who adds "
            "told participants different things, or has a defect; compare the ledgers."
        )

    # In the node's thread

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # a full disk or a defect: the program ends with that
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _work(self) -> None:
        while not self._ended:
            for link, what in self._transport.receive(TICK):
                with self._changed:
                    try:
                        self._take(link, what)
                    except FederationError as error:
                        self._links.refuse(link, str(error), again=True)
            with self._changed:
                if self._replica is not None:
                    self._replica.tick(self.now())
                    self._flush()
                    self._look_for_disagreements(self._replica)
                    self._look_for_adder(self._replica)
                    self._look_for_majority(self._replica)
                self._changed.notify_all()

    def _look_for_adder(self, replica: Replica) -> None:
        """Say again to who adds now, or again, what it may not have heard."""
        if replica.adder != self._adder:
            self._adder = replica.adder
            self._repeat()
        if self._is_peer and replica.adder not in (None, self.own):
            with suppress(Empty):  # all that counts is said again to the next one who adds
                while True:
                    _, what = self.inbox.get_nowait()
                    if isinstance(what, StatusChange):
                        self.notify(what)

    def _look_for_majority(self, replica: Replica) -> None:
        """Say who adds, or that nothing can be decided as too few of equals are linked."""
        if not self._is_peer or self._has_model:
            return
        here = [name for name, each in self.members.items() if each.link or name == self.own]
        few = here if len(here) < replica.majority else []
        if few and few != self._few:
            away = sorted(self.members.keys() - set(few))
            self.notify(NoMajority(few, away, replica.majority))
        elif not few and replica.adder not in (None, self._known):
            self._known = replica.adder
            self.notify(Adds(str(replica.adder), replica.view))
        self._few = few

    def _look_for_disagreements(self, replica: Replica) -> None:
        if replica.halted and self._failure is None:
            name = replica.disagreements[0].name
            self._failure = FederationError(
                f"The decisions that this participant has are not those of {name!r}: one of both "
                "was told something else, or goes on from another folder. Nothing has left since."
            )

    def _take(self, link: str, what: Message | Opened | Closed) -> None:
        name = self._links.name_of(link)
        if isinstance(what, Opened):
            self._links.open(link, what)
        elif isinstance(what, Closed):
            self._links.leave(link, what.reason)
            if not link:  # there is no other way to come back
                self._failure = FederationError(what.reason)
        elif isinstance(what, Offer):
            self._offered(link, what)
        elif isinstance(what, Accept):
            self._links.admit(link, what)
        elif isinstance(what, Declined):
            self._links.declined(link, what.name)
        elif isinstance(what, Welcome):
            self._links.welcomed(link, what)
        elif isinstance(what, Refusal):
            self._refused(link, what)
        elif not name:
            raise FederationError("The client sent a message that has no place here.")
        elif isinstance(what, Replicated):
            self._open_replica.receive(name, what.read(), self.now())
            self._flush()
        else:
            self._heard(name, what)

    def _offered(self, link: str, offer: Offer) -> None:
        if self._replica is None:
            self._offers.append((link, offer))
        else:
            self._accept(link, offer)

    def _accept(self, link: str, offer: Offer) -> None:
        objection = self.introduction.differs(offer, self._links.vouched(link))
        if objection and self._is_peer:
            self.notify(Refused(objection, again=False))
            self.decline(link)
        elif objection:
            self._failure = FederationError(objection)
        elif offer.run != self.introduction.run:
            self._failure = NewRunError("The server has begun another run; join again.")
            self._offers.append((link, offer))
        else:
            self._transport.send(link, self.introduction.accept(offer))

    def _linked(self, name: str) -> None:
        """Let the log go on with somebody."""
        self._open_replica.connected(name, self.now())
        self._flush()
        self._repeat()
        if self._has_model:
            self.send(name, Done())

    def _lost(self, name: str) -> None:
        self._open_replica.disconnected(name, self.now())
        self._flush()

    def _refused(self, link: str, refusal: Refusal) -> None:
        self.notify(Refused(refusal.reason, refusal.again))
        self._links.leave(link)
        self._transport.close(link)
        if refusal.said:
            self._said = None
        if not refusal.again and not self._is_peer:
            self._failure = FederationError(f"The server says: {refusal.reason}")

    def _heard(self, name: str, what: Message) -> None:
        member = self.members.get(name)
        if isinstance(what, Granted) and self._said is not None:
            if what.index == self._said[1] and self._said[2] is not None:
                self._said = self._said[2], self._said[1], None
                self._repeat()
        elif member is None:
            return
        elif isinstance(what, Waiting):
            if member.turn == 0:
                self._links.news(StatusChange("ready", name))
            member.turn = what.turn
            self.inbox.put((name, what))
        elif isinstance(what, Done):
            member.done = True
        elif isinstance(what, (Reply, Announced, Failure)):
            if isinstance(what, Failure) and what.leaves:
                reason = FAILURES.get(what.reason, "it ends")
                self._links.news(StatusChange("declined", name, reason))
            self.inbox.put((name, what))

    def _repeat(self) -> None:
        """Say to the adder what it has to hear; nobody has to tell oneself."""
        if self._said is None or self._replica is None:
            return
        message, index, _ = self._said
        adder = self._replica.adder
        if index <= self._replica.committed:
            self._said = None
        elif adder is not None and adder != self.own:
            self.send(adder, message)
            if isinstance(message, Reply):
                self._replied = self._way()

    def _way(self) -> tuple[str, str]:
        """Return who adds, and the link to it."""
        adder = str(self._open_replica.adder)
        return adder, self._links.link_of(adder)

    def _flush(self) -> None:
        """Send what the log's replication has to say; the same to several as one message."""
        before, written = None, None
        for name, message in self._open_replica.take():
            if written is None or message != before:
                before, written = message, Replicated.of(message)
            self._links.send(name, written)
