"""Rounds through NVIDIA FLARE's simulator: seconds to begin and to end, latency, memory a client.

Prints JSON. Needs an environment with nvflare: `make test-flare` makes one.

    .venv-flare/bin/python benchmarks/engines_flare.py
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from echo import answering, by_messages, echo, latencies, name_of
from fedtopics.integrations.flare_carrier import FlareCarrier, JobContext, ServerPart, SitePart
from fedtopics.integrations.flare_jobs import make_job, simulate

RESULT = "result.json"


class Server(ServerPart):
    """Do the rounds, write what they took."""

    def __init__(self, out: str, clients: int, rounds: int) -> None:
        self.out = out
        self.clients = clients
        self.rounds = rounds

    def lead(self, carrier: FlareCarrier, context: JobContext) -> None:
        clients = by_messages(carrier, self.clients)
        echo(clients, 1)
        result = {"began": time.time(), **latencies(clients, self.rounds)}
        Path(self.out).write_text(json.dumps(result), encoding="utf-8")


class Client(SitePart):
    """Send back what comes."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: Callable[[bytes], bytes] | None = None

    def handle(self, message: bytes, context: JobContext) -> bytes:
        if self._answer is None:
            self._answer = answering(context.site, context.job)
        return self._answer(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    clients = {name_of(number): dict[str, str]() for number in range(given.clients)}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        (workspace / "study.toml").write_text("")
        # Named by its module, as the sites' processes import it.
        from engines_flare import Client, Server

        server = Server(str(workspace / RESULT), given.clients, given.rounds)
        job = make_job("benchmark", server, Client(), clients, workspace / "study.toml")
        before = time.time()
        simulate(job, list(clients), workspace)
        result = json.loads((workspace / RESULT).read_text(encoding="utf-8"))
    print(json.dumps({"start": result.pop("began") - before, **result}))


if __name__ == "__main__":
    main()
