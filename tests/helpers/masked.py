"""Masked sums of a tiny method: clients whose replies a test knows, and what left them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedtopics.engines.handshake import Signatures
from fedtopics.engines.links import SERVER
from fedtopics.federation.door import Door
from fedtopics.federation.policy import Policy
from fedtopics.methods.core.aggregation import Payload, Rows
from fedtopics.methods.core.interfaces import Moment
from fedtopics.methods.core.replies import Field, counts, sums
from fedtopics.pki import Identity, Signer
from fedtopics.secure import said
from fedtopics.secure.check import digest
from fedtopics.secure.door import MaskedDoor
from fedtopics.secure.field import PRIME
from fedtopics.secure.opening import Seeds
from fedtopics.secure.shares import SECRET, _commitment
from fedtopics.secure.sum import SecureClients
from tests.helpers.background import KilledError
from tests.helpers.grpc_federation import authority
from tests.helpers.hub import Hub
from tests.helpers.programs import (
    POLICY,
    PROPOSAL,
    RULES,
    Federation,
    Half,
    Member,
    Program,
    door,
    federation,
)

NAMES, NINE = "abcde", "abcdefghi"
TEMPLATE = {
    "documents": counts(),
    "x": Field((3,), 1e3, -1e3),
    "n": counts(2),
    "rows": Field((6, 2), dtype="float32", rows=True),
    "more": {"y": sums(2, most=10.0)},
}
ALL = replace(RULES, min_clients=3)
Left = tuple[str, Payload, Payload]  # which stage, what was asked, what was answered
Change = Callable[["Client", Payload], Payload]


def reply_of(name: str) -> dict[str, Any]:
    """What a client says, without masks."""
    place = NINE.index(name) + 1
    rows = Rows(np.array([place % 6]), np.array([[0.5, -place]], np.float32), 6)
    return {
        "documents": 10 * place,
        "x": np.array([place, -0.25 * place, 0.0]),
        "n": np.array([place, 1000]),
        "rows": rows,
        "more": {"y": np.array([place / 8, 1.0])},
    }


def half_of(name: str) -> Half:
    """A client that says it in both kinds of sums, in some of them what was asked besides."""
    same = lambda **_: reply_of(name)  # noqa: E731
    return Half({"drawn": same, "whole": same, "again": same})


def secret_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


class Client(MaskedDoor):
    """A client's door that keeps what left, and dies or lies where a test says so.

    Parameters
    ----------
    dies : str
        Before it answers this stage.
    falls : str
        When the answer to this stage is ready and has not left.
    changes : mapping
        By stage what to make of the answer.
    hub : Hub
        Where its links are.
    key : bytes
        That it shows in place of its own.
    skips : int
        How often it answers this stage before it dies.
    """

    def __init__(
        self, door: Any, name: str, sign: Callable[[bytes], bytes], dies: str = "",
        falls: str = "", changes: Mapping[str, Change] | None = None,
        hub: Hub | None = None, key: bytes = b"", skips: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(door, name, secret_of(name), sign)
        self.name = name
        self.left: list[Left] = []
        self.made: list[Left] = []  # whether it left or not
        self._dies, self._falls, self._changes = dies, falls, changes or {}
        self.hub = hub or Hub()
        self._shown = key
        self._skips = skips

    @property
    def key(self) -> bytes:
        return self._shown or super().key

    def call(self, function: str, payload: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
        self._maybe_die(function == self._dies and self.stages().count(function) >= self._skips)
        asked = dict(payload)
        reply = super().call(function, payload, moment)
        self.made.append((function, asked, reply))
        self._maybe_die(function == self._falls)
        if function in self._changes:
            reply = dict(self._changes[function](self, reply))
        self.left.append((function, asked, reply))
        return reply

    def _maybe_die(self, now: bool) -> None:
        if now:
            self.hub.kill(self.name)
            raise KilledError

    def stages(self) -> list[str]:
        return [stage for stage, *_ in self.left]

    def signed(self, stage: str, parts: Payload) -> dict[str, Any]:
        """What it signs in place of what it should."""
        context = self.made[-1][1]["context"]
        plain = {name: part for name, part in parts.items() if name != "signature"}
        return {**plain, "signature": self._sign(said.statement(stage, context, plain))}


def program(*functions: str, rounds: int = 1) -> Program:
    """Sums of some functions in each of some rounds; returns totals and reports."""

    def executed(engine: Any) -> list[tuple[list[dict[str, Any]], dict[str, Any]]]:
        clients = SecureClients(engine, {"drawn": -1}, engine._notify)
        found = []
        for number in range(1, rounds + 1):
            work = lambda n=number: [  # noqa: E731
                clients.sum(function, TEMPLATE, round=n) for function in functions
            ]
            found.append(clients.round(number, work))
        return found

    return executed


def plain_total(names: Sequence[str]) -> dict[str, Any]:
    """What the replies of some clients come to."""
    of = [reply_of(name) for name in names]
    rows = sum(each["rows"].dense() for each in of)
    index = np.flatnonzero(rows.any(1))
    return {
        "documents": sum(each["documents"] for each in of),
        "x": sum(each["x"] for each in of),
        "n": sum(each["n"] for each in of),
        "rows": Rows(index, rows[index], 6),
        "more": {"y": sum(each["more"]["y"] for each in of)},
    }


def assert_total(found: Mapping[str, Any], names: Sequence[str]) -> None:
    """Numbers here are such that no rounding is lost."""
    expected = plain_total(names)
    assert found.keys() == expected.keys()
    assert found["documents"] == expected["documents"]
    for name in ("x", "n"):
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype
    np.testing.assert_array_equal(found["more"]["y"], expected["more"]["y"])
    np.testing.assert_array_equal(found["rows"].index, expected["rows"].index)
    np.testing.assert_array_equal(found["rows"].values, expected["rows"].values)


# Participants


@cache
def signers() -> Mapping[str, Identity]:
    """Certificates of all clients, by one authority."""
    with TemporaryDirectory() as folder:
        made = authority(Path(folder) / "pki", *NINE)
        found = {name: Identity.load(made / "clients" / name) for name in NINE}
        return found | {"": Identity.load(made / "server")}


def sends_noise(client: Client, reply: Payload) -> Payload:
    """Masked numbers that are nobody's, which it has said and signed all the same."""
    values = np.frombuffer(os.urandom(8 * len(client._masked)), np.uint64) % np.uint64(PRIME)
    client._masked = values
    context = client.made[-1][1]["context"]
    if "masked" not in reply:
        parts = reply["said"] | {"digest": digest(values, context), "fits": said.FITS}
        return {"said": client.signed(said.COMMITTED, parts)}
    signed = client.signed(said.ADDED, {"digest": digest(values, context)})
    return {"masked": {"values": values, "said": signed}}


