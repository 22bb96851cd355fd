"""What a participant answers after a restart."""

from types import SimpleNamespace
from typing import Any

from fedtopics.engines.adder import Attempt, Rules
from fedtopics.engines.exchange import Exchange
from fedtopics.methods.base import Moment


class Door:
    """One that answered the fourth exchange of turn 7 in a process before."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def is_past(self, moment: Moment) -> bool:
        return moment < Moment(7, 1, 4)

    def check_members(self, members: Any) -> None:
        """Allow everybody."""

    def call(self, function: str, payload: Any, moment: Moment) -> dict[str, Any]:
        self.did.append(f"call {function}")
        return {}

    def repeat(self, function: str, payload: Any, moment: Moment) -> None:
        self.did.append(f"repeat {function}")


def test_what_was_answered_before_is_not_asked_again_though_its_total_is_not_back() -> None:
    door: Any = Door()
    node: Any = SimpleNamespace(is_decided=lambda _: False, members={}, say=lambda *_: None)
    node.sign = lambda _: (b"", b"")
    node.digest_before = lambda _: b""
    exchange = Exchange(node, Rules(1, 1.0, 1.0, 1.0), lambda _: None, "a", door)
    attempt = Attempt(7, 1, 7, ["a", "b"], {}, allowance=1 << 20)
    assert exchange._own_reply("third", {}, Moment(7, 1, 3), attempt) is None
    assert door.did == []
    assert exchange._own_reply("fourth", {}, Moment(7, 1, 4), attempt) == {}
    assert door.did == ["repeat third", "call fourth"]
