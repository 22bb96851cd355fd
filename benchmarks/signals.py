"""Ctrl-C and SIGTERM for server, client, peer and simulation, in each of their states.

Whoever is asked to end says so in one sentence, with exit code 130 or 143; every line of its events
and ledger is whole; and the same command, with --resume where it has that, goes on to the model.
Processes of this machine, without TLS. Results go to ``benchmarks/results/signals.md``.

    python benchmarks/signals.py
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults_stage import documents
from quick import parser_of, results_of

NAMES = {"north": 90, "south": 70, "west": 60}
STUDY = """
name = "signals"
checkpoint_every = 5
secure = false  # so that two go on

[method]
name = "lda"
n_components = 3
max_rounds = {rounds}
batch_size = 16

[vocabulary]
min_document_frequency = 1

[federation]
min_clients = 2
pause = 0.01
"""
ROUNDS = 120
LIMIT = 60.0  # seconds for anything
SIGNALS = {"Ctrl-C": (signal.SIGINT, 130), "SIGTERM": (signal.SIGTERM, 143)}
SENTENCE = "fedtopics: Interrupted; type it again to go on"


class Played:
    """Processes of one state, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []
        folder.mkdir()
        for seed, (name, size) in enumerate(NAMES.items()):
            (folder / f"{name}.jsonl").write_text(documents(name, size, seed), encoding="utf-8")

    def study(self, *, peers: bool = False, files: bool = False) -> None:
        """Write the study, of clients that a server waits for, that find each other, or files."""
        text = STUDY.format(rounds=ROUNDS)
        for name in NAMES:
            address = f'address = "127.0.0.1:{free_port()}"\n' if peers else ""
            data = f'data = "{name}.jsonl"\n' if files else ""
            text += f"\n[clients.{name}]\n{address}{data}"
        (self.folder / "study.toml").write_text(text, encoding="utf-8")
        (self.folder / "policy.toml").write_text("min_documents = 10\n", encoding="utf-8")

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command; its output is in NAME.log."""
        log = (self.folder / f"{name}.log").open("ab")
        paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH", "")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "fedtopics", *words],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        )  # fmt: skip
        log.close()
        self.started.append((name, process))
        return process

    def server(self, *more: str) -> subprocess.Popen[bytes]:
        place = f"127.0.0.1:{self.port}"
        return self.start(
            "server", "server", "study.toml", "--insecure", "--listen", place, "--out", "run",
            "--json", *more,
        )  # fmt: skip

    def client(self, name: str) -> subprocess.Popen[bytes]:
        place, data = f"127.0.0.1:{self.port}", f"{name}.jsonl"
        return self.start(
            name, "client", "--server", place, "--insecure", "--name", name, "--data", data,
            "--text", "text", "--json", "--policy", "policy.toml",
        )  # fmt: skip

    def peer(self, name: str) -> subprocess.Popen[bytes]:
        data = f"{name}.jsonl"
        return self.start(
            name, "peer", "study.toml", "--insecure", "--name", name, "--data", data, "--text",
            "text", "--json", "--policy", "policy.toml",
        )  # fmt: skip

    def run(self, *more: str) -> subprocess.Popen[bytes]:
        return self.start("run", "run", "study.toml", "--out", "run", *more)

    def until(self, name: str, said: str) -> None:
        """Wait until a process has said something."""
        log = self.folder / f"{name}.log"
        wait(lambda: said in log.read_text("utf-8", "replace"), f"{name} to say {said!r}")

    def stop(self) -> None:
        for _, process in self.started:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class State:
    """Where somebody is when the signal comes, and how all goes on after it."""

    who: str
    where: str
    reach: Callable[[Played], subprocess.Popen[bytes]]
    again: Callable[[Played], None]


SOURCES = Path(__file__).resolve().parents[1] / "src"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def wait(true: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.02)


def server_waits(played: Played) -> subprocess.Popen[bytes]:
    played.study()
    process = played.server()
    played.until("server", '"waiting"')
    return process


def server_trains(played: Played) -> subprocess.Popen[bytes]:
    played.study()
    process = played.server()
    for name in NAMES:
        played.client(name)
    played.until("server", '"round": 20')
    return process


def server_again(played: Played) -> None:
    begun = (played.folder / "run" / "events.jsonl").exists()
    played.server(*(["--resume"] if begun else []))
    running = [name for name, process in played.started if process.poll() is None]
    for name in NAMES:
        if name not in running:
            played.client(name)


def client_alone(played: Played) -> subprocess.Popen[bytes]:
    played.study()
    process = played.client("south")
    played.until("south", '"reconnecting"')
    return process


def client_waits(played: Played) -> subprocess.Popen[bytes]:
    played.study()
    played.server()
    process = played.client("south")
    played.until("south", '"joined"')
    return process


def client_trains(played: Played) -> subprocess.Popen[bytes]:
    server_trains(played)
    return dict(played.started)["south"]


def clients_again(played: Played) -> None:
    running = [name for name, process in played.started if process.poll() is None]
    if "server" not in running:
        played.server()
    for name in NAMES:
        if name not in running:
            played.client(name)


def peer_alone(played: Played) -> subprocess.Popen[bytes]:
    played.study(peers=True)
    process = played.peer("south")
    played.until("south", '"no majority"')
    return process


def peer_trains(played: Played) -> subprocess.Popen[bytes]:
    played.study(peers=True)
    for name in NAMES:
        played.peer(name)
    played.until("south", '"round": 20')
    return dict(played.started)["south"]


def peers_again(played: Played) -> None:
    running = [name for name, process in played.started if process.poll() is None]
    for name in NAMES:
        if name not in running:
            played.peer(name)


def run_trains(played: Played) -> subprocess.Popen[bytes]:
    played.study(files=True)
    process = played.run()
    events = played.folder / "run" / "events.jsonl"
    wait(lambda: events.exists() and '"round": 20' in events.read_text("utf-8"), "round 20")
    return process


def run_again(played: Played) -> None:
    played.run("--resume")


STATES = (
    State("server", "waits for clients", server_waits, server_again),
    State("server", "trains", server_trains, server_again),
    State("client", "looks for the server", client_alone, clients_again),
    State("client", "waits for others", client_waits, clients_again),
    State("client", "trains", client_trains, clients_again),
    State("peer", "waits for a majority", peer_alone, peers_again),
    State("peer", "trains", peer_trains, peers_again),
    State("simulation", "trains", run_trains, run_again),
)


def play(state: State, name: str, folder: Path) -> list[str]:
    """Bring somebody into a state, send a signal; return what is wrong."""
    number, code = SIGNALS[name]
    played, faults = Played(folder), []
    try:
        process = state.reach(played)
        process.send_signal(number)
        ended = process.wait(LIMIT)
        if ended != code:
            faults.append(f"it ended with {ended}")
        who = next(n for n, each in played.started if each is process)
        last = (folder / f"{who}.log").read_text("utf-8", "replace").splitlines()[-1:]
        if not (last and last[0].startswith(SENTENCE)):
            faults.append(f"its last word was {last}")
        faults += half_lines(folder)
        state.again(played)
        newest = dict(played.started)  # by name, the last one of each
        for who, each in newest.items():
            if each.wait(2 * LIMIT):
                faults.append(f"{who} then ended with {each.returncode}")
        faults += half_lines(folder)
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        faults.append(str(error))
    finally:
        played.stop()
    logs = folder.glob("*.log")
    if any("Traceback" in log.read_text("utf-8", "replace") for log in logs):
        faults.append("there is a traceback")
    return faults


def half_lines(folder: Path) -> list[str]:
    """Name the files of lines that have one which is no JSON."""
    found = []
    for path in folder.rglob("*.jsonl"):
        try:
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        except ValueError:
            found.append(f"{path.relative_to(folder)} has half a line")
    return found


def main() -> None:
    quick = parser_of(__doc__).parse_args().quick
    # A shell lets what it starts in the background ignore Ctrl-C, and so would the processes here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    states = [(state, name) for state in STATES for name in SIGNALS]
    if quick:
        states = [(state, name) for state, name in states if state.where == "trains"][1::3]
    lines = ["| who | where it is | signal | what was wrong |", "| --- | --- | --- | --- |"]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for place, (state, name) in enumerate(states):
            begun = time.monotonic()
            faults = play(state, name, Path(folder) / str(place))
            wrong += bool(faults)
            lines.append(f"| {state.who} | {state.where} | {name} | {'; '.join(faults) or '-'} |")
            sys.stdout.write(f"{time.monotonic() - begun:5.1f} s {lines[-1]}\n")
            sys.stdout.flush()
    head = (
        "Signals to processes of one machine: each ends with its exit code and one sentence, lines "
        "on disk are whole, and the same command goes on to the model. Command: `python "
        f"benchmarks/signals.py`. Wrong: {wrong or 'none'}."
    )
    (results_of("signals", quick) / "signals.md").write_text("\n".join([head, "", *lines]) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