class Clients:
    """Real clients that sign, over a hub; who adds is another matter."""

    def __init__(self, names: Sequence[str] = NAMES, **more: Any) -> None:
        self.names = names
        self.hub = Hub()
        self.identities: dict[str, Signatures] = {n: Signer(signers()[n]) for n in names}
        self.doors: dict[str, list[Client]] = {name: [] for name in names}  # of each process
        self.members: dict[str, Member] = {}

    def wrap(self, name: str, **how: Any) -> Callable[[Door], Client]:
        def wrapped(door: Door) -> Client:
            sign = self.identities[name].sign
            self.doors[name].append(Client(door, name, sign, hub=self.hub, **how))
            return self.doors[name][-1]

        return wrapped

    def start(
        self, name: str, *functions: str, rounds: int = 1, folder: Path | None = None, **how: Any
    ) -> Member:  # fmt: skip
        """Start a client, or another process of it, that takes whoever adds for honest."""
        ledger = None if folder is None else folder / name / "ledger.jsonl"
        answering = self.wrap(name, **how)(door(name, half_of(name), ledger, POLICY))
        port, signed = self.hub.port_of(name), self.identities[name]
        todo = program(*functions, rounds=rounds)
        self.members[name] = Member(name, self.names, port, answering, todo, signed)
        return self.members[name]

    def kill(self) -> None:
        for name in self.members:
            self.hub.kill(name)

    @property
    def everything(self) -> Iterator[tuple[str, Left]]:
        """All that left, and whom."""
        for name, doors in self.doors.items():
            for each in doors:
                yield from ((name, left) for left in each.left)


@contextmanager
def masked(
    names: Sequence[str] = NAMES, *functions: str, rounds: int = 1, rules: Any = ALL,
    odd: Mapping[str, Mapping[str, Any]] | None = None, folder: Path | None = None,
    policies: Mapping[str, Policy] | None = None, policy: Policy = POLICY,
    half: Callable[[str], Half] = half_of,
    todo: Program | None = None,
) -> Iterator[tuple[Federation, Clients, dict[str, Member]]]:  # fmt: skip
    """Run a program with an honest adder, and clients of which some are odd."""
    clients = Clients(names)
    proposed = replace(PROPOSAL, study={"clients": list(names)})
    known = clients.identities | {SERVER: Signer(signers()[""])}
    with federation(names, rules, clients.hub, signatures=known, proposal=proposed) as f:
        todo = todo or program(*functions, rounds=rounds)
        f.program = todo  # type: ignore[attr-defined]
        members = {}
        for name in names:
            how = (odd or {}).get(name, {})
            ledger = None if folder is None else folder / name / "ledger.jsonl"
            members[name] = f.member(
                name, half(name), todo, ledger, (policies or {}).get(name, policy),
                wrap=clients.wrap(name, **how),
            )  # fmt: skip
        yield f, clients, members


def left_of(clients: Clients, name: str) -> list[str]:
    return [stage for door in clients.doors[name] for stage in door.stages()]


# What was opened


def opened(everything: Iterator[tuple[str, Left]]) -> dict[tuple[bytes, str], set[str]]:
    """Return which kinds of seeds were told, or shares of them, by context and client.

    A share has the digest of what it is of.
    """
    told: dict[tuple[bytes, str], set[str]] = {}
    for name, (stage, asked, reply) in everything:
        if stage not in (said.OPENED, said.RECOVERED):
            continue
        context, parts = asked["context"], reply["said"]
        if "own" in parts:
            told.setdefault((context, name), set()).add("own")
        kinds = {}
        for each in NAMES:
            seeds = Seeds.of(_masks_of(each), context)
            kinds[_commitment(seeds.pairs)] = each, "pairs"
            kinds[_commitment(seeds.own)] = each, "own"
        shares = parts["shares"]
        for place in range(0, len(shares), SECRET + 32):
            of, kind = kinds[shares[place + SECRET : place + SECRET + 32]]
            told.setdefault((context, of), set()).add(kind)
    return told


def _masks_of(name: str) -> bytes:
    found: bytes = Client(None, name, bytes)._secret
    return found
