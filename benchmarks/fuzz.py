"""Damaged messages to relay, member, plain server, decoder and port: read, or refused.

Whatever is not a FedTopicsError is a finding, and so is a message that takes over a second.
"""

import copy
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.__main__ import sources
from benchmarks.common import arguments, each_group, measured, table, write
from fedtopics.contract.payload import CountsByWord, SparseRows
from fedtopics.errors import FedTopicsError
from fedtopics.protocol import plain_server, relay
from fedtopics.protocol.member import Member
from fedtopics.protocol.messages import Answer, Ask, Body, List, decode, encode
from fedtopics.protocol.plain import PlainAsk, PlainReply
from fedtopics.protocol.plain_log import Log
from fedtopics.protocol.plain_server import PlainServer
from fedtopics.protocol.relay import Relay, RelayService
from fedtopics.protocol.roster import Key, Roster
from fedtopics.protocol.values import dumps, loads
from fedtopics.transport.grpc import GrpcLink, GrpcServer
from tests.helpers.damage import mutate
from tests.protocol.three import NAMES, VECTORS, Run, honest

BLOCKS = {
    "values": (50, 10_000),
    "relay": (20, 5_000),
    "member": (20, 5_000),
    "plain": (20, 5_000),
    "port": (10, 500),
}  # how many, of how many messages
QUICK = {
    "values": (1, 2_000),
    "relay": (1, 500),
    "member": (1, 500),
    "plain": (1, 500),
    "port": (1, 60),
}
LARGEST = 1 << 24  # bytes of a message
SLOWEST = 1.0  # seconds
Try = Callable[[bytes], object]


def a_reply() -> bytes:
    """Return a reply with all kinds of fields."""
    sparse = np.zeros((600, 8), np.float32)
    sparse[::37] = 0.5
    return dumps(
        {
            "documents": 52,
            "loss": 813.5,
            "gradients": {"topics": np.ones((4, 40)), "bias": sparse},
            "rows": SparseRows(np.array([1, 7]), np.ones((2, 3)), 9),
            "words": CountsByWord([f"word{i}" for i in range(40)], np.ones((40, 3), np.int64)),
        }
    )


def a_step(kind: Any) -> tuple[Run, list[bytes]]:
    """Return three members before the total of a step, and all that they send."""
    run = Run()
    run.give("step", kind, VECTORS)
    run.show_list()
    list_ = run.members["ann"].record.list_digest
    bodies = [encode(Body(list_, name, content)) for name, content in run.bodies.items()]
    stop = copy.copy(run.members["ann"]).stop("reason")
    return run, [*run.parts.values(), *bodies, *stop, run.members["ann"].question()]


@contextmanager
def values() -> Iterator[tuple[list[bytes], Try]]:
    yield [a_reply()], lambda raw: loads(raw, LARGEST)


def forget(content: bytes) -> None:
    """Keep nothing."""


def asked(receiver: Relay, raw: bytes) -> object:
    return receiver.ask("ann", decode(raw, Ask))


def answered(member: Member, raw: bytes) -> object:
    return copy.copy(member).answer(decode(raw, Answer).message)


@contextmanager
def to_relay() -> Iterator[tuple[list[bytes], Try]]:
    steps = [a_step("sum"), a_step("call")]

    def take(raw: bytes) -> None:
        for run, _ in steps:
            receiver = Relay(NAMES, b"", forget)
            for name, part in run.parts.items():
                receiver.say(name, part)
            refused(partial(receiver.say, "ann", raw))
            refused(partial(asked, receiver, raw))

    yield [message for _, sent in steps for message in sent], take


@contextmanager
def to_member() -> Iterator[tuple[list[bytes], Try]]:
    steps = [a_step("sum")[0], a_step("call")[0]]
    real = [encode(Answer(List([*run.parts.values()]))) for run in steps]
    real += [honest(run, "bob", run.bodies) for run in steps]

    def take(raw: bytes) -> None:
        for run in steps:
            copy.copy(run.members["bob"]).open(raw)
            refused(partial(answered, run.members["bob"], raw))

    yield real, take


def an_ask(phase: Any, step: int = 0) -> bytes:
    return encode(PlainAsk("software", b"", step, phase))


