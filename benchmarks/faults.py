"""Real processes that are killed, frozen, or without disk space, at random: a run ends.

A server and three members, with secure and with plain aggregation. A process that ended is started
again with the same command. Once, the server's port belongs to a stranger who accepts and resets.
A disk is full at a random byte of a file, so that writes are torn. Documents change, and are put
back. ``--runs 100`` plays so many short runs instead.
"""

import hashlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

from benchmarks.__main__ import sources
from benchmarks.common import arguments, bag_of_words, forked, measured, table, versions, write
from benchmarks.federated import free_port, prepare

NAMES = ("east", "north", "west")
LIMIT = 240.0  # seconds without a fault until which a run has to end
STUDY = """
name = "faults"
checkpoint_every = 20
aggregation = "{kind}"
[method]
name = "lda"
learning = "stochastic"
n_components = 3
max_rounds = {rounds}
batch_size = 16
coherence = "nothing"
[vocabulary]
min_persons_per_word = 1
[federation]
join_timeout = 120
quorum_timeout = 200
round_timeout = 60
[server]
address = "localhost:{port}"
certificate = "server.pem"
"""
Process = Any  # as subprocess has it


class Stage:
    """The processes of a run, in a folder."""

    def __init__(self, folder: Path, kind: str, rounds: int) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, Process] = {}
        self.wrong: list[str] = []
        bag = bag_of_words(300, 200)
        prepare(folder, {name: bag[i::3] for i, name in enumerate(NAMES)})
        text = STUDY.format(kind=kind, rounds=rounds, port=self.port)
        text += "".join(f'[clients.{name}]\ncertificate = "{name}.pem"\n' for name in NAMES)
        (folder / "study.toml").write_text(text, "utf-8")
        for name in ("server", *NAMES):
            self.start(name)

    def start(self, name: str) -> None:
        """Start the server or a member; the same command again goes on."""
        words = ["serve", "study.toml", "--listen", f"127.0.0.1:{self.port}"]
        if name != "server":
            words = [
                "join",
                "study.toml",
                "--data",
                f"{name}.parquet",
                "--columns",
                "tokens=words",
                "--policy",
                f"{name}.toml",
                "--insecure-seed",
            ]
        words += ["--key", f"keys/{name}", "--out", f"out/{name}"]
        words = ["-m", "fedtopics", *words]
        path = self.folder / f"{name}.log"
        if "--quick" in sys.argv:
            self.processes[name] = forked(self.folder, path, words)
            return
        with path.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    def running(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def kill(self, name: str, seconds: float) -> None:
        """End a process as the kernel does when memory is short; start it again a while later."""
        self.processes[name].kill()
        self.processes[name].wait()
        time.sleep(seconds)
        self.start(name)

    def sleep(self, name: str, seconds: float) -> None:
        os.kill(self.processes[name].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.processes[name].pid, signal.SIGCONT)

    def fill_disk(self, name: str, size: int) -> None:
        """Let no file of a process grow beyond a size for a while; if it ends, start it again."""
        process = self.processes[name]
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, limits[1]))
        until = time.monotonic() + 5.0
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        if process.poll() is None:
            with suppress(ProcessLookupError):  # it ends just now
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        elif process.poll() != 0:  # else it has the model
            self.start(name)

    def change_documents(self, name: str) -> None:
        """Start a member with fewer documents, which must not go on; then with all of them."""
        documents = self.folder / f"{name}.parquet"
        table = pq.read_table(documents)
        pq.write_table(table[:-1], documents)
        self.kill(name, 0.0)
        if (code := self.processes[name].wait()) != 2:
            self.wrong.append(f"{name} ended with {code} after its documents changed")
        pq.write_table(table, documents)
        self.start(name)

    def reset(self, seconds: float) -> None:
        """Kill the server; accept and reset connections at its port for a while; start it again."""
        self.processes["server"].kill()
        self.processes["server"].wait()
        until = time.monotonic() + seconds
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind(("127.0.0.1", self.port))
            stranger.listen()
            stranger.settimeout(0.2)
            while time.monotonic() < until:
                try:
                    connection, _ = stranger.accept()
                except TimeoutError:
                    continue
                now = struct.pack("ii", 1, 0)  # close with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
                connection.close()
        self.start("server")

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def weights_of(folder: Path) -> str:
    """Return a digest of a model's weights, or nothing without a model."""
    path = folder / "model" / "model.safetensors"
    if not path.exists():
        return ""
    arrays = b"".join(array.tobytes() for _, array in sorted(load_file(path).items()))
    return hashlib.sha256(arrays).hexdigest()


