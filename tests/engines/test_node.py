"""What a participant says to who adds, and when it need not say it."""

from types import SimpleNamespace
from typing import Any

from fedtopics.engines.handshake import Introduction, Proposal, Unsigned
from fedtopics.engines.messages import Message, Refusal, Reply, Waiting
from fedtopics.engines.node import Node


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
    replica: Any = SimpleNamespace(adder=adder, committed=0, disconnected=lambda *_: None)
    replica.take = tuple
    node._replica = replica
    node._links._names = links
    return node, sent


def reply(index: int) -> Reply:
    return Reply(index, b"", b"", 0.0, {})


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
