"""Who adds up masked sums by hand: honestly, or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from fedtopics.engines.decisions import ADDED, BEGUN
from fedtopics.engines.messages import Reply
from fedtopics.errors import FedTopicsError
from fedtopics.methods.core.aggregation import Payload
from fedtopics.pki import Signer
from fedtopics.secure import said
from fedtopics.secure.field import Residues, add
from tests.helpers.background import until
from tests.helpers.liars import Liar
from tests.helpers.masked import NAMES, Clients, left_of, signers
from tests.helpers.programs import ORIGIN, PROPOSAL, RUN

DRAWN = said.COMMITTED, said.ADDED, said.CHECKED  # the stages of a sum of drawn documents
WHOLE = said.PREPARED, said.ADDED, said.AGREED, said.OPENED  # of the same at each attempt
Decided = dict[str, Any]
Lie = Callable[[str, Decided], Decided]


class Adder(Liar):
    """Adds up masked sums as it likes; keeps a log for each client."""

    def __init__(self, clients: Clients, *real: str) -> None:
        friends = {n: s for n, s in clients.identities.items() if real and n not in real}
        proposed = replace(PROPOSAL, study={"clients": list(clients.names)})
        super().__init__(
            clients.names, proposed, ORIGIN, clients.hub.listen(), RUN, pretends=friends
        )
        self.past: list[dict[str, Any]] = []  # what exchanges came to, in truth
        self._introduction._signatures = Signer(signers()[""])

    def step(
        self, names: Sequence[str], tell: Callable[[str, dict[str, Any]], Any] = lambda _, d: d,
        add_up: Sequence[str] = (),
    ) -> dict[str, Reply]:  # fmt: skip
        """Take the answers of clients, and tell all what it comes to; by default the truth."""
        replies = {name: self.hear(name, Reply) for name in names}
        counted = add_up or names
        for name in self.logs:
            self.decide(name, ADDED, tell(name, self.true(replies, counted)))
        self.there = list(counted)
        self.past.append(self.true(replies, counted))
        return replies

    def true(self, replies: Mapping[str, Reply], counted: Sequence[str]) -> dict[str, Any]:
        """What an exchange comes to, if the others are lost."""
        of = {name: replies[name] for name in counted}
        decided = {
            "index": next(iter(of.values())).index, "missing": {
                name: "its connection was lost" for name in self.there if name not in of
            }, "again": False, "signatures": {n: r.signature for n, r in of.items()},
        }  # fmt: skip
        first = next(iter(of.values())).reply
        if "masked" not in first:
            return decided | {"replies": {name: r.reply for name, r in of.items()}}
        return decided | {"total": {"masked": masked_total({n: r.reply for n, r in of.items()})}}

    def start(
        self, *names: str, turn: int = 1, change: Callable[[Any], None] = lambda begun: None,
        **other: Any,
    ) -> None:  # fmt: skip
        """Begin with some clients."""
        self.joined(*names)
        self.there = list(names)
        for name in names:
            begun = self.begun(turn, **{"round": turn, "members": list(names), **other})
            for field in ("certificates", "keys"):
                begun[field] = {n: begun[field][n] for n in begun["members"]}
            change(begun)
            self.decide(name, BEGUN, begun)


def masked_total(replies: Mapping[str, Payload]) -> dict[str, Any]:
    total: Residues | None = None
    for reply in replies.values():
        values = reply["masked"]["values"]
        if total is None:
            total = values.copy()
        else:
            add(total, values)
    found: dict[str, Any] = {"values": total}
    if "said" in next(iter(replies.values()))["masked"]:
        found["said"] = {name: reply["masked"]["said"] for name, reply in replies.items()}
    return found


def begun(clients: Clients, *functions: str, **how: Any) -> Adder:
    """Start clients and who adds up, and let a round begin."""
    liar = Adder(clients)
    for name in clients.names:
        clients.start(name, *functions, **how)
    liar.start(*clients.names)
    return liar


def stops(
    clients: Clients, liar: Adder, said: str, left: Sequence[str], names: Sequence[str] = ()
) -> None:
    """Each client ends with a sentence; this is all that left it."""
    members = [clients.members[name] for name in names or clients.names]

    def ended() -> bool:
        liar.take()
        return not any(member.work.running for member in members)

    until(ended)
    for member in members:
        error = member.work.error()
        assert isinstance(error, FedTopicsError), repr(error)
        assert said in str(error)
        assert left_of(clients, member.name) == list(left)


def added(change: Callable[[Any], None], to: Sequence[str] = NAMES) -> Lie:
    """Change what some clients are told."""

    def lie(name: str, decided: Decided) -> Decided:
        told = deepcopy(decided)
        if name in to:
            change(told)
        return told

    return lie
