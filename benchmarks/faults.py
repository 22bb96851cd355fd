"""What happens when a process dies, sleeps, is asked to end, or cannot write: a row a fault.

A server and three clients, or three participants without a server, are processes of this machine
with mutual TLS and synthetic documents. A row is wrong if a process prints a traceback, hangs or
ends otherwise than it should; if a line of events or ledgers is no JSON, a round is missing, or
somebody has another model than the others; if weights differ from those without a fault although
nobody missed a round.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.common import Worker, arguments, table, versions, write
from benchmarks.federated import free_port, relayed
from fedtopics import pki

SIZES = {"north": 90, "south": 70, "west": 60}  # documents of the clients
ROUNDS, EARLY = 80, 15  # the round in which faults happen
LIMIT = 240.0  # seconds for anything
FULL = 200  # bytes that a file may have on a disk that is full
STUDY = """
name = "faults"
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
pause = 0.02
deadline = {deadline}
"""
INTERRUPTED = "fedtopics: Interrupted; type it again to go on"
SIGNALS = {"Ctrl-C": (signal.SIGINT, 130), "SIGTERM": (signal.SIGTERM, 143)}
Process = subprocess.Popen[bytes]


def documents(name: str, size: int, seed: int) -> str:
    """Draw documents as JSON lines: 120 words of the client's own, 26 that all share."""
    rng, letters = np.random.default_rng(seed), "abcdefghijklmnopqrstuvwxyz"
    words = [f"{name}{a}{b}" for a in letters[:5] for b in letters[:24]]
    words += [f"common{a}" for a in letters]
    weights = rng.dirichlet(np.full(len(words), 0.3))
    texts = (" ".join(rng.choice(words, rng.integers(8, 30), p=weights)) for _ in range(size))
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