@contextmanager
def to_plain_server() -> Iterator[tuple[list[bytes], Try]]:
    phases = ("begin", "reply", "done", "left")
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder) / "log", 0)
        server = PlainServer(NAMES, "software", log, LARGEST, lambda: b"", lambda event: None)

        def take(raw: bytes) -> None:
            for call in (server.ask, server.say, server.fetch):
                refused(partial(call, "ann", raw))

        yield [*map(an_ask, phases), encode(PlainReply(0, a_reply()))], take


@contextmanager
def to_port() -> Iterator[tuple[list[bytes], Try]]:
    """Send to a relay's port as a member, and as a stranger without a certificate."""
    run, sent = a_step("sum")
    with tempfile.TemporaryDirectory() as folder:
        keys = {name: Key.create(Path(folder) / name, name) for name in (*NAMES, "server")}
        roster = Roster({n: keys[n].certificate for n in NAMES}, keys["server"].certificate)
        service = RelayService(Relay(NAMES, b"", forget), LARGEST)
        server_key = keys["server"]
        ann = keys["ann"]
        address = "127.0.0.1:0"
        server = GrpcServer(
            service, address, server_key.in_pem(), server_key.certificate, roster.members
        )
        link = GrpcLink(server.address, ann.in_pem(), ann.certificate, server_key.certificate)

        def take(raw: bytes) -> None:
            with socket.create_connection(("127.0.0.1", server.port), 5) as stranger:
                stranger.sendall(raw)
            for call in (link.ask, link.say, link.fetch):
                try:
                    call(raw)
                except FedTopicsError as error:
                    if "does not answer" in str(error):  # what grpc says of any other exception
                        raise RuntimeError(str(error)) from None

        yield sent, take
        link.ask(run.members["ann"].question())  # it still serves
        link.close()
        server.close()


PARTS = {
    "values": values,
    "relay": to_relay,
    "member": to_member,
    "plain": to_plain_server,
    "port": to_port,
}


def refused(call: Callable[[], object]) -> bool:
    """Return whether a call is refused in a sentence."""
    try:
        call()
    except FedTopicsError:
        return True
    return False


def block(task: dict[str, Any]) -> dict[str, Any]:
    """Damage so many messages; return how many were refused, and what was found."""
    r = random.Random(task["seed"])  # noqa: S311
    findings = []
    number = 0
    slowest = 0.0
    begun = time.monotonic()
    with PARTS[task["part"]]() as (real, take):
        for place in range(task["messages"]):
            raw = bytearray(r.choice(real))
            for _ in range(r.randrange(1, 5)):
                mutate(raw, r)
            before = time.perf_counter()
            try:
                number += refused(partial(take, bytes(raw)))
            except Exception as error:
                findings.append(f"message {place}: {error!r}")
            slowest = max(slowest, time.perf_counter() - before)
    if slowest > SLOWEST:
        findings.append(f"one message took {slowest:.1f} s")
    seconds = time.monotonic() - begun
    return {"refused": number, "slowest": slowest, "seconds": seconds, "findings": findings[:20]}


def main() -> None:
    given = arguments(__doc__)
    version = sources()
    # An ask that has no answer yet is answered at once.
    vars(plain_server)["HOLD"] = vars(relay)["HOLD"] = 0.0
    rows = measured(
        given,
        [
            {"part": part, "seed": seed, "messages": messages, "sources": version}
            for part, (number, messages) in (QUICK if given.quick else BLOCKS).items()
            for seed in range(number)
        ],
        block,
    )
    lines = []
    for (part,), block_rows in each_group(rows, "part"):
        slowest = 1e3 * max(row["slowest"] for row in block_rows)
        messages, seconds = (
            sum(row[name] for row in block_rows) for name in ("messages", "seconds")
        )
        lines.append([part, f"{messages:,}", len(block_rows), f"{slowest:.1f}", f"{seconds:.0f}"])
    findings = [f"{row['part']}, seed {row['seed']}: {f}" for row in rows for f in row["findings"]]
    write(
        given,
        [
            "Real messages with random damage, seeds from 0 on. A finding is an exception that is "
            f"no FedTopicsError, or a message that takes over {SLOWEST:g} s. Command: "
            f"`make stress NAME=fuzz`. Findings: {len(findings) or 'none'}.",
            "",
            *table("to | messages | blocks | slowest, ms | s", lines),
            *(["", *(f"- {finding}" for finding in findings)] if findings else []),
        ],
    )
    if findings:
        raise SystemExit(1)
