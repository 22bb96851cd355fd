"""What happens when a process dies, sleeps, is asked to end, or cannot write: a row a fault."""

# mypy: disable-error-code="func-returns-value"

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from benchmarks.__main__ import sources
from benchmarks.common import Worker, arguments, measured, table, versions, write
from benchmarks.federated import free_port, relayed
from fedtopics import pki

SIZES = {"north": 90, "south": 70, "west": 60}  # documents of the clients
ROUNDS, EARLY = 80, 15  # the round in which faults happen
LIMIT = 240.0  # seconds for anything
STUDY = """
name = "faults"
checkpoint_every = 5
aggregation = "plain"  # so that two can go on
[method]
name = "lda"
n_components = 3
max_rounds = {rounds}
batch_size = 16
[vocabulary]
min_document_frequency = 1
[federation]
quorum = {quorum}
quorum_timeout = 200
round_interval = {pause}
round_timeout = {deadline}
"""
USUAL = MappingProxyType({"rounds": ROUNDS, "quorum": 3, "pause": 0.1, "deadline": 30})
Process = subprocess.Popen[bytes]
SLOWLY = {"quorum": 2, "deadline": 8, "pause": 0.5}  # so that a study outlives what sleeps
FULL = 200  # bytes that a file may have on a disk that is full
INTERRUPTED = "fedtopics: Interrupted; type it again to go on"
SIGNALS = {"Ctrl-C": (signal.SIGINT, 130), "SIGTERM": (signal.SIGTERM, 143)}


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

    def study(self, changed: Mapping[str, float] = USUAL, of: str = "clients") -> None:
        """Write the study: of clients of a server, of peers, or of files in one process."""
        text = STUDY.format(**{**USUAL, **changed})
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
        listening = ("--listen", f"localhost:{self.port}", "--out", "server", *more)
        return self.start("server", "server", "study.toml", "--pki", "pki", *listening)

    def take_part(self, name: str, *words: str) -> Process:
        return self.start(
            name, *words, "--identity", f"pki/clients/{name}", "--data", f"{name}.jsonl",
            "--text", "text", "--policy", "policy.toml", "--out", name, "--insecure-seed",
        )  # fmt: skip

    def client(self, name: str, port: int = 0) -> Process:
        return self.take_part(name, "client", "--server", f"localhost:{port or self.port}")

    def peer(self, name: str) -> Process:
        return self.take_part(name, "peer", "study.toml")

    def begin(self, changed: Mapping[str, float] = USUAL) -> None:
        """Start a server and all clients, and let them train for a while."""
        self.study(changed)
        self.server()
        for name in SIZES:
            self.client(name)
        self.until_round(EARLY)

    def begin_peers(self) -> None:
        self.study(of="peers")
        self.teller = "north"
        for name in SIZES:
            self.peer(name)
        self.until_round(EARLY)

    def kill(self, *names: str) -> None:
        """End processes as the kernel does when memory is short."""
        for name in names:
            self.started[name].kill()
            self.started[name].wait()

    def rounds(self) -> list[dict[str, Any]]:
        place = self.folder / self.teller
        found = [*place.glob("events.jsonl"), *place.glob("state/events.jsonl")]
        whole = found[0].read_text("utf-8").rpartition("\n")[0] if found else ""
        events = map(json.loads, whole.splitlines())
        return [event for event in events if event["event"] == "round"]

    def last(self) -> int:
        return max((event["round"] for event in self.rounds()), default=-1)

    def until_round(self, number: int) -> None:
        self.until(lambda: self.last() >= number, f"round {number}")

    def ended(self, who: str) -> Process:
        process = self.started[who]
        self.until(lambda: process.poll() is not None, f"the end of {who}")
        return process

    def until(self, true: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + LIMIT
        while not true():
            if time.monotonic() > ends:
                raise TimeoutError(f"waited in vain for {what}")
            time.sleep(0.05)

    def finish(self) -> None:
        for name in self.started:
            if (code := self.ended(name).returncode) != self.codes[name]:
                self.wrong.append(f"{name} ended with {code}")

    def stop(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()


def weights_of(folder: Path) -> str | None:
    """Return a digest of a model's weights, or None without a model."""
    path = folder / "model" / "model.safetensors"
    if not path.exists():
        return None
    weights = b"".join(array.tobytes() for _, array in sorted(load_file(path).items()))
    return hashlib.sha256(weights).hexdigest()


def network_fails(stage: Stage) -> None:
    stage.study(SLOWLY)
    stage.server()
    stage.until(lambda: listens(stage.port), "the server")
    relay = Worker(relayed, stage.port, 0.0)
    stage.client("south", port=relay.answer())
    for name in ("north", "west"):
        stage.client(name)
    stage.until_round(EARLY)
    sleep(relay.process)
    back_in_the_end(stage)
    relay.close()


def peer_dies(stage: Stage, name: str) -> None:
    stage.kill(name)
    stage.peer(name)
    stage.until_round(min(stage.last() + 5, ROUNDS))


def simulation_trains(stage: Stage) -> None:
    stage.study(of="files")
    stage.teller = "run"
    command = ("run", "study.toml", "--out", "run")
    stage.start("run", *command)
    stage.until_round(EARLY)
    interrupt(stage, "run", lambda: stage.start("run", *command, "--resume"))


# What is started, what fails, what follows, one after the other.
FAULTS: dict[str, Callable[[Stage], Any]] = {
    "none": lambda s: s.begin(),
    "client killed": lambda s: (
        s.begin({"quorum": 2}), s.kill("south"), s.codes.update(south=-signal.SIGKILL),
    ),
    "client killed and started again": lambda s: (
        s.begin(), s.kill("south"), s.client("south"), back_in_the_end(s),
    ),
    "server killed and started again with --resume": lambda s: (
        s.begin(), s.kill("server"), s.server("--resume"),
    ),
    "server and all clients killed and started again": lambda s: (
        s.begin(), s.kill("server", *SIZES), s.server("--resume"), [s.client(n) for n in SIZES],
    ),
    "client stopped (SIGSTOP) for 15 s, longer than the deadline": lambda s: (
        s.begin(SLOWLY), sleep(s.started["south"]), back_in_the_end(s),
    ),
    "network of a client silent for 15 s": network_fails,
    "server cannot write any more; then it can, and --resume": lambda s: (
        s.begin(), fill(s, "server"), s.server("--resume"),
    ),
    "client cannot write any more; then it can, and is started again": lambda s: (
        s.begin(), fill(s, "south"), s.client("south"), back_in_the_end(s),
    ),
    "without a server: each participant killed and started again, one after the other": lambda s: (
        s.begin_peers(), [peer_dies(s, name) for name in SIZES],
    ),
    "without a server: all killed and started again": lambda s: (
        s.begin_peers(), s.kill(*SIZES), [s.peer(name) for name in SIZES],
    ),
    "server asked to end in training": lambda s: (
        s.begin(), interrupt(s, "server", lambda: s.server("--resume")),
    ),
    "client asked to end in training": lambda s: (
        s.begin(), interrupt(s, "south", lambda: s.client("south")),
    ),
    "without a server: participant asked to end in training": lambda s: (
        s.begin_peers(), interrupt(s, "south", lambda: s.peer("south")),
    ),
    "simulation (`fedtopics run`) asked to end in training": simulation_trains,
}  # fmt: skip
OTHERS = ("without a server", "simulation")  # rows that have no run without the fault
QUICK = [list(FAULTS)[number] for number in (0, 1, 4, 10, 11)]


def interrupt(stage: Stage, who: str, again: Callable[[], Process]) -> None:
    """Ask somebody to end, by either signal; it says so in a sentence, and is started again."""
    for name, (number, code) in SIGNALS.items():
        before = stage.last()
        stage.started[who].send_signal(number)
        ended = stage.ended(who).returncode
        last = (stage.folder / f"{who}.log").read_text("utf-8", "replace").splitlines()[-1]
        if ended != code or not last.startswith(INTERRUPTED):
            stage.wrong.append(f"{name}: {who} ended with {ended}, saying {last!r}")
        again()
        stage.until_round(min(before + 10, ROUNDS))


def sleep(process: Any) -> None:
    process.send_signal(signal.SIGSTOP)
    time.sleep(15)
    process.send_signal(signal.SIGCONT)


def fill(stage: Stage, who: str) -> None:
    resource.prlimit(stage.started[who].pid, resource.RLIMIT_FSIZE, (FULL, FULL))
    if (code := stage.ended(who).returncode) != 1:
        stage.wrong.append(f"{who}, which could not write, ended with {code}")


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


def judge(stage: Stage, usual: str | None) -> dict[str, Any]:
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
    missed = Counter(name for event in rounds.values() for name in event.get("missing", ()))
    model = weights_of(stage.folder / stage.teller)
    ended = [name for name, process in stage.started.items() if process.returncode == 0]
    others = (name for name in ended if name != "server")
    wrong += [f"{n} has another model" for n in others if weights_of(stage.folder / n) != model]
    again = any(event.get("attempts", 1) > 1 for event in rounds.values())
    if model is None or not (usual in (None, model) or missed or again):
        wrong.append("the model is missing" if model is None else "the model is another one")
    who = ", ".join(f"{name} {number}" for name, number in sorted(missed.items()))
    return {"missed": who or "nobody", "weights": model, "again": again, "wrong": "; ".join(wrong)}


def play(fault: Callable[[Stage], None], usual: str | None) -> dict[str, Any]:
    """Play a row; whatever happens, its processes end and the table goes on."""
    with tempfile.TemporaryDirectory(prefix="fedtopics-faults-") as folder:
        stage = Stage(Path(folder))
        try:
            fault(stage)
            stage.finish()
        except (TimeoutError, LookupError, OSError) as error:
            stage.wrong.append(str(error))
        finally:
            stage.stop()
        return judge(stage, usual)


def cells_of(row: dict[str, Any], usual: str) -> list[str]:
    if row["weights"] == usual:
        model = "same bits as without the fault"
    elif row["fault"].startswith(OTHERS):
        model = "one model"
    else:
        why = "rounds had other clients" if row["missed"] != "nobody" else "a round was repeated"
        model = f"another: {why}"
    return [row["fault"], row["missed"], model, row["wrong"] or "-"]


def main() -> None:
    given, state = arguments(__doc__), sources()
    # A shell lets what it starts in the background ignore Ctrl-C, and so would the processes here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[dict[str, Any]] = []
    for title in QUICK if given.quick else FAULTS:
        usual = rows[0]["weights"] if rows and not title.startswith(OTHERS) else None
        task = {"fault": title, "sources": state}
        rows += measured(given, [task], lambda _, t=title, u=usual: play(FAULTS[t], u))  # type: ignore[misc]
        print(rows[-1]["wrong"] or "well", flush=True)
    used = ", ".join(f"{k} {v}" for k, v in versions("fedtopics", "grpcio").items())
    write(given, [
        "What happens when something fails: processes with mutual TLS on one machine, LDA of "
        f"{ROUNDS} rounds, a server and three clients or three participants without a server; "
        f"{used}. Each process that is asked to end (Ctrl-C, then SIGTERM) ends with its exit code "
        "and one sentence, and goes on when it is started again. Command: "
        "`make stress NAME=faults`.", "",
        *table("fault | missed rounds | model | what was wrong",
               [cells_of(row, rows[0]["weights"]) for row in rows], left=4), "",
        "A row is wrong if a process printed a traceback, hung or ended otherwise than it should; "
        "if a line of events or ledgers is no JSON, a round is missing or somebody has another "
        "model than the others; if weights differ from those without the fault although nobody "
        f"missed a round. Wrong: {sum(bool(row['wrong']) for row in rows) or 'none'}.",
    ])  # fmt: skip
    raise SystemExit(any(row["wrong"] for row in rows))