def disturb(stage: Stage, r: random.Random, faults: int, resets: float) -> list[str]:
    """Do so many faults, as long as everybody runs; return what was done."""
    done = []
    strange = r.randrange(faults) if faults else -1
    for number in range(faults):
        time.sleep(r.uniform(0.5, 6.0))
        if len(stage.running()) <= len(NAMES):  # somebody has the model, or failed
            break
        name = "server" if number == strange else r.choice(("server", *NAMES))
        possible = {
            "kill": partial(stage.kill, name, r.uniform(0.0, 5.0)),
            "sleep": partial(stage.sleep, name, r.uniform(0.0, 5.0)),
            "full disk": partial(stage.fill_disk, name, int(10 ** r.uniform(4.0, 5.5))),
            "documents": partial(stage.change_documents, name),
            "reset": partial(stage.reset, resets),
        }
        # Before a member has begun, and of a server, there are no documents to change.
        can_change = (stage.folder / f"out/{name}/state/documents").exists()
        kind = "reset" if number == strange else r.choice([*possible][: 3 + can_change])
        possible[kind]()
        done.append(f"{kind} {name}")
    return done


def play(kind: str, seed: int, faults: int, rounds: int, resets: float) -> dict[str, Any]:
    """Play a run; return what became of it. All its processes have ended."""
    wrong = []
    with tempfile.TemporaryDirectory(prefix="fedtopics-faults-") as name:
        stage = Stage(Path(name), kind, rounds)
        try:
            done = disturb(stage, random.Random(seed), faults, resets)  # noqa: S311
            until = time.monotonic() + LIMIT
            while stage.running() and time.monotonic() < until:
                time.sleep(0.1)
                for role, process in list(stage.processes.items()):
                    if process.poll() in (1, 4):  # a full disk, or a Stop: it resumes
                        stage.start(role)
            wrong += [f"{role} did not end" for role in stage.running()]
        finally:
            stage.stop()
        wrong += stage.wrong
        codes = {role: process.wait() for role, process in stage.processes.items()}
        wrong += [f"{role} ended with {code}" for role, code in codes.items() if code]
        paths = stage.folder.glob("*.log")
        logs = {path.stem: path.read_text("utf-8", "replace") for path in paths}
        wrong += [f"{n}: traceback" for n, text in logs.items() if "Traceback" in text]
        if wrong:
            print(*(text[-600:] for text in logs.values()), sep="\n--\n", file=sys.stderr)
        models = {weights_of(stage.folder / "out" / member) for member in NAMES}
        if len(models) > 1 or "" in models:
            wrong.append("the members do not have one model")
    return {"done": done, "weights": min(models), "wrong": "; ".join(wrong)}


def main() -> None:
    given = arguments(__doc__, runs=0)
    version = sources()
    kinds = ("secure",) if given.quick or given.runs else ("secure", "plain")
    faults, rounds, resets = (2, 60, 1.0) if given.quick else (20, 3000, 25.0)
    seeds = [(1, faults)] if given.quick else [(0, 0), (1, faults), (2, faults)]
    if given.runs:
        faults, rounds, resets = 3, 300, 1.0
        seeds = [(seed, 3 if seed else 0) for seed in range(given.runs)]
    tasks = [
        {"kind": kind, "seed": seed, "faults": number, "rounds": rounds, "resets": resets}
        for kind in kinds
        for seed, number in seeds
    ]
    rows = measured(
        given,
        [{**task, "sources": version} for task in tasks],
        lambda task: play(**{name: setting for name, setting in task.items() if name != "sources"}),
    )
    weights = {row["kind"]: row["weights"] for row in rows if not row["faults"]}
    lines = []
    for row in rows:
        same = "yes" if row["weights"] == weights.get(row["kind"]) else "no" if weights else "-"
        what = [row["kind"], row["seed"], f"{len(row['done'])} of {row['faults']}"]
        if row["kind"] == "secure" and same == "no":
            row["wrong"] = "; ".join(filter(None, [row["wrong"], "another model"]))
        lines.append([*what, same, row["wrong"] or "-"])
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(
        given,
        [
            "A server and three members, each a process, LDA over mutual TLS on one machine. "
            "Faults are drawn from the seed: kill -9 or SIGSTOP of one of the four, with up to 5 s "
            "until it goes on; a disk that is full at a random byte; changed documents at a start; "
            f"one of them is a port that accepts and resets for {resets:g} s. A "
            f"row is wrong if a process does not end {LIMIT:g} s after the last fault, ends with "
            "an error or a traceback, if members have two models, or, with secure aggregation, "
            "another one than without faults. "
            f"{used}. Command: `make stress NAME=faults`.",
            "",
            *table("aggregation | seed | faults | same bits as without | what was wrong", lines),
        ],
    )
    if any(row["wrong"] for row in rows):
        raise SystemExit(1)
