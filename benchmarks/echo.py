"""Clients that give back what they get, and rounds of that: an engine without a method."""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fedtopics.engines.attendance import Rules
from fedtopics.engines.message_client import MessageClient
from fedtopics.engines.message_server import MessageServer
from fedtopics.engines.rounds import RemoteClients

from fedtopics.engines.handshake import Proposal
from fedtopics.engines.messages import Carrier
from fedtopics.federation.door import Door
from fedtopics.federation.ledger import Ledger
from fedtopics.federation.policy import OPEN_POLICY
from fedtopics.methods.base import Clients

PROPOSAL = Proposal("0", "gfedntm", 1, {}, "benchmark")
VERSIONS = ("0", {"gfedntm": 1})
LONGEST = 900.0  # seconds
SIZES = {"4 KB": 1 << 10, "2 MB": 1 << 19, "8 MB": 1 << 21}  # floats


class Echo:
    """A client half that gives back what it gets, and says how much memory its process has."""

    method = "gfedntm"
    published = ("echo", "memory")

    def echo(self, values: Any) -> dict[str, Any]:
        return {"values": values, "documents": 100}

    def memory(self) -> dict[str, Any]:
        return {"megabytes": peak_megabytes(os.getpid()), "documents": 100}


class Participant:
    """Joins whatever is proposed."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._ledger = folder / f"{name}.jsonl"

    def consider(self, proposal: Proposal) -> Door:
        return echoing(self._name, self._ledger)

    def receive(self, files: Mapping[str, Any]) -> None:
        pass

    def diagnose(self) -> str:
        return ""


def echoing(name: str, ledger: Path) -> Door:
    half: Any = Echo()
    return Door(name, half, OPEN_POLICY, Ledger("gfedntm", "benchmark", ledger))


def by_messages(carrier: Carrier, n_clients: int) -> RemoteClients:
    """Return the clients at the other ends of a carrier."""
    names = [name_of(number) for number in range(n_clients)]
    rules = Rules(n_clients, LONGEST, LONGEST, LONGEST)
    return RemoteClients(MessageServer(PROPOSAL, names, carrier), rules, lambda *_, **__: None)


def answering(name: str, folder: Path) -> Callable[[bytes], bytes]:
    """Return what answers a client's messages."""
    participant = Participant(name, folder)
    return MessageClient(name, participant, VERSIONS, lambda *_, **__: None).answer


def name_of(number: int) -> str:
    return f"client-{number:03d}"


def echo(clients: Clients, floats: int) -> float:
    """Do a round: so many floats to each client and back; return its seconds."""
    values = np.ones(floats, np.float32)
    before = time.perf_counter()
    total = clients.sum("echo", {"values": (floats,), "documents": ()}, values=values)
    seconds = time.perf_counter() - before
    if total["values"][0] != len(clients.names):
        raise ValueError(total["values"][0])
    return seconds


def latencies(clients: Clients, rounds: int) -> dict[str, Any]:
    """Return the median seconds of rounds of each size, and a client's memory after them."""
    found: dict[str, Any] = {}
    for size, floats in SIZES.items():
        echo(clients, floats)  # warms up
        found[size] = statistics.median(echo(clients, floats) for _ in range(rounds))
    memory = clients.call("memory")
    found["client_mb"] = statistics.median(reply["megabytes"] for reply in memory.values())
    return found


def peak_megabytes(process: int | str) -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) // 1024 if found else 0
