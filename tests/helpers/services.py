"""Services as operators have them: processes in folders, and a server that dies and comes back."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from fedtopics.protocol.roster import Key
from tests.helpers.background import until

NAMES = ("north", "south")
STUDY = """
name = "letters"
[method]
name = "lda"
n_components = 2
max_rounds = 120
tolerance = 0
initialisation = "random"
coherence = "nothing"
[vocabulary]
min_document_frequency = 2
[federation]
quorum = 2
[clients.north]
[clients.south]
"""
ROUND = '"event": "round"'
PATIENCE = 180  # seconds: after a while a client tries again every half a minute
Service = tuple[Sequence[str], Path]  # a command, and where it is started


def write_letters(folder: Path) -> None:
    """Write a study, its clients' documents and their certificates, of a server at localhost."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{letter}" for letter in "abcdefghijklmnopqrst"])
    for name in NAMES:
        rows = [" ".join(rng.choice(words, 6)) for _ in range(300)]
        (folder / f"{name}.csv").write_text("\n".join(["text", *rows]))
    (folder / "study.toml").write_text(STUDY)
    for name in (*NAMES, "server"):
        Key.create(folder / name, name)


def free_port() -> int:
    """Return a port of this machine that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def assert_survives(server: Service, clients: Sequence[Service], run: Path) -> None:
    """See that all end well though the server is killed after a round, and started as before."""
    log = run.with_suffix(".log")
    with ExitStack() as stack:

        def begin(service: Service) -> subprocess.Popen[bytes]:
            words, place = service
            file = stack.enter_context(log.open("ab"))
            process = subprocess.Popen(words, cwd=place, stdout=file, stderr=file)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        first, others = begin(server), [begin(client) for client in clients]
        events = run / "events.jsonl"
        until(
            lambda: first.poll() is not None or (events.exists() and ROUND in events.read_text()),
            PATIENCE,
        )
        first.send_signal(signal.SIGKILL)
        first.wait()
        codes = [process.wait(PATIENCE) for process in (begin(server), *others)]
    assert codes == [0] * (len(clients) + 1), log.read_text()
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert (kinds.count("started"), kinds.count("resumed")) == (1, 1)
