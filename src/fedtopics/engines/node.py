"""A participant's place in a study: its links to others, the log of decisions, what is said.

A thread takes what the transport brings and keeps the log; the program's thread waits here for the
next decision.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from fedtopics.engines.decisions import TICK
from fedtopics.engines.handshake import Introduction
from fedtopics.engines.links import SERVER
from fedtopics.engines.messages import (
    Accept,
    Declined,
    Done,
    Message,
    Offer,
    Refusal,
    Replicated,
    Welcome,
)
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Closed, Opened, Transport
from fedtopics.engines.voice import Voice
from fedtopics.errors import FederationError, FedTopicsError
from fedtopics.harmless import sentence
from fedtopics.methods.core.events import Adds, Event, NoMajority, Refused, StatusChange

GOODBYE = 2.0  # seconds to send the last message


class CaughtUpError(FederationError):
    """A state has come in place of decisions that this participant lacks: go on from it."""


class NewRunError(FederationError):
    """The server has begun another run of the study."""


class Node(Voice):
    """Linked to others by a transport, with a log of what was decided; see `Decisions`."""

    def __init__(
        self, own: str, names: Iterable[str], transport: Transport, introduction: Introduction,
        notify: Callable[[Event], None], keeps: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(own, names, transport, introduction, notify, keeps)
        self._offers: deque[tuple[str, Offer]] = deque()
        self._ended = False
        self._adder: str | None = None
        self._known: str | None = None  # who adds, as was said to people
        self._few: list[str] = []  # who is linked, while they are no majority
        self._thread = threading.Thread(target=self._run, daemon=True)

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
            # The server may have died, and offered again, while this offer was considered.
            later, self._offers = self._offers, deque()
            for offered in later:
                self._accept(*offered)

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

    def stop(self, reason: str = "", again: bool = False) -> None:
        """Say goodbye to all others, with a reason if the study failed."""
        with self._changed:
            if reason:
                self._links.refuse_all(reason, again)
            self._ended = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(GOODBYE)
        self._transport.stop()

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
                    except FedTopicsError as error:  # of what others sent
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
            while (came := self._next_heard())[0]:  # what counts is said again to who adds next
                if isinstance(came[1], StatusChange):
                    self.notify(came[1])

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
            self._offers = deque(offered for offered in self._offers if offered[0] != link)
            if not link:  # there is no other way to come back
                self._failure = FederationError(what.reason)
        elif isinstance(what, (Offer, Welcome)) and self._links.offers(link):
            raise FederationError("The client sent a message that has no place here.")
        elif isinstance(what, Offer):
            self._offered(link, what)
        elif isinstance(what, Accept):
            self._links.admit(link, what)
        elif isinstance(what, Declined):
            self._links.declined(link, what.name)
        elif isinstance(what, Welcome):
            self._links.welcomed(link, what)
            if what.adder == SERVER and (objection := self.introduction.unsigned(what)):
                self._failure = FederationError(objection)
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

    def _refused(self, link: str, refusal: Refusal) -> None:
        offers = self._links.offers(link)
        self._links.leave(link)
        if offers:  # who was offered the study cannot send away who offers it
            self._transport.close(link)
            return
        reason = sentence(refusal.reason)
        self.notify(Refused(reason, refusal.again))
        self._transport.close(link)
        if refusal.said:
            self._said = None
        if not refusal.again and not self._is_peer:
            self._failure = FederationError(f"The server says: {reason}")

    def _linked(self, name: str) -> None:
        super()._linked(name)
        self._repeat()
        if self._has_model:
            self.send(name, Done())
