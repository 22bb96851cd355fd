"""What each engine costs without a method: five clients that give back what they get.

An exchange gets an array from each client and brings the sum to all, by door, ledger and checks.
Local: one process. gRPC: a server and five processes, mutual TLS, loopback. Flower: SuperLink and
five SuperNodes with TLS and keys. FLARE: its simulator, a process a site. One engine after the
other; those of Flower and FLARE in environments of their own, and left out where these are missing.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import rounds as exchanges
from benchmarks.common import ROOT, apart, arguments, memory_mb, table, write
from benchmarks.federated import free_port
from benchmarks.rounds import echo, latencies, leading, names_of
from benchmarks.rounds import start as start_contestant
from fedtopics.engines.answering import CarriedParticipant
from fedtopics.engines.carried import CarriedTransport, Carrier
from fedtopics.engines.exchange import Exchange
from fedtopics.federation.local import LocalClients
from fedtopics.integrations.resident_process import answer_messages, ask
from fedtopics.engines.transport import Transport

CLIENTS = 5
LONGEST = 900.0  # seconds for everything
APP = """
[project]
name = "rounds"
version = "1.0.0"
description = "A benchmark"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fedtopics"
[tool.flwr.app.components]
serverapp = "server_app:app"
clientapp = "client_app:app"
[tool.flwr.app.config]
out = ""
rounds = 5
"""


def local(rounds: int) -> dict[str, Any]:
    before = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        names = names_of(CLIENTS)
        place = Path(folder)
        clients = LocalClients({n: exchanges.echoing(n, place / f"{n}.jsonl") for n in names})
        echo(clients, 1)
        start = time.perf_counter() - before
        return {"start": start, **latencies(clients, rounds)}


def grpc(rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        exchanges.certify(Path(name), CLIENTS)
        before = time.perf_counter()
        sizes = exchanges.SIZES.values()
        blocks: list[exchanges.Block] = [(1, 1), *((rounds, floats) for floats in sizes)]
        contestant = start_contestant("ours", CLIENTS, blocks, Path(name))
        contestant.ask()
        found: dict[str, Any] = {"start": time.perf_counter() - before}
        found |= {size: statistics.median(contestant.ask()["seconds"]) for size in exchanges.SIZES}
        found["client_mb"] = max(map(memory_mb, children(contestant.process.pid)))
        contestant.close()
        return found


def children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()


# Over an engine that carries messages: its server's side, and a client's.


def led(carrier: Carrier, rounds: int, folder: Path) -> dict[str, Any]:
    with leading(CarriedTransport(carrier), CLIENTS, folder) as clients:
        echo(clients, 1)
        return {"began": time.time(), **latencies(clients, rounds)}


def answering(name: str, rounds: int, folder: Path) -> Callable[[bytes], bytes]:
    def program(clients: Exchange) -> None:
        echo(clients, 1)
        latencies(clients, rounds)

    def live(transport: Transport) -> None:
        exchanges.take_part(transport, name, CLIENTS, folder, program)

    return CarriedParticipant(name, live).answer


def flare(rounds: int) -> dict[str, Any]:
    """Do the rounds in NVIDIA FLARE's simulator; runs in its environment."""
    from benchmarks.engines_flare import Client, Server  # as the sites' processes import them
    from fedtopics.integrations.flare_jobs import make_job, simulate

    clients = {name: dict[str, str]() for name in names_of(CLIENTS)}
    with tempfile.TemporaryDirectory() as folder:
        workspace, result = Path(folder), Path(folder) / "result.json"
        (workspace / "study.toml").write_text("")
        server, client = Server(str(result), rounds), Client(rounds)
        job = make_job("benchmark", server, client, clients, workspace / "study.toml")
        before = time.time()
        simulate(job, list(clients), workspace)
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return {"start": found.pop("began") - before, **found}


def server_app() -> Any:
    """Do the rounds, write what they took: Flower's ServerApp."""
    from flwr.serverapp import ServerApp

    from fedtopics.integrations.flower_carrier import GridCarrier

    def work(grid: Any, context: Any) -> None:
        out = Path(context.run_config["out"])
        result = led(GridCarrier(grid), context.run_config["rounds"], out.parent)
        out.write_text(json.dumps(result), encoding="utf-8")

    app = ServerApp()
    app.main()(work)
    return app


def client_app() -> Any:
    """Ask the resident process, which sends back what comes: Flower's ClientApp."""
    from flwr.clientapp import ClientApp

    from fedtopics.integrations.flower_carrier import answer, unwrapped

    def reply(message: Any, context: Any) -> Any:
        folder, rounds = context.node_config["out"], context.run_config["rounds"]
        command = [sys.executable, "-m", "benchmarks.worker", "engines", "be_a_client"]
        command.append(json.dumps([folder, rounds]))
        return answer(message, ask(Path(folder), unwrapped(message), command))

    app = ClientApp()
    app.query()(reply)
    return app


