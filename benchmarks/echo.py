"""Participants whose clients give back what they get, and exchanges of that: no method.

As in a study, all execute the same program; the server adds and has nothing itself.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedtopics.engines.adder import Rules
from fedtopics.engines.answering import CarriedParticipant
from fedtopics.engines.carried import CarriedTransport, Carrier
from fedtopics.engines.disk_log import DiskLog
from fedtopics.engines.exchange import Exchange
from fedtopics.engines.handshake import Introduction, Proposal, Signatures, Unsigned
from fedtopics.engines.links import SERVER
from fedtopics.engines.log import Log
from fedtopics.engines.node import Node
from fedtopics.engines.replica import Replica
from fedtopics.engines.transport import Transport
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.participant import ALONE
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.core.interfaces import Clients
from fedtopics.methods.core.replies import COUNT, Field

PROPOSAL = Proposal("0", "gfedntm", 1, {}, "benchmark")
RUN = b"benchmark"
LONGEST = 900.0  # seconds
SIZES = {"4 KB": 1 << 10, "2 MB": 1 << 19, "8 MB": 1 << 21}  # floats
Block = Sequence[int]
"""How many exchanges, of how many floats: one round."""


class Echo:
    """A client half that gives back what it gets, and says how much memory its process has."""

    method = "gfedntm"
    published = ("echo", "memory")
    attempt, summed, noisy = 1, 0, False

    def echo(self, values: Any) -> dict[str, Any]:
        return {"values": values, "documents": 100}

    def memory(self) -> dict[str, Any]:
        return {"megabytes": peak_megabytes(os.getpid()), "documents": 100}


def echoing(name: str, ledger: Path) -> Door:
    half: Any = Echo()
    return Door(name, half, OPEN_POLICY, Ledger("gfedntm", "benchmark", ledger))


@contextmanager
def leading(
    transport: Transport, n_clients: int, folder: Path, signatures: Signatures | None = None
) -> Iterator[Exchange]:
    """Give a server's program its clients, at the other ends of a transport."""
    names = names_of(n_clients)
    introduction = Introduction(SERVER, PROPOSAL, RUN, signatures or Unsigned())
    node = Node(SERVER, names, transport, introduction, lambda _: None)
    log = DiskLog(folder / "log", RUN)
    rules = Rules(n_clients, LONGEST, LONGEST, LONGEST)
    exchange = Forgetting(node, rules, lambda _: None)
    node.start(Replica(SERVER, [SERVER], names, log, now=node.now()))
    try:
        yield exchange
        node.wait_until_done(LONGEST)
    finally:
        node.stop()
        log.close()


class Forgetting(Exchange):
    """A server's, which forgets decisions as one with checkpoints does."""

    def round(self, number: int, *rest: Any) -> Any:
        """Do a round; forget those before."""
        self._node.cut(self.index)
        return super().round(number, *rest)


def take_part(
    transport: Transport, name: str, n_clients: int, folder: Path,
    program: Callable[[Exchange], Any], signatures: Signatures | None = None,
) -> None:  # fmt: skip
    """Execute the program as a client."""
    signed = signatures or Unsigned()
    unknown = Introduction(name, PROPOSAL, b"", signed)
    node = Node(name, (), transport, unknown, lambda _: None, keeps=False)
    node.start()
    try:
        link, offer = node.offered()
        names = names_of(n_clients)
        replica = Replica(name, [SERVER], names, Log(RUN), now=node.now())
        door = echoing(name, folder / f"{name}.jsonl")
        exchange = Exchange(node, ALONE, lambda _: None, name, door)
        node.join(link, offer, names, Introduction(name, PROPOSAL, offer.run, signed), replica)
        program(exchange)
        node.done()
    finally:
        node.stop()


def led(carrier: Carrier, n_clients: int, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure over an engine's carrier; return what it took."""
    with leading(CarriedTransport(carrier), n_clients, folder) as clients:
        echo(clients, 1)
        return {"began": time.time(), **latencies(clients, rounds)}


def answering(name: str, n_clients: int, rounds: int, folder: Path) -> Callable[[bytes], bytes]:
    """Return what answers a client's bundles."""

    def program(clients: Exchange) -> None:
        echo(clients, 1)
        latencies(clients, rounds)

    def live(transport: Transport) -> None:
        take_part(transport, name, n_clients, folder, program)

    return CarriedParticipant(name, live).answer


def name_of(number: int) -> str:
    return f"client-{number:03d}"


def names_of(n_clients: int) -> list[str]:
    return [name_of(number) for number in range(n_clients)]


def echo(clients: Clients, floats: int, exchanges: int = 1) -> list[float]:
    """Do a round: so many floats from each client, and their sum to each; return the seconds.

    An exchange lasts from the total before it until its own total: its clients get the one before,
    and answer. So the first one of the round is not measured, but for a single one.
    """
    values = np.ones(floats, np.float32)
    template = {"values": Field((floats,), dtype="float32"), "documents": COUNT}

    def work() -> list[float]:
        times = [time.perf_counter()]
        for _ in range(exchanges + 1 if exchanges > 1 else 1):
            total = clients.sum("echo", template, values=values)
            times.append(time.perf_counter())
            if total["values"][0] != len(clients.names):
                raise ValueError(total["values"][0])
        seconds = [after - before for before, after in pairwise(times)]
        return seconds[-exchanges:]

    return clients.round(1, work)[0]


def latencies(clients: Clients, rounds: int) -> dict[str, Any]:
    """Return the median seconds of exchanges of each size, and a client's memory after them."""
    found: dict[str, Any] = {}
    for size, floats in SIZES.items():
        found[size] = statistics.median(echo(clients, floats, rounds))
    memory = clients.call("memory")
    found["client_mb"] = statistics.median(reply["megabytes"] for reply in memory.values())
    return found


def peak_megabytes(process: int | str) -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) // 1024 if found else 0
