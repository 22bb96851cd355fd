"""Rounds of masked sums in one process, in which some clients lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedtopics.federation.local import LocalClients
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.aggregation import Payload
from fedtopics.secure.said import ADDED, COMMITTED
from fedtopics.secure.sum import SecureClients
from tests.helpers.background import Notes
from tests.helpers.masked import TEMPLATE, Client, half_of, sends_noise
from tests.helpers.programs import POLICY, door

Lie = Callable[[int], bool]  # whether it lies in this attempt, counted from 1


def always(attempt: int) -> bool:
    return True


def lies(when: Lie = always) -> dict[str, Any]:
    """A client that sends noise in some attempts."""
    attempts = [0]

    def noise(client: Client, reply: Payload) -> Payload:
        attempts[0] += 1
        return sends_noise(client, reply) if when(attempts[0]) else reply

    # The same stage for both kinds of sums: of drawn documents it sends what it has said before.
    whole = lambda client, reply: noise(client, reply) if "said" in reply["masked"] else reply  # noqa: E731
    return {"changes": {COMMITTED: noise, ADDED: whole}}


class Rounds:
    """Rounds of sums in one process."""

    def __init__(self, names: str, liars: Mapping[str, Lie], policy: Policy = POLICY) -> None:
        self.doors = {}
        for name in names:
            of = door(name, half_of(name), None, policy)
            lying = lies(liars[name]) if name in liars else {}
            self.doors[name] = Client(of, name, bytes, **lying)
        self.notes = Notes()
        engine = LocalClients(self.doors, notify=self.notes)
        self.clients = SecureClients(engine, {"drawn": -1}, self.notes)

    def round(self, *functions: str, number: int = 1) -> tuple[list[dict[str, Any]], Any]:
        work = lambda: [self.clients.sum(f, TEMPLATE, round=number) for f in functions]  # noqa: E731
        return self.clients.round(number, work)

    def named(self) -> set[str]:
        return {note["client"] for note in self.notes.of("bad reply")}

    def over(self, name: str) -> dict[str, str]:
        """Over which clients sums of the same documents were opened."""
        sums = self.doors[name]._door.sums
        return {called: "".join(counted) for (_, called), counted in sums.items()}
