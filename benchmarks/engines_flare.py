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

from echo import answering, led, name_of
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
        result = led(carrier, self.clients, self.rounds, Path(self.out).parent)
        Path(self.out).write_text(json.dumps(result), encoding="utf-8")


class Client(SitePart):
    """Send back what comes."""

    def __init__(self, clients: int, rounds: int) -> None:
        super().__init__()
        self.clients = clients
        self.rounds = rounds
        self._answer: Callable[[bytes], bytes] | None = None

    def handle(self, message: bytes, context: JobContext) -> bytes:
        if self._answer is None:
            self._answer = answering(context.site, self.clients, self.rounds, context.job)
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
        client = Client(given.clients, given.rounds)
        job = make_job("benchmark", server, client, clients, workspace / "study.toml")
        before = time.time()
        simulate(job, list(clients), workspace)
        result = json.loads((workspace / RESULT).read_text(encoding="utf-8"))
    print(json.dumps({"start": result.pop("began") - before, **result}))


if __name__ == "__main__":
    main()
