"""Who is at the other end of which link: offers, acceptances, and members that come and go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from fedtopics.engines.handshake import Introduction
from fedtopics.engines.messages import Accept, Message, Refusal, Welcome
from fedtopics.engines.transport import Opened, Transport
from fedtopics.errors import FederationError, IdentityError
from fedtopics.harmless import sentence
from fedtopics.methods.core.events import StatusChange

NAMED = 10.0  # seconds between two events that the same one was refused
SERVER = "@server"  # what clients call who offers them a study and takes no part in it


@dataclass
class Member:
    """A client of the study, here or not, as the adder sees it."""

    name: str
    link: str = ""
    process: bytes = b""
    turn: int = 0  # it has come to, and waits for
    excluded: str = ""  # why it was sent away for good
    done: bool = False  # it has the model
    least: int = 1  # clients of a sum that its policy asks for

    def ready(self, turn: int) -> bool:
        """Whether it can be in an attempt at a turn."""
        return bool(self.link) and self.turn == turn and not self.excluded

    @property
    def status(self) -> str:
        """What a person would say of it, whatever the turn."""
        return "has the model" if self.done else self.state(self.turn)

    def state(self, turn: int) -> str:
        """What a person would say of it."""
        if self.excluded:
            return f"excluded: {self.excluded}"
        if not self.link:
            return "not connected"
        if self.ready(turn):
            return "ready"
        return "starting" if self.turn == 0 else "still busy with an earlier round"


class Links:
    """The links of a participant, and the members of its study.

    `linked` and `lost` are told by name who is there and who is gone; `inbox` gets the news.
    """

    def __init__(
        self, own: str, names: Iterable[str], transport: Transport, introduction: Introduction,
        inbox: SimpleQueue[tuple[str, Any]], linked: Callable[[str], None],
        lost: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.members = {name: Member(name) for name in sorted(names)}
        self.introduction = introduction
        self._own = own
        self._transport = transport
        self._inbox = inbox
        self._linked = linked
        self._lost = lost
        self._names: dict[str, str] = {}  # by link, of those who are welcome
        self._vouched: dict[str, str] = {}  # by the transport
        self._challenges: dict[str, bytes] = {}
        self._offering: set[str] = set()  # links at this end of which the study is offered
        self._refused: dict[str, tuple[float, int]] = {}  # when it was told, and how often since

    def join(self, names: Iterable[str], introduction: Introduction) -> None:
        """Take part in a study of these members."""
        self.members = {name: Member(name) for name in sorted(names)}
        self.introduction = introduction
        self._names.clear()

    def forget(self) -> None:
        """Forget who is at which link."""
        self._names.clear()

    def name_of(self, link: str) -> str:
        """Return who is at a link, or nothing."""
        return self._names.get(link, "")

    def vouched(self, link: str) -> str:
        """Return who is at a link, by the transport, or the server."""
        name = self._vouched.get(link, "")
        return "the server" if name in ("", SERVER) else name

    def offers(self, link: str) -> bool:
        """Whether it is this end of a link that offers the study, as a server does."""
        return link in self._offering

    def link_of(self, name: str) -> str:
        """Return the link to somebody, or nothing."""
        return next((link for link, who in self._names.items() if who == name), "")

    def open(self, link: str, opened: Opened) -> None:
        """Offer the study over a link, unless who is there cannot take part."""
        self._vouched[link] = opened.name
        if opened.offers:
            self._offering.add(link)
        if opened.offers and opened.name and (objection := self._unwelcome(opened.name)):
            self._tell_refused(opened.name, objection, opened.name)
            self.refuse(link, objection)
        elif opened.offers:
            offer = self.introduction.offer()
            self._challenges[link] = offer.challenge
            self._transport.send(link, offer)

    def send(self, name: str, message: Message) -> None:
        """Send somebody a message, if there is a link."""
        if link := self.link_of(name):
            self._transport.send(link, message)

    def send_all(self, message: Message) -> None:
        """Send everybody a message."""
        for link in self._names:
            self._transport.send(link, message)

    def refuse_all(self, reason: str, again: bool) -> None:
        """Say goodbye to everybody."""
        for link in list(self._names):
            self.refuse(link, reason, again)

    def admit(self, link: str, accept: Accept) -> None:
        """Take in who accepts, or refuse it."""
        challenge = self._challenges.pop(link, None)
        if challenge is None:
            raise FederationError("An offer is accepted once, and was made before.")
        member, vouched = self.members.get(accept.name), self._vouched.get(link, "")
        objection = self._unwelcome(vouched or accept.name)
        objection = objection or self.introduction.objection(accept, challenge, vouched)
        twin = False
        if not objection and member is not None and member.link:
            twin = member.process != accept.process
        if twin:
            objection = (
                f"A client named {accept.name!r} is connected already, from another process; "
                "stop it first, or give each client an identity of its own."
            )
        if objection or member is None:
            self._tell_refused(accept.name, objection, vouched)
            self.refuse(link, objection, again=twin)
            return
        if member.link:  # whoever is there, if somebody is, has to notice
            self._transport.close(member.link)
            self.leave(member.link)
        restarted = bool(member.process) and member.process != accept.process
        member.link, member.process, member.least = link, accept.process, accept.least
        if restarted:
            member.turn = 0
        self._names[link] = member.name
        introduction = self.introduction
        certificate = introduction.certificates([self._own])[self._own]
        key = introduction.keys([self._own])[self._own]
        self._transport.send(link, Welcome(self._own, certificate, key))
        self._linked(member.name)
        reason = "it was restarted" if restarted else ""
        self.news(StatusChange("joined", member.name, reason))

    def declined(self, link: str, name: str) -> None:
        """Note that somebody takes no part, which nobody can say for one who is here."""
        name = self._names.get(link) or self._vouched.get(link) or name
        member = self.members.get(name)
        if member is not None and member.link in ("", link):
            reason = "its policy or its settings keep it from joining"
            self.news(StatusChange("declined", name, reason))

    def welcomed(self, link: str, welcome: Welcome) -> None:
        """Note who offered what this participant has accepted."""
        adder = welcome.adder
        known = {SERVER, *self.members} - {self._own}
        vouched = self._vouched.get(link, "")
        if adder not in known or (vouched and vouched != adder):
            raise FederationError("Who welcomes this participant is not of the study.")
        if adder in self.members:
            self._learn(adder, welcome)
            self.members[adder].link = link
            self.news(StatusChange("joined", adder))
        self._names[link] = adder
        self._linked(adder)

    def _learn(self, name: str, welcome: Welcome) -> None:
        try:
            self.introduction.learn({name: welcome.certificate}, {name: welcome.key})
        except IdentityError as error:
            raise FederationError(str(error)) from None

    def leave(self, link: str, fault: str = "") -> None:
        """Note that a link is no more, maybe for a fault of who was there."""
        self._vouched.pop(link, None)
        self._offering.discard(link)
        name = self._names.pop(link, "")
        if not name:
            return
        if name in self.members and self.members[name].link == link:
            self.members[name].link = ""
            self.news(StatusChange("lost", name, fault))
        self._lost(name)

    def refuse(self, link: str, reason: str, again: bool = False) -> None:
        """Send whoever is at a link away, with a sentence."""
        if link:
            self._transport.send(link, Refusal(reason, again))
            self._transport.close(link)
            self.leave(link)

    def _tell_refused(self, name: str, reason: str, vouched: str) -> None:
        """Tell that somebody was refused; of one who comes again and again, not each time.

        Whoever is neither a member nor vouched for is the same as all others like it.
        """
        who, now = name if name in self.members else vouched, time.monotonic()
        told, more = self._refused.get(who, (-math.inf, 0))
        if now - told < NAMED:
            self._refused[who] = told, more + 1
            return
        self._refused[who] = now, 0
        before = f"after {more:,} more since it was said: " if more else ""
        self.news(StatusChange("refused", name, before + reason))

    def news(self, change: StatusChange) -> None:
        """Tell who adds what happened to a member, or to one who says it were."""
        told = replace(change, client=sentence(change.client), reason=sentence(change.reason))
        self._inbox.put((told.client, told))

    def _unwelcome(self, name: str) -> str:
        """Say why nobody of a name can take part, if so."""
        member = self.members.get(name)
        if member is None:
            return (
                f"The study has no client named {name!r}; name the client in the study under "
                "[clients], or give it a certificate with a name that is there."
            )
        return f"This client was excluded: {member.excluded}." if member.excluded else ""
