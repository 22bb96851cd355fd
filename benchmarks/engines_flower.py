"""Rounds through Flower: seconds to begin, latency of a round, memory a client.

A SuperLink and its SuperNodes, each with TLS and a key, on loopback. Prints JSON. Needs an
environment with flwr: `make test-flower` makes one.

    .venv-flower/bin/python benchmarks/engines_flower.py
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

RESULT = "result.json"
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
clients = 5
rounds = 5
"""


def server_app() -> Any:
    """Do the rounds, write what they took."""
    from flwr.serverapp import ServerApp

    from echo import led
    from fedtopics.integrations.flower_carrier import GridCarrier

    def work(grid: Any, context: Any) -> None:
        config = context.run_config
        out = Path(config["out"])
        result = led(GridCarrier(grid), config["clients"], config["rounds"], out.parent)
        out.write_text(json.dumps(result), encoding="utf-8")

    app = ServerApp()
    app.main()(work)
    return app


def client_app() -> Any:
    """Ask the resident process, which sends back what comes."""
    from flwr.clientapp import ClientApp

    from fedtopics.engines.resident_process import ask
    from fedtopics.integrations.flower_carrier import answer, unwrapped

    def reply(message: Any, context: Any) -> Any:
        folder = Path(context.node_config["out"])
        given = [f"--{key}={context.run_config[key]}" for key in ("clients", "rounds")]
        command = [sys.executable, __file__, "--resident", str(folder), *given]
        return answer(message, ask(folder, unwrapped(message), command))

    app = ClientApp()
    app.query()(reply)
    return app


def be_a_client(folder: Path, clients: int, rounds: int) -> None:
    """Be the resident process beside a SuperNode, with all that a client's half loads."""
    from echo import answering
    from fedtopics.engines.resident_process import answer_messages

    answer_messages(folder, answering(folder.name, clients, rounds, folder), lambda: 30.0)


class Federation:
    """SuperLink and SuperNodes in a folder."""

    def __init__(self, folder: Path, clients: int) -> None:
        self.folder, self.clients = folder, clients
        self.address = f"127.0.0.1:{free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        here = Path(sys.executable).parent
        self.environment = os.environ | {
            "FLWR_HOME": str(folder / "flwr"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONPATH": str(Path(__file__).parent),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, *command: str) -> None:
        """Start a process of its own group."""
        name = f"{Path(command[0]).name}-{len(self.processes)}.log"
        with (self.folder / name).open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes.append(process)

    def run(self, *command: str) -> None:
        """Run a command to its end."""
        subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, capture_output=True
        )

    def begin(self) -> None:
        """Start all, with certificates and keys."""
        self.run("fedtopics", "pki", "create", "pki", "--server", "127.0.0.1")
        (self.folder / "flwr").mkdir()
        (self.folder / "flwr/config.toml").write_text(
            f'[superlink.ours]\naddress = "{self.address}"\n'
            f'root-certificates = "{self.folder}/pki/ca.crt"\n'
        )
        own = "pki/server/"
        self.start(
            "flower-superlink", "--host", "127.0.0.1", "--port", self.address.split(":")[1],
            "--ssl-ca-certfile", f"{own}ca.crt", "--ssl-certfile", f"{own}server.crt",
            "--ssl-keyfile", f"{own}server.key", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        while not answers_at(self.address):
            time.sleep(0.1)
        for number in range(self.clients):
            key, place = f"key-{number}", self.folder / f"client-{number:03d}"
            self.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", key)
            self.run("flwr", "supernode", "register", f"{key}.pub", "ours")
            self.start(
                "flower-supernode", "--superlink", self.address,
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

    def megabytes(self) -> int:
        """Most memory of Flower's two processes of a client."""
        from echo import peak_megabytes

        node = self.processes[1].pid
        children = Path(f"/proc/{node}/task/{node}/children").read_text(encoding="utf-8").split()
        return sum(peak_megabytes(process) for process in (str(node), *children))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answers_at(address: str) -> bool:
    host, _, port = address.partition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--resident", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.resident is not None:
        be_a_client(given.resident, given.clients, given.rounds)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = folder / "app"
        app.mkdir()
        (app / "pyproject.toml").write_text(APP)
        for side in ("server_app", "client_app"):
            text = f"from engines_flower import {side}\n\napp = {side}()\n"
            (app / f"{side}.py").write_text(text)
        result = folder / RESULT
        config = f'out="{result}" clients={given.clients} rounds={given.rounds}'
        federation = Federation(folder, given.clients)
        try:
            before = time.time()
            federation.begin()
            federation.run("flwr", "run", "app", "ours", "--run-config", config)
            while not result.exists() and time.time() < before + LONGEST:
                time.sleep(0.2)
            flower = federation.megabytes()
            found = json.loads(result.read_text(encoding="utf-8"))
        finally:
            federation.end()
    found["client_mb"] += flower
    print(json.dumps({"start": found.pop("began") - before, **found}))


if __name__ == "__main__":
    main()