def be_a_client(folder: str, rounds: int) -> None:
    place = Path(folder)
    answer_messages(place, answering(place.name, rounds, place), lambda: 30.0)


class Flower:
    """SuperLink and SuperNodes in a folder; runs in Flower's environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = os.environ | {
            "FLWR_HOME": str(folder / "flwr"), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip

    def start(self, *command: str) -> None:
        """Start a process of its own group."""
        name = f"{Path(command[0]).name}-{len(self.processes)}.log"
        with (self.folder / name).open("wb") as log:
            self.processes.append(subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            ))  # fmt: skip

    def run(self, *command: str) -> None:
        how: dict[str, Any] = {"cwd": self.folder, "env": self.environment}
        subprocess.run(command, check=True, capture_output=True, **how)

    def begin(self) -> None:
        """Start all, with certificates and keys."""
        address, own = f"127.0.0.1:{self.port}", "pki/server/"
        self.run("fedtopics", "pki", "create", "pki", "--server", "127.0.0.1")
        (self.folder / "flwr").mkdir()
        (self.folder / "flwr/config.toml").write_text(
            f'[superlink.ours]\naddress = "{address}"\n'
            f'root-certificates = "{self.folder}/pki/ca.crt"\n'
        )
        self.start(
            "flower-superlink", "--host", "127.0.0.1", "--port", str(self.port),
            "--ssl-ca-certfile", f"{own}ca.crt", "--ssl-certfile", f"{own}server.crt",
            "--ssl-keyfile", f"{own}server.key", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        for number in range(CLIENTS):
            key, place = f"key-{number}", self.folder / names_of(CLIENTS)[number]
            self.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key)
            self.run("flwr", "supernode", "register", f"{key}.pub", "ours")
            self.start(
                "flower-supernode", "--superlink", address,
                "--root-certificates", "pki/ca.crt", "--auth-supernode-private-key", key,
                "--port", str(free_port()), "--node-config", f'out="{place}"',
            )  # fmt: skip

    def end(self) -> None:
        """End all processes that were started, and those that they began."""
        mine = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mine in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
        for started in self.processes:
            started.wait()


def flower(rounds: int) -> dict[str, Any]:
    """Do the rounds over Flower; runs in its environment."""
    with tempfile.TemporaryDirectory() as name:
        folder, result = Path(name), Path(name) / "result.json"
        app = folder / "app"
        app.mkdir()
        (app / "pyproject.toml").write_text(APP)
        for side in ("server_app", "client_app"):
            text = f"from benchmarks.engines import {side}\n\napp = {side}()\n"
            (app / f"{side}.py").write_text(text)
        federation = Flower(folder)
        try:
            before = time.time()
            federation.begin()
            config = f'out="{result}" rounds={rounds}'
            federation.run("flwr", "run", "app", "ours", "--run-config", config)
            while not result.exists() and time.time() < before + LONGEST:
                time.sleep(0.2)
            node = federation.processes[1].pid
            own = sum(map(memory_mb, (str(node), *children(node))))
            found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        finally:
            federation.end()
    found["client_mb"] += own
    return {"start": found.pop("began") - before, **found}


def main() -> None:
    given = arguments(__doc__, rounds=20)
    rounds = 2 if given.quick else given.rounds
    rows, missing = {"local": local(rounds), "gRPC": grpc(rounds)}, []
    for name, measure in {"NVIDIA FLARE": flare, "Flower": flower}.items():
        python = ROOT / f".venv-{measure.__name__}" / "bin/python"
        if python.exists() and not given.quick:
            number = min(rounds, 5) if name == "Flower" else rounds
            rows[name] = apart(measure, number, python=str(python))
        else:
            missing.append(name)
    lines = [
        (name, f"{row['start']:.1f}", *(f"{1e3 * row[size]:,.1f}" for size in exchanges.SIZES),
         f"{row['client_mb']:,.0f}")
        for name, row in rows.items()
    ]  # fmt: skip
    sizes = " | ".join(f"{size}, ms" for size in exchanges.SIZES)
    write(given, [
        f"{CLIENTS} clients; median of 20 exchanges (Flower: 5). *Start*: until all clients "
        "answer. *Memory*: the most that a client's processes have had; local: all clients and "
        "the server. Command: `make bench NAME=engines`.", "",
        *table(f"engine | start, s | {sizes} | memory, MB", lines),
        f"\nLeft out: {' and '.join(missing)}." if missing else "",
    ])  # fmt: skip