class Stage:
    """The processes of a row, in a folder with the clients' documents and identities."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.teller, self.wrong = "server", list[str]()
        self.started: dict[str, Process] = {}  # the last one of each name
        self.codes: dict[str, int] = {}  # with which each should end
        for seed, (name, size) in enumerate(SIZES.items()):
            (folder / f"{name}.jsonl").write_text(documents(name, size, seed), "utf-8")
        (folder / "policy.toml").write_text("min_documents = 10\n", "utf-8")

    def study(self, of: str = "clients", deadline: int = 30) -> None:
        """Write the study: of clients of a server, of peers, or of files in one process."""
        text = STUDY.format(rounds=ROUNDS, deadline=deadline)
        pki.create(self.folder / "pki", ["localhost"])
        for name in SIZES:
            pki.issue(self.folder / "pki", name, peer=of == "peers")
            address = f'address = "localhost:{free_port()}"\n' if of == "peers" else ""
            data = f'data = "{name}.jsonl"\n' if of == "files" else ""
            text += f"\n[clients.{name}]\n{address}{data}"
        (self.folder / "study.toml").write_text(text, "utf-8")

    def start(self, who: str, *words: str) -> Process:
        """Start a command; its output is in WHO.log."""
        with (self.folder / f"{who}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fedtopics", *words], cwd=self.folder, stdout=log,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.started[who], self.codes[who] = process, 0
        return process

    def server(self, *more: str) -> Process:
        address = f"localhost:{self.port}"
        return self.start(
            "server", "server", "study.toml", "--pki", "pki", "--listen", address,
            "--out", "server", *more,
        )  # fmt: skip

    def take_part(self, name: str, *words: str) -> Process:
        return self.start(
            name, *words, "--identity", f"pki/clients/{name}", "--data", f"{name}.jsonl",
            "--text", "text", "--policy", "policy.toml", "--out", name, "--secret-from-seed",
        )  # fmt: skip

    def client(self, name: str, port: int = 0) -> Process:
        return self.take_part(name, "client", "--server", f"localhost:{port or self.port}")

    def peer(self, name: str) -> Process:
        return self.take_part(name, "peer", "study.toml")

    def begin(self, deadline: int = 30) -> None:
        """Start a server and all clients, and let them train for a while."""
        self.study(deadline=deadline)
        self.server()
        for name in SIZES:
            self.client(name)
        self.until_round(EARLY)

    def begin_peers(self) -> None:
        """Start all participants without a server, and let them train for a while."""
        self.study("peers")
        self.teller = "north"
        for name in SIZES:
            self.peer(name)
        self.until_round(EARLY)

    def kill(self, *names: str) -> None:
        """End processes as the kernel does when memory is short."""
        for name in names:
            self.started[name].kill()
            self.started[name].wait()

    def events(self, who: str = "", out: str = "") -> list[dict[str, Any]]:
        """Return whole lines of somebody's events."""
        place = self.folder / (out or who or self.teller)
        found = [*place.glob("events.jsonl"), *place.glob("state/events.jsonl")]
        whole = found[0].read_text("utf-8").rpartition("\n")[0] if found else ""
        return [json.loads(line) for line in whole.splitlines()]

    def rounds(self, who: str = "") -> list[dict[str, Any]]:
        return [event for event in self.events(who) if event["event"] == "round"]

    def until_round(self, number: int, who: str = "") -> None:
        """Wait until somebody has done a round."""
        self.until(
            lambda: any(event["round"] >= number for event in self.rounds(who)), f"round {number}"
        )

    def until(self, true: Callable[[], bool], what: str, limit: float = LIMIT) -> None:
        ends = time.monotonic() + limit
        while not true():
            if time.monotonic() > ends:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.05)

    def says(self, who: str, words: str) -> bool:
        return words in (self.folder / f"{who}.log").read_text("utf-8", "replace")

    def finish(self) -> None:
        """Wait until all have ended, and look at how."""
        for name, process in self.started.items():
            self.until(lambda p=process: p.poll() is not None, f"the end of {name}")  # type: ignore[misc]
            if process.returncode != self.codes[name]:
                self.wrong.append(f"{name} ended with {process.returncode}")

    def stop(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()


def weights_of(folder: Path) -> dict[str, bytes] | None:
    """Return the bytes of a model's weights, or None without a model."""
    path = folder / "model" / "model.safetensors"
    return {k: v.tobytes() for k, v in load_file(path).items()} if path.exists() else None


# The faults, a function each: what is started, what fails, what follows.


def nothing(stage: Stage) -> None:
    """none"""
    stage.begin()


def client_dies(stage: Stage) -> None:
    """client killed"""
    stage.begin()
    stage.kill("south")
    stage.codes["south"] = -signal.SIGKILL


def client_comes_back(stage: Stage) -> None:
    """client killed and started again"""
    stage.begin()
    stage.kill("south")
    stage.client("south")
    back_in_the_end(stage)


def server_comes_back(stage: Stage) -> None:
    """server killed and started again with --resume"""
    stage.begin()
    stage.kill("server")
    stage.server("--resume")


def all_come_back(stage: Stage) -> None:
    """server and all clients killed and started again"""
    stage.begin()
    stage.kill("server", *SIZES)
    stage.server("--resume")
    for name in SIZES:
        stage.client(name)


def client_sleeps(stage: Stage) -> None:
    """client stopped (SIGSTOP) for 15 s, longer than the deadline"""
    stage.begin(deadline=8)
    sleep(stage.started["south"])
    back_in_the_end(stage)


def network_fails(stage: Stage) -> None:
    """network of a client silent for 15 s"""
    stage.study(deadline=8)
    stage.server()
    stage.until(lambda: listens(stage.port), "the server")
    relay = Worker(relayed, stage.port, 0.0)
    stage.client("south", port=relay.answer())
    for name in ("north", "west"):
        stage.client(name)
    stage.until_round(EARLY)
    sleep(relay.process)
    back_in_the_end(stage)
    stage.finish()
    relay.close()


def server_cannot_write(stage: Stage) -> None:
    """server cannot write any more; then it can, and --resume"""
    stage.begin()
    fill(stage, "server")
    stage.server("--resume")


def client_cannot_write(stage: Stage) -> None:
    """client cannot write any more; then it can, and is started again"""
    stage.begin()
    fill(stage, "south")
    stage.client("south")
    back_in_the_end(stage)


def peer_dies(stage: Stage) -> None:
    """without a server: each participant killed and started again, one after the other"""
    stage.begin_peers()
    for name in SIZES:
        stage.kill(name)
        stage.peer(name)
        done = max(event["round"] for event in stage.rounds())
        stage.until_round(min(done + 5, ROUNDS))


def all_peers_come_back(stage: Stage) -> None:
    """without a server: all killed and started again"""
    stage.begin_peers()
    stage.kill(*SIZES)
    for name in SIZES:
        stage.peer(name)


def server_trains(stage: Stage) -> None:
    """server asked to end in training"""
    stage.begin()
    interrupt(stage, "server", lambda: stage.server("--resume"))


def client_trains(stage: Stage) -> None:
    """client asked to end in training"""
    stage.begin()
    interrupt(stage, "south", lambda: stage.client("south"))


def peer_trains(stage: Stage) -> None:
    """without a server: participant asked to end in training"""
    stage.begin_peers()
    interrupt(stage, "south", lambda: stage.peer("south"))


def simulation_trains(stage: Stage) -> None:
    """simulation (`fedtopics run`) asked to end in training"""
    stage.study("files")
    stage.teller = "run"
    command = ("run", "study.toml", "--out", "run")
    stage.start("run", *command)
    stage.until_round(EARLY)
    interrupt(stage, "run", lambda: stage.start("run", *command, "--resume"))


FAULTS = (
    nothing, client_dies, client_comes_back, server_comes_back, all_come_back,
    client_sleeps, network_fails, server_cannot_write, client_cannot_write, peer_dies,
    all_peers_come_back, server_trains, client_trains, peer_trains, simulation_trains,
)  # fmt: skip
QUICK = (nothing, client_dies, all_come_back, all_peers_come_back, server_trains)


def interrupt(stage: Stage, who: str, again: Callable[[], Process]) -> None:
    """Ask somebody to end, by either signal; it says so in a sentence, and is started again."""
    for name, (number, code) in SIGNALS.items():
        process, before = stage.started[who], max(e["round"] for e in stage.rounds())
        process.send_signal(number)
        stage.until(lambda p=process: p.poll() is not None, f"the end of {who}")  # type: ignore[misc]
        last = (stage.folder / f"{who}.log").read_text("utf-8", "replace").splitlines()[-1]
        if process.returncode != code or not last.startswith(INTERRUPTED):
            stage.wrong.append(f"{name}: {who} ended with {process.returncode}, saying {last!r}")
        again()
        stage.until_round(min(before + 10, ROUNDS))


def sleep(process: Any) -> None:
    """Stop a process for a while."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    process.send_signal(signal.SIGCONT)


def fill(stage: Stage, who: str) -> None:
    """Let a process write no more, and wait until it has ended."""
    process = stage.started[who]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FULL, FULL))
    stage.until(lambda: process.poll() is not None, f"the end of {who}")
    if process.returncode != 1:
        stage.wrong.append(f"{who}, which could not write, ended with {process.returncode}")


def listens(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), 1).close()
    except OSError:
        return False
    return True


def back_in_the_end(stage: Stage) -> None:
    """Wait for the end; south is to be in the last round."""
    stage.finish()
    if "south" not in stage.rounds()[-1]["clients"]:
        stage.wrong.append("south is not in the last round")


def judge(stage: Stage, usual: dict[str, bytes] | None) -> tuple[str, str, list[str]]:
    """Return who missed rounds, what became of the model, and what is wrong."""
    wrong = [*stage.wrong]
    for path in stage.folder.rglob("*.jsonl"):
        try:
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        except ValueError:
            wrong.append(f"{path.name} has half a line")
    if any("Traceback" in log.read_text("utf-8", "replace") for log in stage.folder.glob("*.log")):
        wrong.append("there is a traceback")
    rounds = {event["round"]: event for event in stage.rounds()}
    if not {*range(1, ROUNDS + 1)} <= rounds.keys():
        wrong.append(f"events have {len(rounds)} rounds")
    missed: dict[str, int] = {}
    for event in rounds.values():
        for name in event["missing"]:
            missed[name] = missed.get(name, 0) + 1
    model = weights_of(stage.folder / stage.teller)
    ended = [name for name, process in stage.started.items() if process.returncode == 0]
    others = (name for name in ended if name != "server")
    wrong += [f"{n} has another model" for n in others if weights_of(stage.folder / n) != model]
    again = any(event["attempts"] > 1 for event in rounds.values())
    same = usual is None or model == usual
    if model is None or not (same or missed or again):
        wrong.append("the model is missing" if model is None else "the model is another one")
    who = ", ".join(f"{name} {number}" for name, number in sorted(missed.items())) or "nobody"
    why = "rounds had other clients" if missed else "a repeated round draws other documents"
    return who, "same bits as without the fault" if same else f"another: {why}", wrong


def play(faults: tuple[Callable[[Stage], None], ...]) -> Iterator[tuple[str, ...]]:
    """Play rows; whatever happens, their processes end and the table goes on."""
    usual: dict[str, dict[str, bytes] | None] = {}
    for fault in faults:
        title = str(fault.__doc__)
        kind = title.partition(":")[0] if title.startswith(("without", "simulation")) else "server"
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="fedtopics-faults-") as folder:
            stage = Stage(Path(folder))
            try:
                fault(stage)
                stage.finish()
            except (TimeoutError, LookupError, OSError) as error:
                stage.wrong.append(str(error))
            finally:
                stage.stop()
            who, model, wrong = judge(stage, usual.get(kind))
            usual.setdefault(kind, weights_of(stage.folder / stage.teller))
        print(
            f"{time.monotonic() - begun:5.1f} s  {title}: {'; '.join(wrong) or 'well'}", flush=True
        )
        yield title, who, model, "; ".join(wrong) or "-"


def main() -> None:
    given = arguments(__doc__)
    # A shell lets what it starts in the background ignore Ctrl-C, and so would the processes here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = list(play(QUICK if given.quick else FAULTS))
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(given, [
        "What happens when something fails: processes with mutual TLS on one machine, LDA of "
        f"{ROUNDS} rounds, a server and three clients or three participants without a server; "
        f"{used}. Each process that is asked to end (Ctrl-C, then SIGTERM) ends with its exit code "
        "and one sentence, and goes on when it is started again. Command: "
        "`make stress NAME=faults`.", "",
        *table("fault | missed rounds | model | what was wrong", rows, left=4), "",
        "A row is wrong if a process printed a traceback, hung or ended otherwise than it should; "
        "if a line of events or ledgers is no JSON, a round is missing or somebody has another "
        "model than the others; if weights differ from those without the fault although nobody "
        f"missed a round. Wrong: {sum(row[-1] != '-' for row in rows) or 'none'}.",
    ])  # fmt: skip
    raise SystemExit(any(row[-1] != "-" for row in rows))
