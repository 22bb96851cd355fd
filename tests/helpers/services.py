"""Services as operators have them: processes in folders, and a server that dies and comes back."""

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

NAMES = ("north", "south", "west")
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
min_persons_per_word = 2
[server]
address = "localhost:{port}"
certificate = "server.pem"
"""
ROUND = '"event": "round"'
PATIENCE = 180  # seconds: after a while a client tries again every half a minute
Service = tuple[Sequence[str], Path]  # a command, and where it is started


def write_folders(folder: Path) -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"word{letter}" for letter in "abcdefghijklmnopqrst"])
    names = ("server", *NAMES)
    study = STUDY.format(port=free_port())
    study += "".join(f'[clients.{name}]\ncertificate = "{name}.pem"\n' for name in NAMES)
    keys = {name: Key.create(folder / name / "key", name) for name in names}
    for owner in names:
        (folder / owner / "study.toml").write_text(study)
        for name, key in keys.items():
            (folder / owner / f"{name}.pem").write_bytes(key.certificate)
    for name in NAMES:
        (folder / name / "documents.jsonl").write_text(
            "\n".join([json.dumps({"text": " ".join(rng.choice(words, 6))}) for _ in range(300)])
        )
        (folder / name / "policy.toml").write_text("min_persons = 10\n")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def assert_survives(server: Service, members: Sequence[Service], run: Path) -> None:
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

        first, others = begin(server), [begin(member) for member in members]
        events = run / "state/events.jsonl"
        until(
            lambda: first.poll() is not None or (events.exists() and ROUND in events.read_text()),
            PATIENCE,
        )
        first.send_signal(signal.SIGKILL)
        first.wait()
        codes = [process.wait(PATIENCE) for process in (begin(server), *others)]
    assert codes == [0] * (len(members) + 1), log.read_text()
    kinds = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert (kinds.count("started"), kinds.count("resumed")) == (1, 0)
