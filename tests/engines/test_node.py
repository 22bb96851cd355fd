"""What a participant says to who adds, and when it need not say it."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from fedtopics.engines.adder import Adder, Asked, Rules, _Exchange
from fedtopics.engines.handshake import Introduction, Proposal, Unsigned
from fedtopics.engines.messages import Accept, Message, Offer, Refusal, Reply, Waiting
from fedtopics.engines.node import NewRunError, Node
from fedtopics.engines.place import Attempt
from fedtopics.engines.transport import Closed, Opened, first_offer
from fedtopics.errors import FederationError, IdentityError
from fedtopics.methods.core.events import StatusChange


class Sent:
    """A transport that keeps what is sent, by link."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []

    def send(self, link: str, message: Message) -> None:
        self.messages.append((link, message.kind))

    def close(self, link: str) -> None:
        """Nothing is open."""


def linked(adder: str, links: dict[str, str]) -> tuple[Node, Sent]:
    sent: Any = Sent()
    proposal = Proposal("", "", 0, {}, "")
    introduction = Introduction("a", proposal, b"", Unsigned())
    node = Node("a", ["a", "b", "c"], sent, introduction, lambda _: None)
    nothing = lambda *_: None  # noqa: E731
    replica: Any = SimpleNamespace(
        adder=adder, committed=0, connected=nothing, disconnected=nothing
    )
    replica.take = tuple
    node._replica = replica
    node._links._names = links
    return node, sent


class Bringing(Sent):
    """A transport that brings what it is given, and then nothing more."""

    def __init__(self, *arriving: tuple[str, Any]) -> None:
        super().__init__()
        self.arriving = [list(arriving)]

    def start(self) -> None:
        """Nothing is to be opened."""

    def stop(self) -> None:
        """Nothing is open."""

    def receive(self, seconds: float) -> list[tuple[str, Any]]:
        time.sleep(seconds / 10)
        return self.arriving.pop() if self.arriving else []


class Strict(Unsigned):
    """Certificates of which none is right."""

    def learn(self, name: str, certificate: bytes) -> None:
        raise IdentityError(f"The certificate of client {name!r} is not of this authority.")


def test_who_shows_a_wrong_certificate_is_sent_away_and_nobody_else_notices() -> None:
    accept = Accept("b", "", b"process", b"none", b"", 1)
    bringing: Any = Bringing(("1", Opened(offers=True, name="b")), ("1", accept))
    introduction = Introduction("a", Proposal("", "", 0, {}, ""), b"", Strict())
    node = Node("a", ["a", "b"], bringing, introduction, lambda _: None)
    node.start()
    ends = time.monotonic() + 10
    while len(bringing.messages) < 2 and time.monotonic() < ends:
        time.sleep(0.01)
    assert bringing.messages == [("1", "offer"), ("1", "refusal")]
    node.check()
    node.stop()


def reply(index: int) -> Reply:
    return Reply(index, b"", b"", {})


def offer_of(run: bytes) -> Offer:
    return Offer("", 0, "", 0, {}, "", "", run, 0.0, b"")


def test_a_server_that_comes_back_while_its_offer_is_considered_is_answered() -> None:
    """Else the client would wait for ever: it had said yes over a link that was no more."""
    sent: Any = Sent()
    introduction = Introduction("a", Proposal.of(offer_of(b"run")), b"run", Unsigned())
    node = Node("a", (), sent, introduction, lambda _: None)
    replica: Any = SimpleNamespace()
    for link, run in (("1", b"run"), ("2", b"run"), ("3", b"another run")):
        node._take(link, Opened(offers=False))
        node._take(link, offer_of(run))
    first, second = node.offered(), node.offered()
    node.join(*first, ["a"], introduction, replica)
    assert sent.messages == [("1", "accept")]
    with pytest.raises(NewRunError):
        node.check()
    node.forget()
    node._take("4", offer_of(b"run"))
    assert node.offered()[0] == "3"
    node.join(*second, ["a"], introduction, replica)
    assert sent.messages == [("1", "accept"), ("2", "accept"), ("4", "accept")]
    node.check()


def test_an_offer_is_gone_with_its_link() -> None:
    node, _ = linked("server", {})
    node._replica = None
    for link in "12":
        node._take(link, offer_of(b"run"))
    node._take("1", Closed())
    assert node.offered()[0] == "2"


def test_who_is_refused_under_a_name_takes_nothing_from_who_has_it() -> None:
    node, _ = linked("a", {"1": "b"})
    adder = Adder(node, Rules(1, 1.0, 1.0, 1.0), lambda _: None, "")
    asked = Asked("ask", None, one_by_one=False)
    exchange = _Exchange(adder, Attempt(1, 1, 1, ["b", "c"], {}), 1, asked)
    exchange._heard("b", StatusChange("refused", "b", "connected already"))
    assert not exchange.lost
    exchange._heard("b", StatusChange("declined", "b", "its policy"))
    assert exchange.lost == {"b": "its policy"}


def test_who_has_the_last_reply_knows_who_comes_along() -> None:
    node, sent = linked("b", {"1": "b", "2": "c"})
    node.say(reply(1), 1)
    node.say(Waiting(2), 2, quiet=True)
    assert sent.messages == [("1", "reply")]


def test_another_adder_is_told() -> None:
    node, sent = linked("b", {"1": "b", "2": "c"})
    node.say(reply(1), 1)
    node._open_replica.adder = "c"  # type: ignore[misc]
    node.say(Waiting(2), 2, quiet=True)
    assert sent.messages == [("1", "reply"), ("2", "waiting")]


def test_an_adder_that_was_away_is_told() -> None:
    node, sent = linked("b", {"1": "b"})
    node.say(reply(1), 1)
    node._links._names = {"3": "b"}  # maybe another process
    node.say(Waiting(2), 2, quiet=True)
    assert sent.messages == [("1", "reply"), ("3", "waiting")]


def test_what_is_turned_down_is_not_said_again() -> None:
    node, sent = linked("b", {"1": "b"})
    node.say(reply(1), 1)
    node._take("1", Refusal("too large", again=True, said=True))
    node._links._names = {"2": "b"}
    node._repeat()
    assert sent.messages == [("1", "reply")]


def test_an_adder_that_has_the_decision_in_its_log_is_told() -> None:
    """It began anew: the reply that it gets is of the past for it, and says nothing."""
    node, sent = linked("b", {"1": "b"})
    node.say(reply(1), 1)
    node._links._names = {"3": "b"}
    node._linked("b")
    node.say(Waiting(2), 2, quiet=True)
    assert sent.messages == [("1", "reply"), ("3", "reply"), ("3", "waiting")]


def test_what_another_side_says_is_a_short_line() -> None:
    """A server's reasons and names, which a client's terminal shows."""
    text = "\x1b[2J\n" + 10**6 * "x"
    transport: Any = Bringing(("1", Refusal(text, again=False)))
    with pytest.raises(FederationError) as error:
        first_offer(transport, "here:1")
    node, _ = linked("a", {})
    told: list[Any] = []
    node.notify = told.append
    node._refused("1", Refusal(text, again=False))
    offer = Offer(text, 2, text, 1, {}, text, text, b"", 0.0, b"")
    proposal = Proposal.of(offer)
    said = [str(error.value), told[0].reason, proposal.objection(("1", {}), 2)]
    for sentence in (*said, proposal.fingerprint, proposal.start):
        assert sentence.isprintable()
        assert len(sentence) < 800
