"""A door of a client that replies what a test wants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedtopics import Policy
from fedtopics.contract.interfaces import Call, Position
from fedtopics.errors import DataError
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY


class Echo:
    method = "gfedntm"
    allowed = ("echo", "fail")
    attempt = 0
    summed = 0
    persons = None
    most_rounds = None
    noisy = False

    def __init__(self, **reply: Any) -> None:
        self.reply = reply
        self.calls = 0

    def execute(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        reply: dict[str, Any] = getattr(self, function)(**payload)
        return reply

    def echo(self, **payload: Any) -> dict[str, Any]:
        self.calls += 1
        return self.reply

    def fail(self) -> dict[str, Any]:
        raise DataError("no document is left.")

    def secret(self) -> dict[str, Any]:
        raise AssertionError("called")


class Asked(Door):
    """A door whose calls are each at a turn of its own, unless a test says when."""

    def ask(self, function: str, payload: Any, position: Position | None = None) -> dict[str, Any]:
        return self.call(Call(function, payload, position or Position(self.turn + 1)))

    def again(self, function: str, payload: Any, position: Position) -> dict[str, Any]:
        return self.repeat(Call(function, payload, position))


def door(
    half: Echo,
    policy: Policy = OPEN_POLICY,
    method: str = "gfedntm",
    path: Path | None = None,
    run: str = "",
) -> Asked:
    half.method = method
    return Asked("north", half, policy, Ledger(method, "0123abcd", path, run))
