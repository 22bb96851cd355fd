"""What of a client's documents may leave: functions that say what, and exchanges that have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., dict[str, Any]])


def leaves(
    what: str, seen_by_all: bool = False, noise: bool | None = None
) -> Callable[[Function], Function]:
    """Publish a function of a client: its replies may leave, if the schedule has it.

    `what` says for people what leaves the client with a reply. Some are `seen_by_all`, one by one,
    as they are no part of a sum. Where `noise` is not None, documents are others at each attempt at
    a round, and so are replies if it is True.
    """

    def publish(function: Function) -> Function:
        function.leaves = what  # type: ignore[attr-defined]
        function.seen_by_all = seen_by_all  # type: ignore[attr-defined]
        function.noise = noise  # type: ignore[attr-defined]
        return function

    return publish


class Exchanges:
    """Published functions that the clients of several methods have, and what these remember."""

    def __init__(self, client: Any) -> None:
        self.client = client  # a `TopicClient`

    def forget(self) -> None:
        """Start a new study: earlier replies belonged to another one."""
